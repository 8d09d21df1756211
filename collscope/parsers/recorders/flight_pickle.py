"""PyTorch flight recorder, pickled form (``TORCH_FR_DUMP_TEMP_FILE``, ``_dump_nccl_trace``).

A pickle can run any code that it names. This one needs only dictionaries, lists, tuples, texts and
numbers, so every class, function and persistent reference is refused, and so is what would grow.
"""

from __future__ import annotations

import io
import pickle
import pickletools

from collscope._picklejson import convert
from collscope.model import Severity
from collscope.model.trace import RecordedCalls
from collscope.parsers._notes import Notes
from collscope.parsers.reader import recorder_reader
from collscope.parsers.recorders.flight_recorder import as_written, from_dump, recording

_MAGIC = b"\x80"
_NEWEST_PROTOCOL = 5
_SIGNS = (b"entries", b"pg_config", b"nccl_version", b"comm_lib_version")
_DEEPEST = 64  # a dump nests dictionary, entries, entry, frames, frame
_LONGEST_VALUE = 1 << 24  # bytes of one text; a number of so many digits takes minutes

_PUTS = {"PUT", "BINPUT", "LONG_BINPUT"}
_OPENING = {"EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "MARK"}
_PLAIN = (
    "PROTO FRAME STOP MARK POP POP_MARK DUP MEMOIZE",
    "PUT BINPUT LONG_BINPUT GET BINGET LONG_BINGET",
    "NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT",
    "STRING BINSTRING SHORT_BINSTRING UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8",
    "BINBYTES SHORT_BINBYTES BINBYTES8",
    "EMPTY_DICT DICT SETITEM SETITEMS EMPTY_LIST LIST APPEND APPENDS",
    "EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3",
)
_ALLOWED = {name for line in _PLAIN for name in line.split()}
_TUPLES = {"TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"}
# A dump has one tuple an entry. Hashing one goes as deep as they nest: more than 120 000 levels
# fill a stack of 8 MiB, and the process ends there without an exception.
_MOST_TUPLES = 1 << 16


class _Refused(pickle.UnpicklingError):
    """The pickle asks for more than plain values."""


class _PlainUnpickler(pickle.Unpickler):
    """Builds plain containers and values only."""

    def find_class(self, module_name: str, global_name: str, /) -> object:
        """Refuse: no class and no function is needed to read a dump."""
        raise _Refused(f"{module_name}.{global_name}")

    def persistent_load(self, pid: object, /) -> object:
        """Refuse: a dump has no references to objects elsewhere."""
        raise _Refused("persistent reference")


def sniff(head: bytes) -> bool:
    """True for the beginning of a pickled dump."""
    return (
        head[:1] == _MAGIC
        and len(head) > 1
        and 2 <= head[1] <= _NEWEST_PROTOCOL
        and any(sign in head for sign in _SIGNS)
    )


def parse(data: bytes, name: str) -> RecordedCalls:
    """Collectives of a pickled dump, in the order in which they were scheduled.

    name   the file's name: the dump does not say which rank wrote it
    """
    notes = Notes()
    # Nearly all are so plain that no unpickler is needed.
    as_json = convert(data, "frames", "state", "completed")
    if as_json is not None and (found := as_written(as_json)) is not None:
        return recording(*found, name, "flight_pickle", notes)
    dump: object = None
    try:
        dump = load_plain(data)
    except _Refused as refused:
        message = (
            "The pickle contains classes or references, which a flight recorder's dump never"
            " does: not loaded."
        )
        notes.add(Severity.ERROR, "refused_pickle", message, 1, str(refused))
    # What a damaged pickle raises is not documented: any opcode may fail on any stack.
    except Exception as error:
        message = "The pickle is cut or damaged: nothing could be kept."
        notes.add(Severity.DATA_LOSS, "torn_dump", message, 1, type(error).__name__)
    return from_dump(dump, name, "flight_pickle", notes)


def load_plain(data: bytes) -> object:
    """Plain values of a pickle.

    raises  pickle.UnpicklingError when it asks for more; anything when it is damaged
    """
    check_plain(data)
    return _PlainUnpickler(io.BytesIO(data)).load()


def check_plain(data: bytes) -> None:
    """Look at every instruction before any is executed.

    raises  pickle.UnpicklingError when one is not needed for plain values, or a value is too
            large; ValueError and others when the pickle is damaged
    """
    previous = None
    depth = tuples = 0
    for place, (opcode, argument, _) in enumerate(pickletools.genops(data)):
        if opcode.name not in _ALLOWED:
            raise _Refused(opcode.name)
        # The unpickler makes room for every memo number up to the one that is put.
        if opcode.name in _PUTS and (not isinstance(argument, int) or argument > max(place, 255)):
            raise _Refused(f"{opcode.name} {argument}")
        if isinstance(argument, str | bytes) and len(argument) > _LONGEST_VALUE:
            raise _Refused(f"{opcode.name} of {len(argument)} bytes")
        # POP and DUP are plain, but no pickler writes a long row of openings.
        depth = depth + 1 if opcode.name in _OPENING and previous in _OPENING else 0
        if depth > _DEEPEST:
            raise _Refused("too deep")
        tuples += opcode.name in _TUPLES
        if tuples > _MOST_TUPLES:
            raise _Refused("too many tuples")
        previous = opcode.name


READER = recorder_reader("flight_pickle", sniff, parse)
