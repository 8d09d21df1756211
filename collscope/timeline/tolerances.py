"""Every tolerance of the timeline: what it bounds, its value, and where the value comes from.

Times are ns. A share is a part of 1. Recordings are those of H200s with PyTorch 2.11 and NCCL 2.28.
"A choice" has a reason and no measurement. How far the ends of one call lie from each other stands
in `collscope.match.tolerances`.
"""

from __future__ import annotations

# Clocks.

CLOCK_ROUNDS = 4
"""Rounds in which offsets, and drifts, are polished. Source: a choice, further ones change
little."""

MIN_WAIT_TO_ERROR = 10.0
"""A rank that comes before the last one by so many errors of the clocks, and leaves with it, waited
for it. Of two ranks, it leaves within such a part of its wait. Source: a rank that leaves at any
moment does so one time in five at most."""

MIN_RECEIVED = 2
"""Calls of one class in which it does so, and none in which it leaves at another moment. Source: a
choice, one may be chance."""

CLOCK_STEP_NS = 0.5
"""A step of all offsets that ends the polishing. Source: stamps are whole ns."""

END_NOISE_NS = 5_000
"""By which ends differ whatever a call lasts: shorter calls weigh no more. Source: recordings, the
median spread of the ends of a call is 4.3 us."""

FEW_ENDS_ERROR = 0.1
"""Error of a clock that rests on one end, as a part of the shortest transfer. Source: as of
`END_SCATTER_SHARE`; few ends agree by chance."""

DRIFT_BINS = 16
"""Stretches of a trace whose median ends show a drift. Source: a choice."""

MIN_ENDS_PER_BIN = 4
"""Ends in each of these, on average, for a drift to be looked for. Source: a choice, fewer have no
median."""

MIN_SLOPE_TO_NOISE = 5
"""Slope of the ends to its own error, for a drift. Source: a choice, five standard deviations."""

MIN_DRIFT_TO_SPREAD = 3
"""What a drift adds up to over the trace, to the spread of the ends. Source: a choice, less would
change no wait."""

MAX_PLAUSIBLE_DRIFT = 1e-3
"""Drift of a clock that a computer may have, ns per ns. Source: crystals differ by 200 parts in a
million at most, and NTP slews a clock by 500 at most."""

MIN_CLOCK_JUMP_NS = 100_000
"""A jump of a clock. Source: crystals drift by 100 us a second at most, which a trace's half
shows."""

MIN_JUMP_TO_SCATTER = 10
"""A jump to the scatter of the ends on either side. Source: a choice, ends of one kind of call
scatter by far less than a tenth of a jump."""

MIN_ENDS_BESIDE_JUMP = 8
"""Ends on either side of a jump. Source: a choice, fewer have no level."""

JUMP_PLACES = 64
"""Places in a trace at which a jump is looked for. Source: a choice, the cost rises with them."""

JUMP_CANDIDATES = 4
"""Of these, those where the ends before and behind differ most. Source: as before."""

# Waiting and transfer.

WARM_UP_CALLS = 3
"""First calls of a group that may be its warm-up. Source: a choice, connections are made in the
first call of a kind."""

WARM_UP_FACTOR = 10
"""What such a call lasts, to the usual one of its class. Source: a choice, making connections takes
ms, and slow calls of a job are not that slow."""

MAX_FORM_DIFFERENCE = 0.1
"""Difference of the two forms of a call's transfer, as a part of the longer. Source: as of
`END_SCATTER_SHARE`."""

MAX_HELD_UP_CALLS = 2
"""Calls that one rank seems able to leave before another came. Source: another process on its GPU
may hold up a rank at the end of a call, but not of several."""

CALLS_PER_HELD_UP = 20
"""Calls among which one such may be. Source: as before, and not one in twenty."""

ROWS_PER_EXCEPTION = 100
"""Rows among which one may lack its launch, and calls among which one may be impossible. Source: a
choice, profilers lose records at either end of a trace."""

MAX_QUEUED_IDLE_NS = 30_000
"""Time in which a GPU runs nothing though its next work was launched. Source: recordings,
168 traces of 84 jobs: 2.4 us in nine of ten, 9 us at most but beside another process on the GPU."""

MAX_QUEUED_IDLE_SHARE = 0.02
"""Longer ones together, as a part of the traced time. Source: a choice, what moves a figure by less
than the other doubts do."""

# Exchanges: Sends and Recvs that were paired by the clock.

