"""Reading one array of a large JSON document in slices, whatever state the document is in.

A slice is cut at a place that looks like a boundary between two elements and decoded. A wrong cut
cannot pass unnoticed: inside an element, brackets stay open and decoding fails. Then the slice is
read element by element, which also skips what is malformed and finds the end of the array.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

T = TypeVar("T")
S = TypeVar("S")

_SLICE = 2 << 20  # bytes taken at once: larger ones leave the processor's cache
# Bytes that one element may have, and that a document may hold before its array, or after it.
LARGEST = 64 << 20
_OPENING = 1024  # bytes an opening has at most
_TRIES = 2  # cuts tried before reading element by element
_MERGES = 4096  # boundaries looked at for the end of one element
_TRIED = 16  # of them, tried even where braces are open
# Between two elements, or after the last one of an array. Both also occur inside elements.
_BOUNDARY = re.compile(rb"\}\s*(?:,\s*(?=\{)|,?\s*\](?=\s*(?:[,}]|\Z)))")
_BLANK = b" \t\r\n"
_SEPARATOR = _BLANK + b","
_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class ArrayReader(Generic[T, S]):
    """Elements of one array of a document that arrives in chunks.

    After the last element: `head` and `tail` are the text before and after the array, `malformed`
    counts elements that could not be decoded, `deep` those nested too deep for a reader, `large`
    shows whether more than `LARGEST` bytes had to be left out in one piece, and `cut` whether the
    array's end is missing.
    """

    def __init__(
        self,
        chunks: Iterable[bytes],
        opening: re.Pattern[bytes],
        element_type: Callable[[bytes], type[T]],
        scan: Callable[[bytes, int], S | None] | None = None,
    ) -> None:
        """Read the array behind the first match of a pattern.

        opening       matches up to and with the array's ``[``
        element_type  gives the type of an element for the beginning of the array's text
        scan          takes the elements of a text up to a place; None where it does not, and
                      wherever a decoder of the element type would not
        """
        self.head = b""
        self.tail = b""
        self.malformed = 0
        self.deep = 0
        self.large = False
        self.cut = True
        self._chunks = chunks
        self._opening = opening
        self._element_type = element_type
        self._scan = scan
        self._text = b""  # not taken yet
        self._opened = False
        self._searched = 0  # bytes of the text without the opening

    def __iter__(self) -> Iterator[S | list[T]]:
        """Elements, a slice at a time."""
        held: list[bytes | memoryview] = []
        size = 0
        for piece in _pieces(self._chunks):
            held.append(piece)
            size += len(piece)
            if size < _SLICE:
                continue
            if self.cut:
                self._text, held = b"".join([self._text, *held]), []
                if self._open():
                    yield from self._take(last=False)
                    size = len(self._text)
                    continue
            if size > LARGEST:
                self.large = self.cut
                break
        self._text = b"".join([self._text, *held])
        if not self._open():
            self.head = self._text
        elif self.cut:
            yield from self._take(last=True)
        self.tail = b"" if self.cut else self._text

    def _open(self) -> bool:
        """Find the array's beginning, if not yet done; decoders are chosen there."""
        if self._opened:
            return True
        found = self._opening.search(self._text, self._searched)
        if found is None:
            self._searched = max(0, len(self._text) - _OPENING)
            return False
        self.head = self._text[: found.start()]
        self._text = self._text[found.end() :]
        kind = self._element_type(self._text[:65536])
        # Not strict: numbers may be in quotes.
        self._many = msgspec.json.Decoder(list[kind], strict=False)  # type: ignore[valid-type]
        self._one = msgspec.json.Decoder(kind, strict=False)
        self._opened = True
        return True

    def _take(self, *, last: bool) -> Iterator[S | list[T]]:
        """Decode and remove what the text holds of whole elements."""
        text = self._text
        for cut, rest, ends in self._cuts(text, last=last):
            found: S | list[T] | None = None if self._scan is None else self._scan(text, cut)
            if found is None:
                try:
                    found = self._many.decode(b"[" + text[:cut] + b"]")
                except _ERRORS:
                    continue
            self.cut = not ends
            self._text = text[rest:]
            yield found
            break
        else:
            yield self._one_by_one(text, last=last)
        if last and self.cut:
            yield self._unclosed()

    def _unclosed(self) -> list[T]:
        """The last element of an array that was cut right after it, or never closed."""
        try:
            return [self._one.decode(self._text.strip(_SEPARATOR))]
        except RecursionError:  # nested too deep: the array may well end behind it
            return self._one_by_one(self._text, last=True)
        except _ERRORS:
            return []

    @staticmethod
    def _cuts(text: bytes, *, last: bool) -> Iterator[tuple[int, int, bool]]:
        """Likely cuts: end of the elements, begin of the rest, whether the array ends there."""
        if last:
            tries, place = 0, len(text)
            while tries < _TRIES and (place := text.rfind(b"]", 0, place)) >= 0:
                low = max(0, place - 64)
                cut = low + len(text[low:place].rstrip(_SEPARATOR))
                after = text[place + 1 : place + 64].lstrip(_BLANK)[:1]
                if text[cut - 1 : cut] in (b"}", b"") and after in (b"", b",", b"}"):
                    tries += 1
                    yield cut, place + 1, True
        tries, place = 0, len(text)
        while tries < _TRIES and (place := text.rfind(b"{", 0, place)) > 0:
            low = max(0, place - 64)
            before = text[low:place].rstrip(_BLANK)
            cut = low + len(before[:-1].rstrip(_BLANK))
            if before[-1:] == b"," and text[cut - 1 : cut] == b"}":
                tries += 1
                yield cut, place, False

    def _one_by_one(self, text: bytes, *, last: bool) -> list[T]:
        """Decode element by element; what does not decode is counted and left out."""
        found: list[T] = []
        bounds = [(m.start() + 1, m.end(), m[0].endswith(b"]")) for m in _BOUNDARY.finditer(text)]
        start = index = 0
        aligned = True  # the text at `start` begins an element of the array, not one inside it
        while index < len(bounds) and self.cut:
            element, used, deep = self._element(text, start, bounds, index)
            self.deep += deep
            if used > len(bounds) - index and not last:
                break  # its other end is yet to come
            if element is not None:
                found.append(element)
            elif not deep:
                self.malformed += 1
            complete = 0 < used <= len(bounds) - index
            aligned = complete and (aligned or element is not None)
            index += used if complete else 1
            _, start, ends = bounds[index - 1]
            self.cut = not (aligned and ends)
        self._text = text[start:]
        if start == 0 and len(text) > LARGEST:
            self._text = b""
            self.large = True
        return found

    def _element(
        self, text: bytes, start: int, bounds: list[tuple[int, int, bool]], index: int
    ) -> tuple[T | None, int, bool]:
        """The element that starts here, how many boundaries it takes from `index` on, and whether
        it is nested too deep to be read.

        The element is None when its fields have wrong types. The number is 0 when the text is no
        JSON, and one more than there are when it is not complete.
        """
        decode: Callable[[bytes], T | None] = self._one.decode
        depth, seen = 0, start
        most = min(len(bounds) - index, _MERGES)
        for used in range(1, most + 1):
            end = bounds[index + used - 1][0]
            depth += text.count(b"{", seen, end) - text.count(b"}", seen, end)
            seen = end
            # Braces in strings may make the depth wrong, so the first ends are tried anyway.
            if depth and used > _TRIED:
                continue
            problem, element = _attempt(decode, text[start:end])
            if problem is _Problem.TYPE:
                decode = _syntax_only
                problem, element = _attempt(decode, text[start:end])
            if problem is None:
                return element, used, False
            if problem is _Problem.DEEP and depth == 0:
                return None, used, True
            if problem is _Problem.SYNTAX:
                return None, 0, False
        return None, most + 1, False


def _pieces(chunks: Iterable[bytes]) -> Iterator[memoryview]:
    """The same text in parts of a slice at most."""
    for chunk in chunks:
        view = memoryview(chunk)
        for start in range(0, len(view), _SLICE):
            yield view[start : start + _SLICE]


class _Problem(Enum):
    TYPE = "a field of another type"
    OPEN = "ends inside the element"
    SYNTAX = "not JSON"
    DEEP = "nested deeper than a reader goes"


def _attempt(decode: Callable[[bytes], T | None], text: bytes) -> tuple[_Problem | None, T | None]:
    try:
        return None, decode(text)
    except msgspec.ValidationError:
        return _Problem.TYPE, None
    except RecursionError:
        return _Problem.DEEP, None
    except _ERRORS as error:
        return _Problem.OPEN if "truncated" in str(error) else _Problem.SYNTAX, None


def _syntax_only(text: bytes) -> None:
    msgspec.json.decode(text, type=msgspec.Raw)
