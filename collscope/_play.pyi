"""A causal graph played by events; native (native/play)."""

import numpy as np
from numpy.typing import NDArray

def play(
    first: NDArray[np.int64],
    target: NDArray[np.int64],
    causes: NDArray[np.int64],
    trace: NDArray[np.int64],
    kernel: NDArray[np.int64],
    change: NDArray[np.int64],
    gap: NDArray[np.float64],
    work: NDArray[np.float64],
    pace: NDArray[np.float64],
    origin: int,
) -> NDArray[np.float64]:
    """When every node takes place, and behind them every row ends; ns, shape (nodes + rows,).

    first, target, causes, trace, kernel, change  as in `collscope.timeline.graph.Following`
    gap     (edges,) ns from a cause to its effect
    work    (rows,) ns that a compute kernel needs with no collective beside it
    pace    (rows,) how many times as long it needs beside one
    origin  node that takes place at 0

    The end of a row is that of a compute kernel that starts; 0 for others, and for nodes that
    nothing leads to. Releases the GIL. ValueError when lengths or numbers do not fit each other.
    """
