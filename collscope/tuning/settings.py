"""Settings that `tune` tries: the variables of each, and where it may be tried (pure).

Facts: NVIDIA/nccl env.rst and src/graph/tuning.cc of 2.17 to 2.30, ROCm/rccl of 2.21; see
docs/tune.md.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from collscope.model import Op
from collscope.tuning.names import plugin_name

# What the libraries choose by: unset for their defaults.
COLLECTIVE_KNOBS = (
    "NCCL_ALGO", "NCCL_PROTO", "NCCL_MIN_CTAS", "NCCL_MAX_CTAS", "NCCL_MIN_NCHANNELS",
    "NCCL_MAX_NCHANNELS", "NCCL_NTHREADS", "NCCL_LL128_NTHREADS", "NCCL_THREAD_THRESHOLDS",
    "NCCL_TUNER_PLUGIN", "NCCL_TUNER_CONFIG_FILE", "COLLSCOPE_TUNER_CSV",
)  # fmt: skip
P2P_KNOBS = (
    "NCCL_MIN_P2P_NCHANNELS", "NCCL_MAX_P2P_NCHANNELS", "NCCL_NCHANNELS_PER_NET_PEER",
    "NCCL_P2P_NET_CHUNKSIZE",
)  # fmt: skip
TRANSPORT_KNOBS = (
    "NCCL_BUFFSIZE", "NCCL_LL_BUFFSIZE", "NCCL_LL128_BUFFSIZE", "NCCL_CROSS_NIC",
    "NCCL_IB_QPS_PER_CONNECTION", "NCCL_IB_SPLIT_DATA_ON_QPS",
)  # fmt: skip
KNOBS = (*COLLECTIVE_KNOBS, *P2P_KNOBS, *TRANSPORT_KNOBS)

# What a log may set for the ranks that tune starts, and the values that it may have. A log is often
# written by others, and NCCL loads or writes the file that some variables name, so this list holds
# what is taken, not what is refused: only words and numbers that no library takes for a file.
_NUMBER = r"-?(?:0[xX][0-9A-Fa-f]{1,16}|0[0-7]{0,22}|[1-9][0-9]{0,18})"
_CHOICE = r"[A-Za-z0-9_^,:;]{1,200}"  # "^Tree", "allreduce:ring,tree;broadcast:ring" (tuning.cc)
_LEVEL = "LOC|NVL|NVB|C2C|PIX|PXB|P2C|PXN|PHB|SYS|[0-9]"  # ncclGetLevel (paths.cc)
_WORDS = {
    **dict.fromkeys(("NCCL_ALGO", "NCCL_PROTO"), _CHOICE),
    **dict.fromkeys(("NCCL_P2P_LEVEL", "NCCL_NET_GDR_LEVEL"), _LEVEL),
    "NCCL_THREAD_THRESHOLDS": rf"{_NUMBER}(?:[ ,]{{1,4}}{_NUMBER}){{0,20}}",
}
# Numbers that the libraries can take; -2 and -1 stand for their defaults. strtoll reads them
# (param.cc), and what keeps them is narrower: of a larger number it would take some bits.
_DEFAULTS = -2
_BYTES = (_DEFAULTS, 2**31 - 1)  # comm->buffSizes and p2pChunkSize are ints (init.cc)
# NCCL and RCCL hold them to MAXCHANNELS, from 32 to 128 by release (device.h, connect.cc).
_CHANNELS = (_DEFAULTS, 1024)
_THREADS = (_DEFAULTS, 1024)  # of a block, on every GPU; getNthreads holds them to 640 or fewer
_QPS = (_DEFAULTS, 128)  # NCCL_IB_MAX_QPS (net_ib)
_SWITCH = (_DEFAULTS, 2)  # 0 no, 1 yes, 2 where the hardware allows it
_RANGES = {
    **dict.fromkeys(
        (
            "NCCL_MIN_CTAS", "NCCL_MAX_CTAS", "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS",
            "NCCL_MIN_P2P_NCHANNELS", "NCCL_MAX_P2P_NCHANNELS", "NCCL_NCHANNELS_PER_NET_PEER",
        ),
        _CHANNELS,
    ),
    **dict.fromkeys(("NCCL_NTHREADS", "NCCL_LL128_NTHREADS"), _THREADS),
    **dict.fromkeys(
        ("NCCL_BUFFSIZE", "NCCL_LL_BUFFSIZE", "NCCL_LL128_BUFFSIZE", "NCCL_P2P_NET_CHUNKSIZE"),
        _BYTES,
    ),
    "NCCL_IB_QPS_PER_CONNECTION": _QPS,
    **dict.fromkeys(
        (
            "NCCL_CROSS_NIC", "NCCL_IB_SPLIT_DATA_ON_QPS", "NCCL_NVLS_ENABLE",
            "NCCL_COLLNET_ENABLE", "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_PXN_DISABLE",
            "NCCL_IB_DISABLE",
        ),
        _SWITCH,
    ),
}  # fmt: skip

ENV_ALGORITHM = {
    "tree": "Tree", "ring": "Ring", "collnet_direct": "CollnetDirect",
    "collnet_chain": "CollnetChain", "nvls": "NVLS", "nvls_tree": "NVLSTree", "pat": "PAT",
}  # fmt: skip
ENV_PROTOCOL = {"ll": "LL", "ll128": "LL128", "simple": "Simple"}
# NCCL refuses more than 64; RCCL has MAXCHANNELS 128, and AMD advises 112 or 128 on MI300X.
CHANNELS = {"nccl": (8, 16, 32), "rccl": (16, 32, 64, 112, 128)}

_RING = (Op.ALL_REDUCE, Op.ALL_GATHER, Op.REDUCE_SCATTER, Op.BROADCAST, Op.REDUCE)
_SHARDED = (Op.ALL_GATHER, Op.REDUCE_SCATTER)
_SERVED = {
    "ring": _RING, "tree": (Op.ALL_REDUCE,), "nvls": (Op.ALL_REDUCE, *_SHARDED),
    "nvls_tree": (Op.ALL_REDUCE,), "pat": _SHARDED,
    "collnet_direct": (Op.ALL_REDUCE, *_SHARDED), "collnet_chain": (Op.ALL_REDUCE,),
}  # fmt: skip
_P2P = (Op.ALL_TO_ALL, Op.ALL_TO_ALLV, Op.GATHER, Op.SCATTER, Op.SEND_RECV)
_CTAS_SINCE = (2, 17)
# Where src/graph/tuning.cc of RCCL lets LL128 be chosen, given a tuning table for the node: at
# 2.21.5 (ROCm/rccl 0cbce2a) on gfx90a; later (ROCm/rocm-systems 03a8914) on gfx942 and gfx950, too.
# By its changelog since 2.26.6 (ROCm 7.0) on gfx950, and since 2.22.3 of ROCm 6.4.2 on gfx942: that
# version is also that of ROCm 6.4.0, which lacked it. Elsewhere it is left to a --candidate; every
# setting's results are checked.
_LL128_SINCE = {"gfx90a": (2,), "gfx942": (2, 26), "gfx950": (2, 26)}
_TUNER_SINCE = (2, 21)  # the oldest interface that the plugin serves


class Setting(msgspec.Struct, frozen=True):
    """One set of knobs; all that it does not name are unset for the launch."""

    name: str
    environment: tuple[tuple[str, str], ...] = ()
    algorithm: str | None = None  # one of names.ALGORITHMS; None: the library's choice
    protocol: str | None = None
    channels: int | None = None
    family: str = "collective"  # collective, p2p, any: whose operations it changes

    @property
    def unset(self) -> tuple[str, ...]:
        """Knobs that no rank may inherit."""
        named = {name for name, _ in self.environment}
        return tuple(knob for knob in KNOBS if knob not in named)

    @property
    def as_row(self) -> bool:
        """True when a row of the tuner plugin's CSV can express the setting."""
        return self.algorithm is not None and self.protocol is not None

    @property
    def variables_text(self) -> str:
        """Its variables for people."""
        return " ".join(f"{k}={v}" for k, v in self.environment) or "(all knobs unset)"


