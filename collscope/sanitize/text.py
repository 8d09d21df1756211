"""Text without names: each token of it is known, or replaced (pure).

A token is what a pattern below finds, the first that fits. Numbers, times and sizes stay.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable

from collscope.sanitize.names import Names
from collscope.sanitize.words import known

_BIG = 1 << 40  # whole numbers from here on are times, sizes, addresses or random
_MOST_DIGITS = 4  # of a number in a path or a name that is no job's
_MOST_HEX = 6  # digits of a hexadecimal number that is no address: busId 1a000
_CACHED = 1 << 18

_IPV6 = (
    r"(?=[0-9a-fA-F:]*::|(?:[0-9a-fA-F]{1,4}:){7})[0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{0,4}){2,7}"
)
_PATTERNS = {
    "colour": r"\x1b\[[0-9;?]*[A-Za-z]",
    "date": r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?(?!\w)",
    # Behind these words a number may be all letters.
    "plain": r"(?:[oO]pCount|bus[iI]d)[ :=]+[0-9a-fA-F]+(?!\w)|\d+\[[0-9a-fA-F]{1,8}\](?!\w)",
    # host:pid:tid [device], with which NCCL's lines begin.
    "host": r"(?=[\w.-]*[^\W\d])[\w.-]+(?=:\d+:\d+(?:[ ]|$))",
    "url": r"[A-Za-z][A-Za-z0-9+.-]*://[^\s\"'<>)\]},;]+",
    "mac": r"[0-9a-fA-F]{2}(?:[:-][0-9a-fA-F]{2}){5,19}(?![\w:])",
    "uuid": r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?!\w)",
    "pci": r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-9a-fA-F])?(?![\w:])",
    "guid": r"[0-9a-fA-F]{4}(?::[0-9a-fA-F]{4}){3}(?![\w:])",
    "at": rf"[A-Za-z][\w.-]*:{_IPV6}(?![\w:])",
    "ipv6": rf"{_IPV6}(?![\w:])",
    "ipv4": r"\d{1,3}(?:\.\d{1,3}){3}(?![\w.]*\w)",
    "buffer": r"(?:sendbuff|recvbuff|acc|addr|base)(?:[ :=]+|[ ]:[ ])0x[0-9a-fA-F]+",
    # RCCL's recorder tells a split by the lower half of the new communicator's pointer.
    "upper": r"(?:new)?comm[ ]:[ ]0x[0-9a-fA-F]{9,16}(?!\w)",
    "hex": r"0x[0-9a-fA-F]+",
    "setting": r"(?:[A-Z][A-Z0-9]*_[A-Z0-9_]+|USER|LOGNAME|HOME|PWD|HOST|HOSTNAME|MAIL|PATH|SHELL|TMPDIR)=(?:\"[^\"]*\"|'[^']*'|[^\s\"',;)}\]]*)",
    "number_of": r"(?i:job|jobid|job_id|user|uid|gid|euid|account|array_task_id)[ :=#.-]{1,3}\d+(?![\w.]*\w)",
    "identity": r"(?i:\w*(?:hash|uniqueid|guid|handle|ptr|comm|commid))\"?[ :=]{1,3}\d{13,20}(?!\w)",
    "path": r"(?:~|\.{1,2}|[A-Za-z]:)?[/\\](?:[\w.+@%~=#-]+[/\\]?)+",
    "word": r"\w+(?:[-.@+]\w+)*",
    "other": r"[^\x00-\x7f]",
}
# Not in the middle of a word or an address; a host may follow the end of a torn line.
_TOKEN = "(?<![\\w:.])(?:{})|(?<![\\w.)\\]])(?P<path>{})|(?P<word>{})|(?P<other>{})"
_HOST_POSITION = re.compile(r"(?<=\bon)(\s+)([\w.-]+)(?=\s+device\b)")  # nccl-tests
_KEPT_SIGNS = set("（）：；，。、？～µ×·–—…→←↔≤≥±°²³§“”„’‘│─┌┐└┘├┤┬┴┼║═╔╗╚╝╠╣╦╩╬▏▎▍▌▋▊▉█")
_STANDARD_FOLDERS = set(
    "bin boot class conda devices dev dist-packages etc home include lib lib64 libexec local mnt opt"
    " proc root run sbin share shm site-packages sys tmp usr var log bus infiniband net pci".split()
)
_ENDINGS = set(
    "bz2 c cc clog collrec cpp cu csv cuh db dump err fr gz h hpp html inspector json jsonl log md"
    " out pickle pkl pt py rpd so sqlite tar tgz trace txt xml xz yaml yml zip zst".split()
)
# Programs by whose name readers know what was measured, and the libraries.
_PROGRAM = re.compile(
    r"[a-z_]+_perf|osu_[a-z_]+|nvbandwidth|rccl_replayer|TransferBench|(?:lib)?[nr]ccl[\w.-]*"
)
# The number of a rank in the name of a file, by which readers know its trace.
_RANK = re.compile(r"(?i:rank|worker|dump|pid)[._-]?\d{1,6}(?!\d)|v?\d{1,%d}" % _MOST_DIGITS)
# So do words by which they know files of profilers: accl_profiler_rank0_HOST, 7_kernel_trace.csv.
_RANKED = re.compile(
    r"((?<![A-Za-z])(?i:rank|worker|dump)[._-]?\d{1,6}(?!\d)|^accl_profiler(?=_)|"
    r"(?:(?<=_)|^)(?:kernel|memory_copy)_(?:stats|trace)$)"
)
_PROFILED = re.compile(r"(ncclprof-)(.+)(-\d+)")  # ncclprof-HOST-PID.txt
_LABELS = re.compile(r"([.@+_]+)")
_HEX_LIKE = re.compile(r"(?=[a-f]*\d)[0-9a-f]{7,}|(?=[A-F]*\d)[0-9A-F]{7,}")
_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")
_WORD = re.compile(r"\w+")
_NUMERIC = re.compile(r"[-+]?\d[\d_]*(?:[.-]\d+)*(?:[eE][-+]?\d+)?")
_VALUE = re.compile(r"\w[\w.@+-]*")
_LIBRARY_SETTING = re.compile(r"(?:NCCL|RCCL|TORCH_NCCL|MSCCL|MSCCLPP|CUDA|HIP|HSA)_")


class Text:
    """Replaces names in texts; equal names of all texts become equal ones."""

    def __init__(self, names: Names, kept: Iterable[str] = ()) -> None:
        """`kept` are phrases that stay where they stand whole: the kernels' names of a profile."""
        self.names = names
        self._cache: dict[str, str] = {}
        tokens = [f"(?P<{k}>{v})" for k, v in _PATTERNS.items() if k not in ("path", "word", "other")]
        whole = _TOKEN.format("|".join(tokens), *(_PATTERNS[k] for k in ("path", "word", "other")))
        phrases = sorted(set(kept), key=len, reverse=True)
        if phrases:
            escaped = "|".join(map(re.escape, phrases))
            whole = rf"(?<!\w)(?P<kept>{escaped})(?!\w)|{whole}"
        self._tokens = re.compile(whole)
        self._of: dict[str, Callable[[str], str]] = {
            "host": self.host, "url": self._url, "mac": self._digits, "uuid": self._digits,
            "guid": self._digits, "ipv6": self.address, "at": self._at, "ipv4": self.address,
            "buffer": self._buffer, "upper": self._upper, "hex": self._hex, "setting": self._setting,
            "number_of": self._trailing_number, "identity": self._trailing_number,
            "path": self.path, "word": self.word, "other": self._other,
        }  # fmt: skip

    def __call__(self, text: str) -> str:
        """The text with its names replaced."""
        return self._tokens.sub(self._replaced, text)

    def line(self, text: str) -> str:
        """A line, or several, of a log or a table."""
        text = _HOST_POSITION.sub(lambda found: found[1] + "\0" + found[2] + "\0", text)
        if "\0" not in text:
            return self(text)
        parts = re.split(r"\0([\w.-]+)\0(?=\s+device\b)", text)
        return "".join(self.host(p) if k % 2 else self(p) for k, p in enumerate(parts))

    def _replaced(self, found: re.Match[str]) -> str:
        token = found[0]
        new = self._cache.get(token)
        if new is None:
            replace = self._of.get(found.lastgroup or "")
            new = token if replace is None else replace(token)
            if len(self._cache) < _CACHED:
                self._cache[token] = new
        return new

    def host(self, host: str) -> str:
        """A host's name, each of its labels by itself; an address as such."""
        if _ADDRESS.fullmatch(host) or ":" in host:
            return self.address(host)
        return self._labels(host)

    def word(self, word: str) -> str:
        """A word, or several joined by dots: as it is where all of it is known."""
        if _ADDRESS.fullmatch(word):
            return self.address(word)
        if known(word) or _NUMERIC.fullmatch(word):
            return word
        if _HEX_LIKE.fullmatch(word):
            return self.names.hexadecimal(word)
        labels = re.split(r"([.@+])", word)
        if all(_stays(label) for label in labels[::2]):
            return word
        end = labels.pop() if len(labels) > 1 and labels[-1] in _ENDINGS else ""
        return self._labels("".join(labels)) + end

    def path(self, path: str) -> str:
        """A path: folders of the system, endings of files and numbers of ranks stay."""
        if re.fullmatch(r"[/\\]\w+", path) and known(path[1:]) and path[1:].isalpha():
            return path  # "per /iteration"
        parts = re.split(r"([/\\])", path)
        return "".join(part if k % 2 else self._part(part) for k, part in enumerate(parts))

    def address(self, text: str) -> str:
        """An address of the internet; what only looks like one as it is."""
        try:
            ipaddress.ip_address(text)
        except ValueError:
            return _WORD.sub(lambda found: self.word(found[0]), text)
        return self.names.address(text)

    def _at(self, text: str) -> str:
        """An interface and its address."""
        interface, _, address = text.partition(":")
        return f"{self.word(interface)}:{self.address(address)}"

    def number(self, digits: str) -> str:
        """A number that says who or where."""
        return self.names.number(digits)

    def _part(self, part: str) -> str:
        if _PROGRAM.fullmatch(part) and _stays(part):
            return part
        if part in _STANDARD_FOLDERS or part in ("", "~", ".", "..") or part.endswith(":"):
            return part
        if _ADDRESS.fullmatch(part):
            return self.address(part)
        *_, end = part.rpartition(".")
        body, dot = (part[: -len(end) - 1], ".") if "." in part and end in _ENDINGS else (part, "")
        if dot and not body:
            return part
        if (profiled := _PROFILED.fullmatch(body)) is not None:
            return f"{profiled[1]}{self._labels(profiled[2])}{profiled[3]}{dot}{end if dot else ''}"
        pieces = _RANKED.split(body)
        new = "".join(p if k % 2 else self._labels(p) for k, p in enumerate(pieces))
        return f"{new}{dot}{end}" if dot else new

    def _labels(self, text: str) -> str:
        """All words of a name replaced, known ones too; short numbers, ranks and endings stay."""
        parts = _LABELS.split(text)
        return "".join(part if k % 2 else self._label(part) for k, part in enumerate(parts))

    def _label(self, label: str) -> str:
        if len(label) < 2 or _RANK.fullmatch(label) or label in _ENDINGS:
            return label
        if label.isdecimal():
            return self.names.number(label)
        if label[:2] == "0x":
            return self._hex(label)
        if _HEX_LIKE.fullmatch(label):
            return self.names.hexadecimal(label)
        return self.names.name(label)

    def _url(self, url: str) -> str:
        scheme, sign, rest = url.partition("://")
        new = scheme if known(scheme) or scheme in ("http", "https", "tcp", "s3", "file") else None
        where, slash, path = rest.partition("/")
        host, colon, port = where.rpartition(":")
        if not port.isdecimal():
            host, colon, port = where, "", ""
        return (
            (new or self.names.name(scheme)) + sign + self.host(host) + colon + port + slash
            + "/".join(self._part(part) for part in re.split(r"[/?&=]", path))
        )  # fmt: skip

    def _digits(self, text: str) -> str:
        """Hexadecimal digits with signs between them, as one number."""
        digits = re.sub(r"[:-]", "", text)
        new = iter(self.names.hexadecimal(digits))
        return "".join(sign if sign in ":-" else next(new) for sign in text)

    def _hex(self, text: str) -> str:
        digits = text[2:]
        return text if len(digits.lstrip("0")) < _MOST_HEX else "0x" + self.names.hexadecimal(digits)

    def _upper(self, text: str) -> str:
        before, sign, digits = text.rpartition("0x")
        return before + sign + self.names.hexadecimal(digits[:-8]) + digits[-8:]

    def _buffer(self, text: str) -> str:
        before, sign, digits = text.rpartition("0x")
        return text if len(digits) < _MOST_HEX else before + sign + self.names.pointer(digits)

    def _setting(self, text: str) -> str:
        """An environment variable: of the libraries their own words and numbers stay."""
        name, sign, value = text.partition("=")
        if _LIBRARY_SETTING.match(name):
            return f"{name}{sign}{self(value)}"
        return f"{self.word(name)}{sign}{_VALUE.sub(lambda found: self._value(found[0]), value)}"

    def _value(self, value: str) -> str:
        """A word or a number of an environment variable that is not the libraries'."""
        return self.names.number(value) if value.isdecimal() else self._labels(value)

    def _trailing_number(self, text: str) -> str:
        found = re.search(r"\d+$", text)
        digits = found[0] if found else ""
        return text[: len(text) - len(digits)] + self.names.number(digits)

    @staticmethod
    def _other(sign: str) -> str:
        return sign if sign in _KEPT_SIGNS else "?"


def _stays(label: str) -> bool:
    if known(label) or _NUMERIC.fullmatch(label):
        return True
    parts = label.split("-")
    return len(parts) > 1 and all(p.isalpha() and known(p) for p in parts)
