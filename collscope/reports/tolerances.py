"""Every tolerance of the answers: what it bounds, its value, and where the value comes from.

A share is a part of 1. "A choice" has a reason and no measurement. Those of matching and of the
timeline stand in `collscope.match.tolerances` and `collscope.timeline.tolerances`; how much of an
answer a table or a figure shows stands with it.
"""

from __future__ import annotations

# Which part of the time binds.

WHOLE_TABLE_PERCENT = 99.5
"""Sum of a pasted table's percentages: with less it is an excerpt, and what stands in it is no
total. Source: rounding of its rows."""

COMMUNICATION_BOUND_PERCENT = 50.0
"""GPU time in collectives that binds. Source: a majority."""

COPY_BOUND_PERCENT = 50.0
"""GPU time in copies that binds. Source: a majority."""

MIN_BOUND_NAMES = 2
"""Names of kernels and copies of a profile that shows what bounds the job. Source: a choice, one
kernel is no job."""

COMPUTE_BOUND_PERCENT = 25.0
"""GPU time in collectives at most, with half in other kernels: compute binds. Source: a choice,
between these no word is right."""

IDLE_PERCENT = 50.0
"""Traced time that a GPU idles: nothing on it binds. Source: a majority."""

# Times in a job against times alone.

SKEW_FACTOR = 3.0
"""A transfer in a job to its roof, before the rest is called waiting. Source: a choice, slower
links or settings alone explain less."""

MIN_JOB_TO_ALONE = 2.0
"""A class in a job to the same measured alone: most of it is not its transfer. Source: by
definition, over half."""

MIN_KERNEL_SHARE = 0.01
"""GPU time of a profile's kernel that is judged. Source: a choice, no gain in it shows in a
step."""

ENOUGH_SAMPLES = 10
"""Samples of a class, for a range that is not a rough one. Source: a choice, the quartiles of fewer
are single samples."""

WORTH = 0.01
"""GPU time that tuning saves, to be worth the work. Source: a choice, less hides in what two starts
differ by (`STARTS`)."""

PAYS = 0.05
"""GPU time that tuning saves, to come first of all findings. Source: a choice, more than two starts
differ by."""

MIN_JUDGED_SHARE = 0.5
"""Collective time that is judged, before a statement about all of it. Source: a majority."""

MAX_SIZE_RATIO = 2.0
"""Sizes of a job's class and of the one that was measured with compute, which stands for it.
Source: a choice, the next size of a sweep."""

# Measurements against each other.

TIME_FALLS = 0.85
"""Time of a larger message to that of a smaller one: less is no noise. Source: nccl-tests on four
H200s, repetitions are within 3 %."""

TIME_JUMPS = 1 / TIME_FALLS
"""Time of the next size, beyond the ratio of the sizes. Source: as before."""

MAX_SIZE_STEP = 4
"""The next size to this one: of sizes further from each other several steps may lie between.
Source: a choice, sweeps double or quadruple."""

BANDWIDTH_BYTES = 16 << 20
"""Sizes from which a time is bandwidth. Source: a choice, latency counts for little in it."""

PLACES_FINDING = 1.3
"""Times in place and out of place, for a finding: both move the same data over the links. Source: a
choice, above `PLACES_NOTE`; a copy within a GPU is far faster."""

PLACES_NOTE = 1.15
"""The same, for a note beside a comparison: more is first touch or an accident. Source: of the
published Frontier tables' 68 pairs two are at 1.17 and 1.18, one at 2.04, and the others below
1.13."""

FAR_BELOW_CEILING = 0.5
"""Of the reachable ceiling at large messages: below it something is switched off or broken. Source:
a choice, half of the links."""

RINGS_SPREAD = 1.15
"""Runs of the same rings on machines of one kind to each other. Source: a choice, about what
published tables of such machines differ by."""

SLOWER_PLACE = 1.10
"""A launch or a node to the others: what they differ by is less. Source: of 30 launches on two
H200s none is 3 % off the others."""

MIN_PLACES = 3
"""Other launches or nodes, and classes: of fewer nothing is typical. Source: the median of fewer is
one of them."""

