"""What a token of a text may be, and which words of names stay: patterns (pure)."""

from __future__ import annotations

import re

MOST_DIGITS = 4  # of a number in a path or a name that is no job's
MOST_HEX = 6  # digits of a hexadecimal number that is no address: busId 1a000

IPV6 = r"(?=[0-9a-fA-F:]*::|(?:[0-9a-fA-F]{1,4}:){7})[0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{0,4}){2,7}"
PATTERNS = {
    "colour": r"\x1b\[[0-9;?]*[A-Za-z]",
    "date": r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?(?!\w)",
    # Behind these words a number may be all letters.
    "version": (
        r"(?i:version)[ :=]+\d+(?:\.\d+)+"
        r"(?:[-+.:](?:[0-9a-f]+|cuda[\d.]+|HEAD|develop|master|main|release))*(?![\w])"
    ),
    "plain": r"(?:[oO]pCount|bus[iI]d)[ :=]+[0-9a-fA-F]+(?!\w)|\d+\[[0-9a-fA-F]{1,8}\](?!\w)",
    # host:pid:tid [device], with which NCCL's lines begin.
    "host": r"(?=[\w.-]*[^\W\d])[\w.-]+(?=:\d+:\d+(?:[ ]|$))",
    "url": r"[A-Za-z][A-Za-z0-9+.-]*://[^\s\"'<>)\]},;]+",
    "mac": r"[0-9a-fA-F]{2}(?:[:-][0-9a-fA-F]{2}){5,19}(?![\w:])",
    "uuid": r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?!\w)",
    "pci": r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-9a-fA-F])?(?![\w:])",
    "guid": r"[0-9a-fA-F]{4}(?::[0-9a-fA-F]{4}){3}(?![\w:])",
    "at": rf"[A-Za-z][\w.-]*:{IPV6}(?![\w:])",
    "ipv6": rf"{IPV6}(?![\w:])",
    "ipv4": r"\d{1,3}(?:\.\d{1,3}){3}(?![\w.]*\w)",
    "buffer": r"(?:sendbuff|recvbuff|acc|addr|base)(?:[ :=]+|[ ]:[ ])0x[0-9a-fA-F]+",
    # RCCL's recorder gives a split as the lower half of the new communicator's pointer.
    "upper": r"(?:new)?comm[ ]:[ ]0x[0-9a-fA-F]{9,16}(?!\w)",
    "hex": r"0x[0-9a-fA-F]+",
    "setting": (
        r"(?:[A-Z][A-Z0-9]*_[A-Z0-9_]+|USER|LOGNAME|HOME|PWD|HOST|HOSTNAME|MAIL|PATH|SHELL|TMPDIR)"
        r"=(?:\"[^\"]*\"|'[^']*'|[^\s\"',;)}\]]*)"
    ),
    "number_of": (
        r"(?i:job|jobid|job_id|user|uid|gid|euid|account|array_task_id)"
        r"[ :=#.-]{1,3}\d+(?![\w.]*\w)"
    ),
    "identity": (
        r"(?i:\w*(?:hash|uniqueid|guid|handle|ptr|comm|commid))\"?[ :=]{1,3}\d{13,20}(?!\w)"
    ),
    "path": r"(?:~|\.{1,2}|[A-Za-z]:)?[/\\](?:[\w.+@%~=#-]+[/\\]?)+",
    "word": r"\w+(?:[-.@+]\w+)*",
    "other": r"[^\x00-\x7f]",
}
# Not in the middle of a word or an address; a host may follow the end of a torn line.
SEPARATE = ("host", "path", "word", "other")
TOKEN = (
    r"(?<![\w.-])(?P<host>{})|(?<![\w:.])(?:{})|(?<![\w.)\]])(?P<path>{})|(?P<word>{})"
    r"|(?P<other>{})"
)
LINE_HOST = re.compile(r"(?m)^([\w.-]+):(\d+):\d+ \[")
HOST_POSITION = re.compile(r"(?<=\bon)(\s+)([\w.-]+)(?=\s+device\b)")  # nccl-tests
KEPT_SIGNS = set("（）：；，。、？～µ×·–—…→←↔≤≥±°²³§“”„’‘│─┌┐└┘├┤┬┴┼║═╔╗╚╝╠╣╦╩╬▏▎▍▌▋▊▉█")
STANDARD_FOLDERS = {
    "bin", "boot", "class", "conda", "devices", "dev", "dist-packages", "etc", "home", "include",
    "lib", "lib64", "libexec", "local", "mnt", "opt", "proc", "root", "run", "sbin", "share", "shm",
    "site-packages", "sys", "tmp", "usr", "var", "log", "bus", "infiniband", "net", "pci",
}  # fmt: skip
ENDINGS = {
    "bz2", "c", "cc", "clog", "collrec", "cpp", "cu", "csv", "cuh", "db", "dump", "err", "fr", "gz",
    "h", "hpp", "html", "inspector", "json", "jsonl", "log", "md", "out", "pickle", "pkl", "pt",
    "py", "rpd", "so", "sqlite", "tar", "tgz", "trace", "txt", "xml", "xz", "yaml", "yml", "zip",
    "zst",
}  # fmt: skip
# Programs by whose name readers know what was measured, and the libraries.
PROGRAM = re.compile(
    r"[a-z_]+_perf|osu_[a-z_]+|nvbandwidth|run_nccl_tests|rccl_replayer|TransferBench|(?:lib)?[nr]ccl[\w.-]*"
)
# The number of a rank in the name of a file, by which readers know its trace.
RANK = re.compile(rf"(?i:rank|worker|dump|pid)[._-]?\d{{1,6}}(?!\d)|v?\d{{1,{MOST_DIGITS}}}")
# So do words by which they know files of profilers: accl_profiler_rank0_HOST, 7_kernel_trace.csv.
RANKED = re.compile(
    r"((?<![A-Za-z])(?i:rank|worker|dump)[._-]?\d{1,6}(?!\d)|^accl_profiler(?=_)|"
    r"(?:(?<=_)|^)(?:kernel|memory_copy)_(?:stats|trace)$)"
)
PROFILED = re.compile(r"(ncclprof-)(.+)(-\d+)")  # ncclprof-HOST-PID.txt
LABELS = re.compile(r"([.@+_]+)")
HEX = re.compile(r"0x[0-9a-fA-F]+")
HEX_LIKE = re.compile(r"(?=[a-f]*\d)[0-9a-f]{7,}|(?=[A-F]*\d)[0-9A-F]{7,}")
ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")
WORD = re.compile(r"\w+")
NUMERIC = re.compile(r"[-+]?\d[\d_]*(?:[.-]\d+)*(?:[eE][-+]?\d+)?")
VALUE = re.compile(r"\w[\w.@+-]*")
LIBRARY_SETTING = re.compile(r"(?:NCCL|RCCL|TORCH_NCCL|MSCCL|MSCCLPP|CUDA|HIP|HSA)_")
