"""Every tolerance of the timeline: what it bounds, its value, and where the value comes from.

Times are ns. A share is a part of 1. Where the source is a recording, it is one of H200s with
PyTorch 2.11 and NCCL 2.28; the other sources are a library's code or documents, physics, or
a choice, which says what a larger or a smaller value would do.
"""

from __future__ import annotations

# Causes: what waited for what.

HOST_WAKE_NS = 60_000
"""From the end of what a host waited for to its next step. Source: recordings, an interrupt and a
switch of threads."""

HOST_SYNC_NS = 5_000
"""A synchronising call that finds nothing to wait for. Source: recordings."""

HOST_IDLE_SYNC_NS = 100_000
"""A host that launches nothing for longer, while its GPU drains, waits for it. Source: a choice,
well above `HOST_WAKE_NS` and the time between two launches."""

LAUNCH_QUEUE = 1_000
"""Launches in a queue that is full. Source: recordings of full ones, of 1022 to 1024 (CUDA)."""

SLOW_LAUNCH_NS = 20_000
"""A launch that takes longer waited for something. Source: recordings, 3 to 8 us else."""

STAMP_OVERLAP_NS = 2_000
"""By which a row may start before what it waits for has ended. Source: a clock's grain, and stamps
of rows of one stream that overlap."""

EVENT_WAKE_NS = 12_000
"""From the end of a row to the start of one that waited for its event. Source: recordings, no
runtime takes longer."""

EXPLAINED_NS = 20_000
"""From the last known cause of a row to its start, where that cause held it up. Source: a choice,
above `EVENT_WAKE_NS` and the latency of a launch."""

USUAL_DELAY_NS = 2_000
"""From a cause to a row, where no row shows it. Source: recordings, rows of one stream."""

MAX_CONTRADICTED = 0.02
"""Share of a rule's occurrences that recorded times contradict. Source: a choice, stamps that are
wrong now and then."""

MIN_OTHER_STREAM = 0.5
"""Share of a rule's rows that are of another stream than the one that waits. Source: a majority."""

MIN_RECURRING_NAMES = 0.9
"""Share of a stream's rows with the name of the row one step before. Source: a choice, steps that
log or save now and then."""

CALLS_AROUND_WAIT = (6, 3)
"""Calls before and behind a wait that tell what it is for. Source: PyTorch records, waits and
launches within so many."""

CALLS_AHEAD_TO_COLLECTIVE = 3
"""Calls from a wait to the launch of the collective that it is for. Source: as before."""

LIBRARY_CALLS = 2
"""Calls behind a collective's launch in which the library waits for itself: a record and a wait.
Source: NCCL's launch of a kernel."""

STREAMS_AHEAD = 3
"""Streams that a thread launches on next, of which a wait may be for one. Source: a choice, that of
compute, of collectives and of copies."""

MAX_RECORDS_BACK = 16
"""Records of events back that a wait's own is looked for. Source: a choice, further ones explain no
more starts in the recordings."""

MAX_RECORDED_ROWS_BACK = 3
"""Rows with a record back on one stream that a wait's own is looked for. Source: a choice."""

MAX_COLLECTIVES_BACK = 24
"""Collectives back that the first of a stream's waits may be for, where works are waited for in the
order of their launches. Source: a choice, above what one step launches at once."""

SHORTEST_LAUNCHES = 0.01
"""Quantile of the times from a launch to its row that is the least latency. Source: a choice, the
shortest itself may be a wrong stamp."""

MIN_ROWS_OF_NAME = 3
"""Rows of a name whose median delay stands for the name. Source: fewer have no median."""

# Late ranks.

MAX_LATENESS_HOPS = 8
"""Ranks over which lateness is handed on; what is left then stays where it is. Source: a choice,
above the dimensions of a job's parallelism."""

MIN_LATE_SHARE = 0.1
"""Share of all lateness from which a rank's first cause is looked for. Source: a choice, less is
not worth a sentence."""
