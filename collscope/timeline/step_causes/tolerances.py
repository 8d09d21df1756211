"""What causes of long steps are bounded by: quantity, value and source."""

USUAL_CHANNELS = (12.0, 24.0)
"""Thread blocks of a large call between GPUs with NVLink, least and most. Source: NCCL's tuning
tables, and its logs on H200."""

MOST_CHANNELS = 32.0
"""Channels of a large call by itself, at most. Source: MAXCHANNELS of NCCL to 2.18, and 24 in its
logs on H200."""

MULTIPROCESSORS = 108.0
"""Multiprocessors of a GPU, at least, whose calls have so many channels. Source: A100; H100 has
132."""

LL_FACTORS = (0.25, 0.5)
"""Bandwidth of LL to that of Simple. Source: half of what LL moves are flags; a quarter is the
least in NCCL's tuning tables (141 of 370 to 480 GB/s inside a node)."""

TREE_BUS_BANDWIDTH = 0.92
"""Bandwidth of a tree to the one of a link, at most; an AllReduce moves everything twice over it.
Source: NCCL's tuning model, src/graph/tuning.cc. A ring of n ranks moves (n - 1) / n twice."""

GRADIENT_NS = 10_000
"""What DistributedDataParallel's search for unused parameters takes a host for each gradient.
Source: a choice, two operators of 5 us that mark each in a tensor. Not measured."""

GRADIENTS_PER_LAUNCH = 0.25
"""Gradients to launches of a backward pass. Source: a choice, two to eight kernels for each."""

HOST_MEMORY_FACTORS = (0.05, 0.25)
"""Bandwidth through the host's memory to that of NVLink. Source: PCIe, 25 to 60 GB/s, for 250 to
450."""

PCIE_FACTORS = (0.5, 1.0)
"""Bandwidth through the host's memory to that of PCIe between GPUs. Source: the data crosses PCIe
twice either way, and the memory once more."""

COPY_ENGINE_FACTORS = (0.1, 0.9)
"""Bandwidth of copies that a host thread starts to that of NVLink. Source: NCCL starts one for each
slice of 0.5 to 1 MiB, src/transport/p2p.cc; 5 to 10 us for each are 52 to 210 GB/s, for 250 to
450."""

SOCKET_IN_HOST_FACTORS = (0.002, 0.1)
"""Bandwidth of sockets inside a host to that of NVLink. Source: TCP, 1 to 25 GB/s, for 250 to
450."""

SOCKET_FACTORS = (0.02, 0.8)
"""Bandwidth of TCP between hosts to that of InfiniBand or RoCE, by one NIC or several. Source: 1 to
10 GB/s for 12 to 50."""

GDR_FACTORS = (0.5, 1.0)
"""Bandwidth of a NIC by the host's memory to that of one that reads the GPU's. Source: the data
crosses PCIe twice."""

LL128_FACTORS = (0.9, 1.0)
"""Bandwidth of LL128 to that of Simple. Source: 120 of the 128 bytes that it moves are data, 0.92
in NCCL's tuning model, src/graph/tuning.cc."""

HOP_NS = {"direct": 3_400.0, "host": 5_700.0, "network": 14_000.0}
"""What a slice of data takes from one GPU to the next besides its bytes: by NVLink, the host's
memory, a network. Source: latencies of Simple rings in NCCL's tuning model, src/graph/tuning.cc."""

CHANNEL_BYTES_PER_NS = (10.0, 40.0)
"""Speed of one channel. Source: NCCL's NVLink speeds, 20 to 40 GB/s, which two channels may share,
src/graph/topo.h."""

DEFAULT_BUFFER_BYTES = float(1 << 22)
"""Buffer of a channel for Simple. Source: DEFAULT_BUFFSIZE of NCCL 2.4 to 2.30, src/init.cc."""

BUFFER_STEPS = 8
"""Parts of a buffer, filled one after the other. Source: NCCL_STEPS, src/include/device.h."""

DEFAULT_CHUNK_BYTES = float(1 << 19)
"""Slice of Send and Recv by NVLink; a quarter of it by a network. Source: NCCL_P2P_NVL_CHUNKSIZE
and NCCL_P2P_NET_CHUNKSIZE of NCCL 2.14 to 2.30, src/init.cc."""

DEFAULT_THREADS = {"NCCL_NTHREADS": 512.0, "NCCL_LL128_NTHREADS": 640.0}
"""Threads of a block where GPUs have NVLink. Source: src/include/device.h of NCCL 2.10 to 2.30."""

FEW_THREADS = 256.0
"""From so many threads a channel is as fast as its link. Source: NCCL's own choice where links are
PCIe, src/graph/tuning.cc; a choice for NVLink."""

FEW_BLOCKS = 2.0
"""Thread blocks that no library chooses for large calls inside a node. Source: a choice, below
`USUAL_CHANNELS` by far."""

FAR_BELOW_REACHABLE = 0.6
"""Of the reachable ceiling: slower calls have a cause. Source: a choice, below `REACHED` by as
much as that is below the ceiling."""