DEFAULT = Setting("default", family="any")


class TuningTarget(msgspec.Struct, frozen=True):
    """Library and machine that settings are tried on."""

    library: str | None  # nccl, rccl; None: neither, as on the host backend
    version: tuple[int, ...] = ()  # empty: not known, taken for a new one
    device: str = ""
    nvls: bool = True  # False: the job switches it off, so it is no candidate
    seen: frozenset[str] = frozenset()  # algorithms that the run's logs show

    @property
    def has_tuner(self) -> bool:
        """True when the library loads our plugin."""
        return self.library == "rccl" or (self.library == "nccl" and self.since(_TUNER_SINCE))

    def since(self, version: tuple[int, ...]) -> bool:
        """True from this version on, and where the version is not known."""
        return not self.version or self.version >= version


def place_of(
    library: str | None, device: str | None, *, nvls: bool, seen: Collection[str]
) -> TuningTarget:
    """Place of a measurement's library ("nccl 2.28.9") and device.

    seen  algorithms as logs spell them
    """
    name, _, version = (library or "").partition(" ")
    parts = version.split(".") if version else []
    numbers = tuple(int(p) for p in parts) if all(p.isdigit() for p in parts) else ()
    known = frozenset(found for text in seen if (found := plugin_name(text)))
    return TuningTarget(
        name if name in ("nccl", "rccl") else None, numbers, device or "", nvls=nvls, seen=known
    )


