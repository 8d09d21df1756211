"""Names, pointers, numbers and addresses as others of the same shape, by a secret (pure).

Two equal names become one, and two different ones stay different: the names of one shape, as
"five small letters, a dash, a digit", are numbered, and a secret permutation of these numbers gives
the new name. The permutation is one cycle, so no name stays what it was.
"""

from __future__ import annotations

import hashlib
import ipaddress
import math
import re
import secrets
from collections.abc import Callable

_ROUNDS = 8
_MOST_TAKEN = 64  # words of the libraries in a row that are passed over
_KEY_BYTES = 32
_CLASSES = ("abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789")
_HEX_CLASSES = ("abcdef0123456789", "ABCDEF0123456789")
_PLAIN = re.compile(r"[\x00-\x7f]*")
_TOP = 1 << 64
_SIGNED_TOP = 1 << 63


def new_key() -> bytes:
    """A secret that nobody has."""
    return secrets.token_bytes(_KEY_BYTES)


class Names:
    """Replacements under one secret."""

    def __init__(self, key: bytes, taken: Callable[[str], bool] = lambda _: False) -> None:
        """`taken` is true of a word that must not stand for a name, as a reader would act on it."""
        self._key = hashlib.blake2b(key, digest_size=_KEY_BYTES).digest()
        self._taken = taken
        self.replaced: dict[str, str] = {}  # names so far

    def name(self, name: str) -> str:
        """Another name: letters as letters, digits as digits, all else unchanged."""
        new = self.replaced.get(name)
        if new is None:
            new = self.replaced[name] = self._name(name)
        return new

    def _name(self, name: str) -> str:
        if not _PLAIN.fullmatch(name):
            return "x" + self._letters(name)
        places = [next((c for c in _CLASSES if letter in c), letter) for letter in name]
        new = self._permuted(name, places)
        # Of a shape like h200x2 every word is known: then one of them must do.
        for _ in range(_MOST_TAKEN):
            if not self._taken(new):
                break
            new = self._permuted(new, places)
        return new

    def hexadecimal(self, digits: str) -> str:
        """As many other hexadecimal digits; the first is zero only where it was."""
        if not digits.strip("0") or not digits.strip("fF"):
            return digits  # none, and all ones: what programs write for no value
        alphabet = _HEX_CLASSES[digits != digits.lower()]
        body = digits.lstrip("0")
        places = [alphabet.replace("0", ""), *[alphabet] * (len(body) - 1)]
        folded = body.lower() if alphabet.islower() else body.upper()
        return digits[: len(digits) - len(body)] + self._permuted(folded, places)

    def pointer(self, digits: str) -> str:
        """A pointer into a buffer, hexadecimal, moved: what lay 4096 bytes apart still does.

        Readers find calls in place by the distance of two buffers.
        """
        width = len(digits)
        half = 1 << (4 * width - 1)  # pointers with and without their first bit move toward it
        value = int(digits, 16)
        least = 1 << (4 * width - 4)
        if value < least:
            return digits
        low = value < half
        room = half if low else half - least
        moved = int.from_bytes(self._digest(b"pointer", f"{width} {low}".encode()), "big")
        value += moved % room * (1 if low else -1)
        return f"{value:0{width}x}"

    def number(self, digits: str) -> str:
        """Another number of as many decimal digits, which fits in 64 bits where it did."""
        value, width = int(digits), len(digits)
        if digits[0] == "0":
            return self._permuted(digits, ["0123456789"] * width)
        low, high = 10 ** (width - 1), 10**width
        for top in (_SIGNED_TOP, _TOP):
            if value < top < high:
                high = top
                break
            if low < top <= value:
                low = top
        return str(low + self._next(value - low, high - low, f"number {low} {high}"))

    def address(self, text: str) -> str:
        """Another valid IPv4 or IPv6 address; those of no host, and of this one, stay."""
        address = ipaddress.ip_address(text)
        if address.is_loopback or address.is_unspecified or address.is_multicast:
            return text
        if address.version == 6:
            tail = int.from_bytes(self._digest(b"ipv6", address.packed)[:15], "big")
            return str(ipaddress.IPv6Address((0xFD << 120) | tail))
        value = int(address)
        while True:
            value = self._next(value, 1 << 32, "ipv4")
            new = ipaddress.IPv4Address(value)
            if 1 <= value >> 24 <= 223 and not new.is_loopback:
                return str(new)

    def digest(self, text: str) -> str:
        """64 hexadecimal digits of a text, that only the secret gives."""
        return hashlib.blake2b(text.encode(), key=self._key, digest_size=32).hexdigest()

    def _letters(self, name: str) -> str:
        value = int.from_bytes(
            self._digest(b"letters", name.encode("utf-8", "surrogatepass")), "big"
        )
        return "".join(_CLASSES[0][value // 26**k % 26] for k in range(15))

    def _digest(self, *parts: bytes) -> bytes:
        made = hashlib.blake2b(b"\0".join(parts), key=self._key, digest_size=_KEY_BYTES)
        return made.digest()

    def _permuted(self, text: str, places: list[str]) -> str:
        """The next text of the cycle over all that `places` allow; a place of one letter stays."""
        value = 0
        size = 1
        for letter, alphabet in zip(text, places, strict=True):
            value = value * len(alphabet) + alphabet.index(letter)
            size *= len(alphabet)
        if size == 1:
            return text
        value = self._next(value, size, "\0".join(places))
        letters = []
        for alphabet in reversed(places):
            value, at = divmod(value, len(alphabet))
            letters.append(alphabet[at])
        return "".join(reversed(letters))

    def _next(self, value: int, size: int, what: str) -> int:
        """The number behind another one in a secret cycle of all numbers below `size`."""
        return self._walked((self._walked(value, size, what, back=True) + 1) % size, size, what)

    def _walked(self, value: int, size: int, what: str, *, back: bool = False) -> int:
        """A permutation of the numbers below `size`, or its inverse: a Feistel network over a

        square that holds them, walked until it is below `size` again (Black and Rogaway, "Ciphers
        with arbitrary finite domains", 2002).
        """
        side = math.isqrt(size - 1) + 1
        rounds = range(_ROUNDS)
        while True:
            left, right = divmod(value, side)
            for at in reversed(rounds) if back else rounds:
                if back:
                    left, right = (right - self._round(left, side, what, at)) % side, left
                else:
                    left, right = right, (left + self._round(right, side, what, at)) % side
            value = left * side + right
            if value < size:
                return value

    def _round(self, half: int, side: int, what: str, at: int) -> int:
        wide = (side.bit_length() + 7) // 8 + 8
        made = b""
        for block in range(0, wide, 64):
            text = f"{what}|{side}|{at}|{half}|{block}".encode()
            made += hashlib.blake2b(text, key=self._key, digest_size=min(64, wide - block)).digest()
        return int.from_bytes(made, "big") % side