REACHED = 0.8
"""Of the reachable ceiling, what calls of a job reach that nothing slows. Source: the ceiling is
within a quarter of what benchmarks reach (docs/ceilings.md)."""

LATENCY_NS = 50_000
"""A transfer so short is latency, which no bandwidth shortens. Source: a choice, a few hops and the
kernel."""

MICROBATCHES_PER_STAGE = 4
"""From so many on the bubble of a pipeline is small. Source: GPipe, arXiv 1811.06965."""

MIN_CAUSE_COST = 0.01
"""Cost of a cause, as a part of the step. Source: a choice, less stands out in no step."""

MIN_LATENESS_EACH_STEP = 0.5
"""Lateness of a host in the step where it is late by least, to its mean. Source: a choice."""

MOST_CAUSES = 3
"""Causes that are named. Source: a choice, a verdict has ten lines."""

MIN_RECURRENCES = 2
"""Steps that show a gap. Source: a choice, what is seen once may be no part of a step."""

MIN_REGULAR = 0.5
"""Part of what a host loses at places where it does in every step. Source: a choice."""

STRETCHED_INTERVAL = 10
"""Longest interval between launches that the profiler may make much longer, in usual ones.
Source: a choice."""

LONG_STEP = 2.0
"""Length of a step to the shortest, from which it is an exception. Source: a choice."""

MAX_LACKING = 0.1
"""Part of a usual step's rows that an exceptional one lacks. Source: a choice, it does the same and
something more."""

MIN_KERNEL_CHANGE = 0.01
"""Change of a kernel's time, as a part of the longer step. Source: as of `MIN_CAUSE_COST`."""

MOST_MARKS = 2_000
"""Marks of a cause, the longest first. Source: a choice, a viewer shows no more at once."""

MIN_OWN_WORK = 0.5
"""Part of what a step is longer by that a rank's own work explains. Source: a choice, half."""

SMALL_CALL_NS = 50_000
"""A transfer so short is latency, and no bytes. Source: as of `LATENCY_NS`."""

REUSED_FACTOR = 0.2
"""Time of a copy to a host's memory to that of one to memory which it writes to for the first time.
Source: a page of 4 KiB takes 0.2 to 0.3 us at 12 to 25 GB/s (PCIe), and the kernel's first touch of
it 0.6 to 1 us more. Not measured here."""

VALUE_BYTES = 8
"""A collective of so few bytes carries at most one value. Source: NCCL's largest datatypes, Int64,
Uint64 and Float64, have 8 bytes."""

MIN_SMALL_CALLS = 8
"""Calls a step that one call could do. Source: a choice, fewer cost little."""

AWAKE_NS = 60_000
"""A host that waited goes on this soon after the GPU is done. Source: a choice."""

MIN_TO_CHANCE = 3
"""How often two things coincide, to what chance gives. Source: a choice."""

MIN_BY_CHANCE = 3
"""Events expected by chance, where none takes place. Source: a choice, none of three has a
probability of 5 %."""

MAX_ROWS_BETWEEN = 4
"""Rows from one call of a burst to the next. Source: a choice, a copy, a memset, and their kin."""

MIN_WAITS = 2
"""Calls a step that make a host wait. Source: a choice, one read a step is usual."""

MIN_ALIKE_COPIES = 0.75
"""Part of the copies that are read one by one. Source: a choice."""

MIN_LONGER = 0.1
"""How much longer kernels of one rank take. Source: two GPUs of one kind differ by less; their
clocks by 3 % between two starts."""

OUT_OF_CACHE_NS = 50_000
"""A kernel that moves data so long moves more than a cache holds. Source: vendors' data sheets, 50
MB at 3.35 TB/s are 15 us (H100), 40 MB at 1.56 TB/s 26 us (A100), 256 MB at 5.3 TB/s 48 us
(MI300X)."""

MAX_OTHER_KERNELS = 0.01
"""Part of a step's kernels that another rank does not have. Source: a choice."""

MAX_REPLACED = 0.1
"""Kernels that another rank runs in the place of extra ones, to these. Source: a choice, with more
of them kernels are replaced, and not added."""

MIN_MOVING = 0.75
"""Part of the idle time of queued work that is at other places in every step. Source: a choice:
missing or short rows leave the same place idle in all steps."""

MIN_TURNS = 2
"""Turns a step that another process takes on a GPU. Source: a choice, a single one may be a hiccup
of the driver."""

MIN_KERNELS_OF_A_KIND = 3
"""Kernels of one kind. Source: a choice, a scatter needs as many."""

STEADY = 3
"""How much longer kernels are, to their scatter. Source: a choice, three times the scatter."""

HELD = 0.9
"""Confidence of the range of a cost. Source: convention, nine of ten."""

PLAIN_INTERVALS = (2.0, 1.0, 3.0)
"""Usual intervals that a launch takes where nothing is written down about it: the middle, least and
most. Source: a choice, what Python adds to the launches of the backward pass."""
