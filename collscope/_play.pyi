"""A causal graph played by events; native (native/play)."""

import numpy as np
from numpy.typing import NDArray

class Player:
    """Plays a network with one set of durations after another.

    Nodes count as in `collscope.timeline.graph.Graph.before`: 0 never takes place, and 1 does at 0.
    Behind all nodes count the ends of rows: those of compute kernels are used. A place is the
    number of a node less 2.
    """

    def __init__(
        self,
        first: NDArray[np.int64],
        target: NDArray[np.int64],
        lasted: NDArray[np.int64],
        host: NDArray[np.bool_],
        gap: NDArray[np.float64],
        unexplained: NDArray[np.float64],
        trace: NDArray[np.int64],
        kernel: NDArray[np.int64],
        change: NDArray[np.int64],
        part: NDArray[np.int64],
        parts: int,
    ) -> None:
        """Read a network; ValueError when lengths or numbers do not fit each other.

        first        (nodes + rows + 1,) where the edges of each begin
        target       (edges,) node that waits; its number is larger than that of its cause
        lasted       (edges,) row whose duration passes, too; -1: none
        host         (edges,) so does the work of the host, and a part's transfer
        gap          (edges,) ns from a cause to its effect
        unexplained  (edges,) the part of it that has no known cause
        trace        (nodes + rows,) whose GPU it is
        kernel       (nodes,) row of a compute kernel that starts here; -1: none does
        change       (nodes,) 1 where a collective comes to its GPU, -1 where it leaves, else 0
        part         (nodes,) part of a collective that ends here; -1: none
        parts        number of these
        """

    def play(
        self,
        work: NDArray[np.float64],
        lasting: NDArray[np.float64],
        transfer: NDArray[np.float64],
        alone: NDArray[np.float64],
        pace: NDArray[np.float64],
        unexplained: float = 1.0,
        at_once: NDArray[np.bool_] | None = None,
        behind_host: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.float64]:
        """When every node takes place, and behind them every row ends; ns, shape (nodes + rows,).

        work         (places,) ns of the host
        lasting      (rows,) ns of rows that are no compute kernels
        transfer     (parts,) ns
        alone        (rows,) ns that a compute kernel needs with no collective beside it
        pace         (rows,) how many times as long it needs beside one
        unexplained  of what has no known cause, in parts
        at_once      (places,) starts without a gap, but behind the host
        behind_host  (places,) waits for the host alone

        The end of a row is that of a compute kernel that starts; 0 for others, and for nodes that
        nothing leads to. Releases the GIL. ValueError when lengths do not fit the network.
        """
