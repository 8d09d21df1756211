"""Settings and links that make a library slower than it is by itself, by its sources (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from collscope.model import Op
from collscope.timeline.step_causes.tolerances import (
    BUFFER_STEPS,
    CHANNEL_BYTES_PER_NS,
    COPY_ENGINE_FACTORS,
    DEFAULT_BUFFER_BYTES,
    DEFAULT_CHUNK_BYTES,
    DEFAULT_THREADS,
    FEW_THREADS,
    GDR_FACTORS,
    HOP_NS,
    HOST_MEMORY_FACTORS,
    LL128_FACTORS,
    LL_FACTORS,
    PCIE_FACTORS,
    SOCKET_FACTORS,
    SOCKET_IN_HOST_FACTORS,
    USUAL_CHANNELS,
)

RINGS = (Op.ALL_REDUCE, Op.ALL_GATHER, Op.REDUCE_SCATTER, Op.BROADCAST, Op.REDUCE)
"""Operations that algorithms, protocols and threads are chosen for; the others exchange."""
_TWO_STEPS = (Op.ALL_REDUCE, Op.ALL_GATHER, Op.REDUCE_SCATTER)  # of a buffer, in each slice
_PROTOCOLS = ("ll", "ll128", "simple")
ALGORITHMS = ("tree", "ring", "collnetdirect", "collnetchain", "nvls", "nvlstree", "pat")
_GDR = "/GDRDMA"  # of a link whose NIC reads the GPU's memory
MINIMA = ("NCCL_MIN_CTAS", "NCCL_MIN_NCHANNELS", "NCCL_MIN_NRINGS")
"""Settings that give calls more channels."""
_OFF = ("LOC", "0")
_NEAR = ("NVL", "NVB", "C2C", "PIX", "1")  # nearer than PXB, which is the default

Factors = tuple[float, float]


class Slower(msgspec.Struct, frozen=True):
    """A setting, or links, and what calls would take without it.

    factors   least and most, in parts of the recorded transfer, of each operation; None: all others
    channels  calls would have more channels, which slow down compute beside them
    certain   the setting cannot but slow them down
    """

    cause: str
    name: str  # of the setting; "" where links alone show it
    value: str
    factors: dict[Op | None, Factors]
    links: str = ""
    channels: bool = False
    certain: bool = True


def slower(
    settings: Mapping[str, str], links: Sequence[str], *, one_host: bool, direct: bool
) -> Iterator[Slower]:
    """What a run's log shows to slow its calls down.

    links   what carries the data, in the library's words; empty: not known
    direct  the GPUs have links of their own, as NVLink
    """
    found = _transport(settings, links, one_host=one_host, direct=direct)
    if found is not None:
        yield found
        return
    yield from _channels(settings)
    yield from _protocol(settings)
    yield from _buffers(settings, _hop(links, one_host=one_host))
    yield from _threads(settings)


def _transport(
    settings: Mapping[str, str], links: Sequence[str], *, one_host: bool, direct: bool
) -> Slower | None:
    """The setting that keeps GPUs of a host apart, or what their links or the network show."""
    kinds = {link.split("/")[0].upper(): link for link in links}
    over_net = one_host and "NET" in kinds
    detour = kinds["NET"] if over_net else kinds.get("SHM", "")
    factors = SOCKET_IN_HOST_FACTORS if over_net else HOST_MEMORY_FACTORS
    off = _no_peers(settings, detour=bool(detour), over_net=over_net)
    if off and (detour or (one_host and not links)):
        if off == ["NCCL_P2P_LEVEL"] and _level(settings, "NCCL_P2P_LEVEL") in _NEAR:
            factors = PCIE_FACTORS  # links of their own are as near as that
        certain = one_host and factors is not PCIE_FACTORS
        if not one_host:
            factors = (factors[0], 1.0)  # the network may be slower than either
        value = " ".join((settings[off[0]], *(f"{name}={settings[name]}" for name in off[1:])))
        return Slower(
            "slow_transport", off[0], value, {None: factors}, detour, channels=True, certain=certain
        )
    if one_host and direct and detour and "P2P" not in kinds:
        return Slower(
            "slow_transport", "", "", {None: factors}, detour, channels=True, certain=False
        )
    return _copy_engines(settings, links) if one_host else _network(settings, links)


def _no_peers(settings: Mapping[str, str], *, detour: bool, over_net: bool) -> list[str]:
    """Settings that keep the GPUs of a host apart, as far as the links show it."""
    found = ["NCCL_P2P_DISABLE"] if _on(settings.get("NCCL_P2P_DISABLE")) else []
    level = _level(settings, "NCCL_P2P_LEVEL")
    if level in _OFF or (level in _NEAR and detour):
        found.append("NCCL_P2P_LEVEL")
    # Without shared memory the peers still reach each other.
    if over_net and _on(settings.get("NCCL_SHM_DISABLE")):
        found.append("NCCL_SHM_DISABLE")
    return found


def _level(settings: Mapping[str, str], name: str) -> str:
    return settings.get(name, "").strip().upper()


def _copy_engines(settings: Mapping[str, str], links: Sequence[str]) -> Slower | None:
    """Copies between GPUs that a host thread starts, slice by slice."""
    name = "NCCL_P2P_USE_CUDA_MEMCPY"
    by_engine = next((link for link in links if link.upper().endswith("/CE")), "")
    if not _on(settings.get(name)) or (links and not by_engine):
        return None
    factors: dict[Op | None, Factors] = {None: COPY_ENGINE_FACTORS}
    return Slower("slow_transport", name, settings[name], factors, by_engine, certain=False)


def _network(settings: Mapping[str, str], links: Sequence[str]) -> Slower | None:
    """Between hosts: sockets in the place of InfiniBand, or no access of the NIC to the GPU."""
    net = [link for link in links if link.upper().startswith("NET/")]
    socket = next((link for link in net if "SOCKET" in link.upper()), "")
    if socket or not links:
        name = "NCCL_IB_DISABLE" if _on(settings.get("NCCL_IB_DISABLE")) else ""
        if settings.get("NCCL_NET", "").strip().lower() == "socket":
            name = name or "NCCL_NET"
        if name:
            factors: dict[Op | None, Factors] = {None: SOCKET_FACTORS}
            return Slower("slow_transport", name, settings[name], factors, socket, certain=False)
    staged = next((link for link in net if link != socket and not link.endswith(_GDR)), "")
    level = _level(settings, "NCCL_NET_GDR_LEVEL")
    read = settings.get("NCCL_NET_GDR_READ", "").strip()
    name = "NCCL_NET_GDR_LEVEL" if level in _OFF else "NCCL_NET_GDR_READ" if read == "0" else ""
    if name and (staged or not links):
        gdr: dict[Op | None, Factors] = {None: GDR_FACTORS}
        return Slower("slow_transport", name, settings[name], gdr, staged, certain=False)
    return None


def _channels(settings: Mapping[str, str]) -> Iterator[Slower]:
    """Fewer channels than calls use by themselves: of all calls, or of exchanges."""
    limits = ("NCCL_MAX_CTAS", "NCCL_MAX_NCHANNELS", "NCCL_MAX_NRINGS", "NCCL_MAX_P2P_NCHANNELS")
    for name in limits:
        few = number(settings.get(name))
        least = number(settings.get(name.replace("MAX", "MIN"))) or 0.0  # it prevails
        if few is None or few < 0 or max(few, least) >= USUAL_CHANNELS[0]:
            continue
        held = max(few, least, 1.0)
        factors: dict[Op | None, Factors] = {
            None: (held / USUAL_CHANNELS[1], held / USUAL_CHANNELS[0])
        }
        if name == "NCCL_MAX_P2P_NCHANNELS":
            factors |= dict.fromkeys(RINGS, (1.0, 1.0))
        yield Slower("slow_setting", name, settings[name], factors, channels=True)


def _protocol(settings: Mapping[str, str]) -> Iterator[Slower]:
    """Protocols that move flags beside the data. Exchanges choose theirs by size."""
    value = settings.get("NCCL_PROTO", "")
    factors: dict[Op | None, Factors] = {}
    for op in RINGS if value.strip() else ():
        left = allowed(value, op, _PROTOCOLS)
        if left == {"ll"}:
            factors[op] = LL_FACTORS
        elif left and "simple" not in left:
            factors[op] = LL128_FACTORS
    if factors:
        certain = LL_FACTORS in factors.values()
        yield Slower("slow_setting", "NCCL_PROTO", value, factors, certain=certain)


def _buffers(settings: Mapping[str, str], hop_ns: float) -> Iterator[Slower]:
    """Data that moves in smaller slices than by default: each takes as long as a hop takes, too."""
    name = "NCCL_BUFFSIZE"
    size = number(settings.get(name))
    simple = "simple" in allowed(settings.get("NCCL_PROTO", ""), Op.ALL_REDUCE, _PROTOCOLS)
    chunk = DEFAULT_CHUNK_BYTES
    if size is not None and 0 < size < DEFAULT_BUFFER_BYTES:
        factors: dict[Op | None, Factors] = {}
        if simple:
            for op in RINGS:
                steps = 2 if op in _TWO_STEPS else 1
                usual = DEFAULT_BUFFER_BYTES * steps / BUFFER_STEPS
                factors[op] = _of_slices(size * steps / BUFFER_STEPS, usual, hop_ns)
        else:
            factors |= dict.fromkeys(RINGS, (1.0, 1.0))
        factors[None] = _of_slices(min(size / BUFFER_STEPS, chunk), chunk, hop_ns)
        yield Slower("slow_setting", name, settings[name], factors, certain=False)
        chunk = min(chunk, size / BUFFER_STEPS)
    for name in ("NCCL_P2P_NVL_CHUNKSIZE", "NCCL_P2P_NET_CHUNKSIZE"):
        size = number(settings.get(name))
        usual = chunk if "NVL" in name else min(chunk, DEFAULT_CHUNK_BYTES / 4)
        here = ("NVL" in name) == (hop_ns != HOP_NS["network"])
        if here and size is not None and 0 < size < usual:
            of_exchanges: dict[Op | None, Factors] = dict.fromkeys(RINGS, (1.0, 1.0))
            of_exchanges[None] = _of_slices(size, usual, hop_ns)
            yield Slower("slow_setting", name, settings[name], of_exchanges, certain=False)


def _of_slices(size: float, usual: float, hop_ns: float) -> Factors:
    """Time of data in usual slices to that in smaller ones, least and most."""
    ends = [
        size / usual * (hop_ns + usual / speed) / (hop_ns + size / speed)
        for speed in CHANNEL_BYTES_PER_NS
    ]
    return min(ends), max(ends)


def _hop(links: Sequence[str], *, one_host: bool) -> float:
    if not one_host:
        return HOP_NS["network"]
    return HOP_NS["host" if any(link.upper().startswith("SHM") for link in links) else "direct"]


def _threads(settings: Mapping[str, str]) -> Iterator[Slower]:
    """Thread blocks too small to keep a channel busy. Exchanges do not use these."""
    for name, usual in DEFAULT_THREADS.items():
        few = number(settings.get(name))
        # The library takes no number that is not one of whole warps.
        if few is not None and 0 < few < FEW_THREADS and few % 32 == 0:
            factors: dict[Op | None, Factors] = dict.fromkeys(RINGS, (max(few, 64) / usual, 1.0))
            yield Slower("slow_setting", name, settings[name], factors, certain=False)


def allowed(value: str, op: Op, names: Sequence[str]) -> set[str]:
    """What a list of NCCL leaves to an operation, by parseList of its src/graph/tuning.cc.

    >>> sorted(allowed("^LL128;allreduce:LL", Op.ALL_REDUCE, ("ll", "ll128", "simple")))
    ['ll']
    >>> sorted(allowed("^LL128;allreduce:LL", Op.BROADCAST, ("ll", "ll128", "simple")))
    ['ll', 'simple']
    """
    found = set(names)
    for part in value.lower().replace(" ", "").split(";"):
        prefix, _, words = part.rpartition(":")
        if not words or prefix not in ("", op.value.lower()):
            continue
        listed = set(words.removeprefix("^").split(",")) & set(names)
        found = set(names) - listed if words.startswith("^") else listed
    return found


def number(value: str | None) -> float | None:
    """A setting's number; None where it is none."""
    try:
        return float(value) if value is not None else None
    except ValueError:
        return None


def _on(value: str | None) -> bool:
    return value is not None and value.strip() not in ("", "0", "-2")