def present_setting(environment: Mapping[str, str]) -> Setting:
    """The job's own setting: its knobs, with what a row of the plugin can say of them."""
    knobs = tuple((name, environment[name]) for name in KNOBS if environment.get(name))
    return read_setting("present", knobs) if knobs else replace(DEFAULT, name="present")


def may_come_from_logs(name: str, value: str) -> bool:
    """Whether a log may set a variable of the ranks so.

    Never one that can name a file, and no number that the library cannot take.

    >>> may_come_from_logs("NCCL_ALGO", "Ring"), may_come_from_logs("NCCL_ALGO", "./x.so")
    (True, False)
    >>> may_come_from_logs("NCCL_TUNER_PLUGIN", "x")
    False
    >>> [may_come_from_logs("NCCL_BUFFSIZE", value) for value in ("8388608", "9" * 19)]
    [True, False]
    """
    if name in _RANGES:
        least, most = _RANGES[name]
        return re.fullmatch(_NUMBER, value) is not None and least <= _strtoll(value) <= most
    allowed = _WORDS.get(name)
    if allowed is None or re.fullmatch(allowed, value) is None:
        return False
    # Thresholds are kept as ssize_t (tuning.cc).
    numbers = re.findall(_NUMBER, value) if name == "NCCL_THREAD_THRESHOLDS" else ()
    return all(abs(_strtoll(number)) < 2**63 for number in numbers)


def _strtoll(text: str) -> int:
    """A whole number of `_NUMBER`, as C reads it in base 0."""
    digits = text.removeprefix("-")
    base = 16 if digits[:2].lower() == "0x" else 8 if digits[:1] == "0" else 10
    return int(text, base)


def read_setting(name: str, environment: Sequence[tuple[str, str]]) -> Setting:
    """A setting of given variables; algorithm, protocol and channels where they say just that."""
    values = dict(environment)
    algorithm = plugin_name(values.get("NCCL_ALGO", ""))
    protocol = plugin_name(values.get("NCCL_PROTO", ""))
    most = values.get("NCCL_MAX_CTAS") or values.get("NCCL_MAX_NCHANNELS")
    least = values.get("NCCL_MIN_CTAS") or values.get("NCCL_MIN_NCHANNELS")
    channels = int(most) if most and most.isdigit() and least in (None, most) else None
    others = set(values) - set(COLLECTIVE_KNOBS)
    family = "any" if others - set(P2P_KNOBS) else "collective"
    if others and others <= set(P2P_KNOBS):
        family = "p2p" if len(others) == len(values) else "any"
    if others or "NCCL_NTHREADS" in values:
        algorithm = protocol = channels = None  # a row would leave the rest out
    return Setting(name, tuple(environment), algorithm, protocol, channels, family)


def pair_setting(
    algorithm: str, protocol: str, channels: int | None, place: TuningTarget
) -> Setting:
    """The variables that force an algorithm, a protocol and, where given, a number of channels."""
    environment = [
        ("NCCL_ALGO", ENV_ALGORITHM[algorithm]),
        ("NCCL_PROTO", ENV_PROTOCOL[protocol]),
    ]
    name = f"{algorithm}/{protocol}"
    if channels is not None:
        ctas = place.library == "nccl" and place.since(_CTAS_SINCE)
        what = "CTAS" if ctas else "NCHANNELS"
        environment += [(f"NCCL_MIN_{what}", str(channels)), (f"NCCL_MAX_{what}", str(channels))]
        name += f" {channels} channels"
    return Setting(name, tuple(environment), algorithm, protocol, channels)