MIN_EXCHANGE_PAIRS_SHARE = 0.2
"""Share of the kernels of two ranks that meet, of ranks that exchange. Source: a choice, a rank
exchanges with a few others in turn."""

MIN_EXCHANGE_PAIRS = 3
"""Kernels of two ranks that meet, at least. Source: a choice, fewer may by chance."""

DRAIN_SHARE = 0.5
"""By which a receiver may end later: it copies what its sender left in the buffer; as a part of an
exchange that waits for nobody. Source: a choice."""

UNDELAYED_QUANTILE = 0.05
"""Quantile of the kernels' times that is an exchange which waits for nobody. Source: a choice, one
in twenty finds its partner there."""

NEIGHBOURS_TRIED = 16
"""Kernels that end next, of whatever rank, among which a partner is. Source: a choice, twice the
GPUs of a node."""

EXCHANGE_ROUNDS = 3
"""Rounds of pairing kernels that are each other's nearest. Source: a choice, the last finds few."""

# Steps.

MIN_RECURRING_COLLECTIVES = 0.98
"""Share of the collectives that recur after a period. Source: a choice, a job logs or saves now and
then."""

SETTLING_PART = 4
"""The first of so many parts of a trace may be initialisation, and shows no period. Source: a
choice."""

MIN_IN_GRAPHS = 0.9
"""Part of the rows of a trace that graphs launch, where graphs make the steps. Source: a choice."""

PERIODS_TRIED = 32
"""Distances between like collectives, or launches, that may be a step. Source: a choice, layers of
one kind."""

MAX_LAUNCH_SPREAD = 0.02
"""By which steps may differ in their launches, as a part. Source: 200 recordings, by 0.5 %."""

MIN_TURNS_TAKEN = 3
"""Parts of a trace that show two models in turns. Source: a choice, of three one comes twice."""

EDGE_LAUNCHES = 4
"""Launches of the host's other threads that may fall in the step beside theirs. Source: a
choice."""

MIN_LAYER_KERNELS = 0.5
"""Share of a step's kernels that are of layers. Source: 200 recordings, 0.67 to 1."""

MAX_PAUSE_RATIO = 2
"""A pause of the host between steps, to the usual one. Source: a choice."""

PAUSE_SLACK_NS = 5_000
"""And by how much more. Source: a choice, as long as a launch takes."""

MAX_PLAIN_STEPS = 32
"""Steps of a trace that have no layers, no optimizer and no backward kernels: more are layers.
Source: a choice; eager decoding on two H100 recorded 192 layers in 8 steps."""

MIN_PAUSE_STEPS = 0.8
"""Time without a row on any rank, as a part of a step: a pause between two profiled periods.
Source: a choice, no step idles for most of its time."""

MIN_PAUSE_TO_IDLE = 4
"""The same to the longest idle time of a usual step in one piece. Source: a choice."""

MAX_LONE_STEP_LEAD = 0.05
"""Part of a lone marked step that may pass before its first kernel. Source: a choice, a host that
loads data takes longer."""

MAX_STEP_RATIO = 1.25
"""Mean steps of ranks that meet in every step. Source: they are equal; one step more or less waited
for at either end of a few is no contradiction yet."""

# Causes: what waited for what.

HOST_WAKE_NS = 60_000
"""From the end of what a host waited for to its next step. Source: a choice, above the time of an
interrupt and a switch of threads."""

HOST_SYNC_NS = 5_000
"""A synchronising call that finds nothing to wait for. Source: a choice, about as long as a
launch."""

HOST_IDLE_SYNC_NS = 100_000
"""A host that launches nothing for longer, while its GPU drains, waits for it. Source: a choice,
well above `HOST_WAKE_NS` and the time between two launches."""

LAUNCH_QUEUE = 1_000
"""Launches in a queue that is full. Source: recordings of full ones, of 1022 to 1024 (CUDA)."""

SLOW_LAUNCH_NS = 20_000
"""A launch that takes longer waited for something. Source: recordings, of 425 000 launches half
take less than 6 us, and 1 % more than 22."""

STAMP_OVERLAP_NS = 2_000
"""By which a row may start before what it waits for has ended. Source: a clock's grain, and stamps
of rows of one stream that overlap."""

EVENT_WAKE_NS = 12_000
"""From the end of a row to the start of one that waited for its event. Source: a choice, no runtime
is known to take longer."""

