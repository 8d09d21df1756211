"""A GPU's clock against its host's, from pairs: the host sees a stamp after the GPU took it."""

from __future__ import annotations

# The clocks drift apart by some 10 ppm: within neighbouring windows by less than the margin.
_WINDOW_NS = 100_000_000
_MARGIN_NS = 50_000
_KEPT = 1024  # windows: 100 s


class GpuClock:
    """How far a host's clock is ahead of a GPU's, at most, in windows of the host's time.

    Times in ns. A host sees a stamp after the GPU took it: the smallest distance is the nearest.
    """

    def __init__(self) -> None:
        """Start without a pair."""
        self._ahead: dict[int, int] = {}

    def pair(self, gpu_ns: int, host_ns: int) -> None:
        """Take a stamp and when the host saw it; 0 where it did not."""
        if host_ns:
            window = host_ns // _WINDOW_NS
            self._ahead[window] = min(self._ahead.get(window, host_ns), host_ns - gpu_ns)

    def forget(self) -> None:
        """Keep the last windows only, for a recording that grows for days."""
        for window in sorted(self._ahead)[:-_KEPT]:
            del self._ahead[window]

    def precedes(self, gpu_ns: int, host_ns: int) -> bool:
        """Whether a stamp was surely taken before a time of the host."""
        window = host_ns // _WINDOW_NS
        near = [self._ahead[w] for w in range(window - 1, window + 2) if w in self._ahead]
        return bool(near) and gpu_ns + min(near) + _MARGIN_NS < host_ns
