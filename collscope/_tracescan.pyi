"""Scanner of PyTorch profiler traces, native (native/tracescan): JSON text in, columns out.

Arrays are one-dimensional, contiguous and own their memory.
"""

from typing import Any

def scan(text: bytes, end: int, exact: bool, origin_us: int) -> dict[str, Any] | None:
    """Columns of the events before `end`, separated by commas; releases the GIL.

    None where something is not plain: no valid JSON in valid UTF-8, a value that the fields of
    `kineto_events` would refuse or convert, a number that a double does not hold, an escape in a
    key or category. What it takes, it takes as msgspec does.

    exact      times are counted from an origin on: the whole microseconds of the first one
    origin_us  the origin; 0: none yet
    raises     ValueError when the end lies behind the text

    - gpu: activities with usable times, in their order: kind i8 (`Kind`), name i32 (in names),
      stream i32 (in devices and streams), start_us f64, duration_us f64, correlation i64 (-1),
      seq i64 (-1), event i32 (number of the event in the text), begin i64, end i64 (in the text)
    - calls: of the runtime and driver, and flows: name i32 (in call_names; -1 a flow),
      thread i32 (in threads), start_us f64, duration_us f64 (-1), correlation i64
    - others: events to be read one by one (synchronisations, and operators and annotations that
      may tell of collectives or steps): event i32, begin i64, end i64
    - names, devices, streams, call_names, threads: lists of JSON values as they are written, in
      the order of their first use; empty where none is told. devices and streams are of one length
    - stream_first, thread_first: i32, the first event of each
    - bad: activities without usable times
    - origin_us: as given, or found
    - cpu: whether there is an operator of the host
    """