EXPLAINED_NS = 20_000
"""From the last known cause of a row to its start, where that cause held it up. Source: a choice,
above `EVENT_WAKE_NS` and the latency of a launch."""

USUAL_DELAY_NS = 2_000
"""From a cause to a row, where no row shows it. Source: a choice."""

MAX_CONTRADICTED = 0.02
"""Share of a rule's occurrences that recorded times contradict. Source: a choice, stamps that are
wrong now and then."""

MIN_OTHER_STREAM = 0.5
"""Share of a rule's rows that are of another stream than the one that waits. Source: a majority."""

MIN_RECURRING_NAMES = 0.9
"""Share of a stream's rows with the name of the row one step before. Source: a choice, steps that
log or save now and then."""

CALLS_AROUND_WAIT = (6, 3)
"""Calls before and behind a wait that show what it is for. Source: a choice, PyTorch records, waits
and launches within so many."""

CALLS_AHEAD_TO_COLLECTIVE = 3
"""Calls from a wait to the launch of the collective that it is for. Source: as before."""

LIBRARY_CALLS = 2
"""Calls behind a collective's launch in which the library waits for itself: a record and a wait.
Source: traces of NCCL."""

STREAMS_AHEAD = 3
"""Streams that a thread launches on next: a wait may be for any of them. Source: a choice, those of
compute, of collectives and of copies."""

MAX_RECORDS_BACK = 16
"""Records of events back that a wait's own is looked for. Source: a choice, what a step of nested
modules records meanwhile."""

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

MIN_LATE_CALLS = 3
"""Calls that a straggler is late to. Source: a choice, once or twice is chance."""

MIN_LATENESS_TO_CLOCK_ERROR = 3
"""Typical lateness to the error of the rank's clock. Source: a choice, three standard
deviations."""

MIN_EVEN_SHARES = 3
"""A straggler's share of all lateness, in even shares of all ranks. Source: a choice, no chance."""

STRAGGLER_SHARE = 0.75
"""Share of all lateness that names who is late, however few the ranks are. Source: a choice, three
times what all others have."""

FREQUENT_STRAGGLER_SHARE = 2 / 3
"""The same of a rank that also arrives last twice as often as an even share. Source: a choice,
twice what all others have."""

MIN_SHARE_BESIDE_STOP = 0.25
"""Share of all lateness of a rank that is named although another one stopped once. Source: a
choice; with less, the stop is what costs the time."""

MIN_LATE_COST = 0.01
"""What a straggler costs, as a part of the ranks' time in calls. Source: a choice, less is not
worth a finding."""

MAX_LATENESS_HOPS = 8
"""Ranks over which lateness is handed on; what is left then stays where it is. Source: a choice,
above the dimensions of a job's parallelism."""

MIN_LATE_SHARE = 0.1
"""Share of all lateness from which a rank's first cause is looked for. Source: a choice, less is
not worth a sentence."""

# Compute beside collectives.

MAX_BESIDE_ALONE = 0.1
"""Share of a kernel's time with a collective beside it that still ran alone. Source: a choice."""

MIN_BESIDE = 0.9
"""Share of a kernel's time with a collective beside it that ran beside one. Source: a choice."""

MIN_PAIRED_TIME = 0.05
"""Share of the kernels' time that ran both alone and beside a collective, for a slowdown. Source: a
choice, less stands for too few kernels."""

SLOWDOWN_PRIOR = 0.4
"""Most that collectives slow down a job's compute beside them, where the record does not show it.

Source: arXiv 2507.03114, training on A100, H100, MI250, MI210: 19 % on average, 40 % at most.
"""

CLOCK_EXPONENT = 0.67
"""At its power cap a GPU's clock follows what power a change spares: the exponent of the ratio of
two steps. Source: docs/validation.md, 2 x H200: steps 1.26 x as long with two channels, clock from
1667 to 1950 MHz."""

MAX_CLOCK_RATIO = 1.19
"""By which a clock may rise so. Source: as before, from 1667 MHz to 1980, which is the most."""

# The host without the profiler.

