"""Scanner of NCCL and RCCL text logs, native (native/logscan): bytes in, columns out.

Index columns are uint32 with 0xFFFFFFFF for "none"; every array is one-dimensional, contiguous and
owns its memory. Formats: ncclEnqueueCheck and debug.cc of NVIDIA/nccl 2.4-2.30 and ROCm/rccl.
"""

from typing import Any

class Scanner:
    """Scans one log. Content never raises: damage is counted and sampled.

    One scanner serves one log and one thread at a time.
    """

    def __init__(self) -> None: ...
    def feed(self, data: bytes) -> None:
        """Take the next piece, cut anywhere; how a log is cut does not change the result.

        Releases the GIL and copies only the unfinished last line. Of a piece of 1 MiB and more, a
        second thread scans the later half; the result is the same to the last index. A line
        beyond 1 MiB is cut there.
        Raises RuntimeError after `finish`.
        """

    def finish(self) -> dict[str, Any]:
        """Flush the last line and return the tables; the scanner is spent afterwards.

        Rows are in order of the log; `line` is the 1-based physical line.

        - processes: lists host, pid, prefix (what a launcher put before its first line),
          first_line. A line without a host has host "" and pid 0 and is told apart by its prefix.
        - threads: process u32, tid i64
        - ops: names as logged
        - comms: process u32, ptr u64, nranks i32 (-1 unknown), global_rank i32 (-1 absent),
          generation u32 (rises when nranks or global_rank change for the same process and pointer)
        - signatures: op u32, count u64 (elements), datatype i32, redop i32 (5 = custom), root i32,
          nranks i32 (-1 unknown), flags u8 (1 count printed modulo 2^32, 2 accumulator given,
          4 AllToAllv with pointers only)
        - coll: comm u32, sig u32, op_count u64, slot i32 (rank for which the buffers are in place;
          -1 none, -2 not known), task i32 (-1 absent), thread u32, line u32, source u8 (0 COLL,
          1 CALL)
        - groups: process u32, thread u32, line u32, delta i8 (+1 ncclGroupStart, -1 ncclGroupEnd)
        - kernel: process u32, kind u8 (0 KL, 1 CL, 2 CE, 3 PE, 4 KE, 5 KA or Abort), time_ns i64
          (clock of the device), rank, block, channel, thread i32 (-1 absent), op_count u64,
          op_count2 u64 (2^64-1 absent; then of send, op_count of receive), name u32 (in
          kernel_names), bus_id i64 (-1), nranks i32 (-1), comm_ptr u64 (0), root i32, nc i32, line
        - kernel_names: list of str
        - tuning: process, thread, line u32, kind u8 (0 numeric, 1 named, 2 symmetric, 3 copy
          engine, 4 hierarchical copy engine), op u32, bytes u64, algorithm, protocol, kernel u32
          (in tuning_names), channels i32 (-1), time_us f64 (NaN), comm_ptr u64 (0)
        - tuning_names: list of str
        - messages: process, thread, line u32, kind u8 (1 init, 2 topology, 3 link, 4 net, 5 env,
          6 version, 7 warn, 8 error return, 9 structure, 10 misc), text list of str
        - unknown_samples: list of (line, text), the first 20 messages of no known kind
        - counters: dict of int
        - damage: list of (line, counter name, excerpt), the first 50 of each
        """
