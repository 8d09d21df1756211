"""Pickles of plain values as JSON; native (native/picklejson)."""

def convert(pickle: bytes, member: str = "", key: str = "", text: str = "") -> bytes | None:
    """JSON of a pickle; None of one that holds more than plain values, or is damaged.

    Nothing of the pickle is run. Tuples become arrays. Releases the GIL.
    member  leave it out of dictionaries whose `key` has the `text`
    """