HOST_PRIOR = {"light": (0.6, 1.0), "full": (0.4, 0.95), "other": (0.4, 1.0)}
"""Time of the host's work without the profiler, in parts of that with it.

Source: a loop of small launches on 4 x H200, torch 2.11 (`benchmarks/gpu/jobs.py`, `calibrate`), in
twelve starts: 0.89 to 1.31 x as long with CUDA activities, 1.07 to 1.52 x with CPU activities too;
a step of 3.16 s took 6.17 with the latter (kineto's issues). The least cost measured is the upper
end, but no profiler makes a host faster; the lower one lies below the most: ranks that share a
host's cores bear more. What other profilers cost was not measured: both ranges together. They
record calls and kernels, as PyTorch's does without CPU activities, so that the middle is the one of
that.
"""

HOST_PACES = (0.02, 0.2, 0.4, 0.55, 0.7, 0.85, 1.0)
"""Paces of the host at which a step is played, to find that of a given step. Source: a choice,
between two of them the step is close to a line."""

MAX_PACE_SPREAD = 0.2
"""Spread of the paces that explain a given step, for one pace to be known. Source: a choice, with
more the GPU bounds the step."""

GIVEN_STEP_ERROR = 0.02
"""Error of a step time that is given. Source: a choice, a mean over some steps."""

MIN_STEP_REST = 0.1
"""Part of the recorded step by which a given one is longer than any pace explains. Source: a
choice, more than another start (`STARTS`)."""

MAX_IDLE = 0.1
"""Part of the step without a known cause; more of it widens the range. Source: a choice."""

MAX_UNEXPLAINED = 0.5
"""Part of the step without a known cause; with more of it the answer is a range alone. Source: a
majority, most of the step is then not what was played."""

HOST_STARTS = 0.3
"""Ratio of a host's paces in two starts of one job, less 1: nine of ten pairs lie within it.
Source: docs/validation.md, "Cost of the profiler", steps of host-bound jobs in pairs of starts of
one setting."""

STARTS = 0.03
"""By which two starts of one setting differ. Source: stated, not measured per job."""

USUAL = 0.95
"""Confidence of a range. Source: convention."""

SURE = 0.998
"""Confidence of a range that must not err: 0.1 % on either side. Source: a choice, a check of many
classes may err once in 500 runs."""

MAX_STEPS_ADVISED = 100
"""Steps that are worth recording. Source: a choice, the size of a trace."""

# Two runs against each other.

MIN_CALLS_TO_TURN = 3
"""Calls of a step by which the places of two runs' windows are compared. Source: fewer have no
order."""

MIN_SIZE_RANGE = 0.1
"""Range of the logarithms of their times, else one place is as good as another. Source: the noise
of a time."""

MIN_LIKENESS_GAIN = 0.1
"""By which another place correlates better. Source: a choice, less is noise."""

MEDIAN_RANKS = (0.45, 0.55)
"""Where the ranks' median lies: of an even number both that are in the middle count. Source: by
definition."""

MAX_SLOWDOWN = 4.0
"""Slowdown of compute that is looked for. Source: a choice, ten times `SLOWDOWN_PRIOR`."""

SLOWDOWN_HALVINGS = 20
"""Halvings of the range in which it is. Source: a millionth of it remains."""

MAX_UNSHARED_KERNELS = 0.5
"""Share of a run's kernels that the other has not: with more they may be different jobs. Source: a
majority."""

SAME_KERNEL_TIME = 0.001
"""Difference of kernel times of two readings that show the same. Source: a choice, below the noise
of any kernel."""

SAME_STEP_MISS = 0.01
"""Part of a step by which graphs that are equally good miss the other's step. Source: a choice,
below `STARTS`."""

# Kernels that behave like collectives.

LIKE_MIN_CALLS = 16
"""Calls of a kernel that may be a collective. Source: a choice, the ninth decile of fewer is one
call."""

LIKE_MIN_WHOLE = 0.9
"""Its rows that are in calls of all ranks, between the first and the last of these. Source: a
choice, profilers lose a row now and then."""

LIKE_VARIES = 0.1
"""From the first to the ninth decile of its lengths, as a part of the median. Source: a choice,
what waits for nobody lasts about as long each time."""

LIKE_MIN_SLOPE = 0.5
"""By which its length falls with a later arrival, per ns. Source: by definition 1 for a collective
and 0 for compute; this is between them."""

LIKE_MIN_ENDS_TO_STARTS = 2
"""How much closer its ends are than its starts. Source: a choice, both are alike for compute."""

LIKE_ROWS = 1_000
"""Rows of a trace that are looked at. Source: a choice, more add nothing."""

LIKE_NAMES = 16
"""Names that are looked at, those of most time. Source: a choice, the cost rises with them."""