LONG_CALL_US = 20.0
"""Calls that are compared so: the host's launches decide how long shorter ones last. Source:
`collscope.stats`."""

ROUNDED_SHARE = 0.005
"""Part of a bandwidth that tables round away. Source: three digits."""

MIN_SIGMAS = 3.0
"""Noise of a pair of GPUs that a slow one exceeds. Source: a choice, three standard deviations."""

MIN_SLOW_PAIR = 0.05
"""The same, as a part of the median. Source: a choice, less is no reason to look at a link."""

MIN_PAIRS = 4
"""Pairs that have a median to be held against. Source: of three it is one of them."""

# Calls.

TINY_BYTES = 4 << 10
"""Sizes of a call that costs its latency alone. Source: a choice, far below `FUSABLE_BYTES`."""

FUSABLE_BYTES = 64 << 10
"""Sizes below which an AllReduce costs its latency. Source: on 8 GPUs of one host the floor of
about 20 us moves 64 KiB at only 3 GB/s, 1 % of what the links carry."""

FUSABLE_CALLS = 100
"""Calls of such sizes that are worth fusing. Source: a choice, 2 ms."""

# Verdicts.

DISCOVERY_RATE = 0.005
"""Of the classes called changed, expected to be called so wrongly. Source: a choice, one false
alarm in 200."""

TOTAL_THRESHOLD = 0.02
"""Effect of the weighted total that matters. Source: a choice, close to what two starts differ by
(`STARTS`)."""

TOTAL_P = 0.001
"""Probability at which the weighted total counts as changed. Source: a choice, one false alarm in
1000."""

DOMINANT_SHARE = 0.2
"""Of the time: changed classes that carry it together decide. Source: a choice."""

MIN_DECIDABLE_SHARE = 0.5
"""Of the time: in classes whose noise allows a judgement. Source: a majority."""

WIDEST_PERCENT = 25
"""Resolution of a verdict that is still worth its name. Source: a choice."""

# Single values.

FAR_RATIO = 2.0
"""Ratio of two single values that is no noise where several classes show it. Source:
docs/compare-and-check.md, launches of short calls differ by 20 % at most (one standard deviation):
twice is three of those and more."""

FAR_CLASSES = 3
"""Classes that show it, and none the opposite. Source: a choice, one value may be of another
thing."""

# Late ranks.

MIN_CAUSE_SHARE = 0.25
"""Of a rank's lateness that a cause explains. Source: a choice."""

MIN_CAUSE_TO_NEXT = 2.0
"""A cause to the next one, to be named. Source: a choice, else either may be the cause."""

MIN_LAUNCHED_ROWS = 0.9
"""Rows whose launch is known, to time a host's idling. Source: a choice, traces lack a few."""

ONE_STOP_SHARE = 0.5
"""Of all lateness in one call: that is one stop, and no rank is late as a rule. Source: a
majority."""

MIN_LATE_WAIT = 0.01
"""Of the other ranks' traced time: they wait so long for a late one. Source: a choice, less is not
worth a sentence."""

MIN_LATENESS_NS = 20_000
"""A late rank's typical lateness. Source: what a launch is late by chance (`SLOW_LAUNCH_NS`)."""

MIN_ABOVE_EVEN = 1.25
"""Lateness of some ranks to their even share of it: naming them helps. Source: a
choice."""

ONE_RANK_OF_NODE = 2 / 3
"""Of a node's lateness: one rank with so much is named by itself. Source: as of
`FREQUENT_STRAGGLER_SHARE`."""

# How the bandwidth of recorded calls changes over a run.

MIN_WINDOWS = 8
"""Windows of timed calls behind the first, for an estimate of the calls between them. Source:
recordings, in which one call waits for longer than a hundred others: estimates by five windows of
1 200 calls are 20 to 67 % off in the median, and up to eight times too high."""

MIN_CALLS_PER_SEGMENT = 20
"""Calls on either side of a change. Source: a choice, medians of fewer move by chance."""

CHANGE_PROBABILITY = 1e-4
"""Probability at which a change is no chance. Source: a choice, a run has hundreds of classes."""

MIN_CHANGE = 0.05
"""By which the transfer of a class changes at least. Source: a choice, less hides in what calls
differ by."""