def pair_settings(place: TuningTarget) -> tuple[Setting, ...]:
    """Every algorithm and protocol that the library has, the likelier first."""
    if place.library is None:
        return ()
    pairs = [(a, p) for p in ("simple", "ll128", "ll") for a in ("ring", "tree")]
    if place.library == "nccl":
        pairs[1:1] = [("nvls", "simple")]
        pairs += [("nvls_tree", "simple"), ("pat", "simple")]
        pairs += [(a, "simple") for a in ("collnet_direct", "collnet_chain")]
    return tuple(pair_setting(a, p, None, place) for a, p in pairs)


def channel_settings(best: Sequence[Setting], place: TuningTarget) -> tuple[Setting, ...]:
    """Numbers of channels for the settings that did best."""
    return tuple(
        pair_setting(s.algorithm, s.protocol, channels, place)
        for s in best
        if s.algorithm is not None and s.protocol is not None and s.channels is None
        for channels in CHANNELS.get(place.library or "", ())
    )


def other_settings(place: TuningTarget, ops: Collection[Op], nnodes: int) -> tuple[Setting, ...]:
    """Point-to-point channels where the job has such calls, transports where it has several nodes.

    nnodes  of the largest communicator
    """
    if place.library is None:
        return ()
    found = []
    if any(op in _P2P for op in ops):
        for n in (8, 32):
            both = (("NCCL_MIN_P2P_NCHANNELS", str(n)), ("NCCL_MAX_P2P_NCHANNELS", str(n)))
            found.append(Setting(f"p2p channels {n}", both, family="p2p"))
        if nnodes > 1:
            per_peer = (("NCCL_NCHANNELS_PER_NET_PEER", "4"),)
            found.append(Setting("4 channels per peer", per_peer, family="p2p"))
    if nnodes > 1:
        for name, value in (
            ("NCCL_CROSS_NIC", "1"),
            ("NCCL_CROSS_NIC", "0"),
            ("NCCL_IB_QPS_PER_CONNECTION", "4"),
            ("NCCL_NET_GDR_LEVEL", "SYS"),
            ("NCCL_BUFFSIZE", str(8 << 20)),
        ):
            found.append(Setting(f"{name}={value}", ((name, value),), family="any"))
    return tuple(found)


def why_not(setting: Setting, op: Op, nranks: int, nnodes: int, place: TuningTarget) -> str | None:
    """Why a setting is not tried on a class, without the operation's name; None when it is.

    nranks, nnodes  of the class's communicator, here
    """
    if setting.family == "p2p" and op not in _P2P:
        return "only for point-to-point calls"
    if setting.family == "collective" and op in _P2P:
        return "not for point-to-point calls"
    if setting.algorithm is None:
        return None
    reason = _why_not_algorithm(setting.algorithm, op, (nranks, nnodes), place)
    ll128 = setting.protocol == "ll128" and place.library == "rccl"
    if reason is None and ll128 and not _has_ll128(place):
        version = ".".join(map(str, place.version)) or "of unknown version"
        reason = (
            "RCCL enables LL128 on gfx90a, and from 2.26 on gfx942 and gfx950. This is "
            f"{place.device or 'an unknown GPU'} with RCCL {version}. --candidate can still name it"
        )
    return reason


def _has_ll128(place: TuningTarget) -> bool:
    """Whether RCCL's source lets LL128 be chosen there; an unknown version counts as an old one."""
    since = next((v for gpu, v in _LL128_SINCE.items() if gpu in place.device), None)
    return since is not None and (place.version or (2,)) >= since


def _why_not_algorithm(
    algorithm: str, op: Op, shape: tuple[int, int], place: TuningTarget
) -> str | None:
    nranks, nnodes = shape
    if op not in _SERVED[algorithm]:
        return f"unsupported by {algorithm}"
    if algorithm in ("ring", "tree"):
        return None
    needs = {
        "nvls": (nnodes == 1, (2, 17) if op is Op.ALL_REDUCE else (2, 20), "one node"),
        "nvls_tree": (nnodes > 1, (2, 18), "several nodes"),
        "pat": (1 < nnodes == nranks, (2, 23), "one rank per node"),
    }
    fits, since, where = needs.get(
        algorithm, (algorithm in place.seen, (2, 5), "CollNet in the logs")
    )
    reasons = {
        "RCCL has Ring and Tree only": place.library == "rccl",
        "NVLS is switched off": algorithm.startswith("nvls") and not place.nvls,
        f"{algorithm} needs {where}": not fits,
        f"{algorithm} needs NCCL {since[0]}.{since[1]}": not place.since(since),
    }
    return next((reason for reason, applies in reasons.items() if applies), None)
