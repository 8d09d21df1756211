"""NCCL/RCCL topology XML (NCCL_TOPO_DUMP_FILE, NCCL_TOPO_FILE) as a system.

Elements: system > cpu > pci… > gpu | nic > net, and under a gpu its nvlink, xgmi or c2c links
(NVIDIA/nccl and ROCm/rccl src/graph/xml.cc, topo.cc). A link names the bus id of its target and
how many there are; the rate per link follows from the GPU's generation, as in topo.h.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

import msgspec
from msgspec.structs import replace

from collscope.errors import InputError
from collscope.model.note import Note
from collscope.roofline.links import link_kinds
from collscope.roofline.system import Fabric, InNetwork, Network, System, TuningChoice

_MAX_GPUS = 576
_GPU_CLASSES = ("0x0302", "0x0300", "0x1200")  # 3D, VGA; AMD's processing accelerators
_NIC_CLASSES = ("0x0200", "0x0207")  # Ethernet, InfiniBand
_NVSWITCH_CLASS = "0x0680"


class _LinkRate(msgspec.Struct, frozen=True):
    """One generation's link: line rate, kind of link, and the library's tuning constants.

    kind    of `links.toml`
    tuning  library and architecture; the CPU is that of the file
    """

    uni_gbps: float
    kind: str
    tuning: TuningChoice | None


# Compute capability from which a generation starts. Line rates: roofline systems of that
# generation (SM60 and SM86: NVIDIA's data sheets); usable part: links.toml.
_NVLINK = {
    100: _LinkRate(50.0, "nvlink5", TuningChoice("nccl", "blackwell")),
    90: _LinkRate(25.0, "nvlink4", TuningChoice("nccl", "hopper")),
    87: _LinkRate(25.0, "nvlink3", TuningChoice("nccl", "ampere")),
    86: _LinkRate(14.0625, "nvlink3-sm86", TuningChoice("nccl", "ampere")),
    80: _LinkRate(25.0, "nvlink3", TuningChoice("nccl", "ampere")),
    70: _LinkRate(25.0, "nvlink2", TuningChoice("nccl", "volta")),
    60: _LinkRate(20.0, "nvlink1", None),
}
_XGMI = {
    "950": _LinkRate(76.8, "xgmi-mi350", None),
    "94": _LinkRate(64.0, "xgmi-mi300", TuningChoice("rccl", "gfx94")),
    "90a": _LinkRate(50.0, "xgmi-mi200", TuningChoice("rccl", "gfx90a")),
    "910": _LinkRate(50.0, "xgmi-mi200", TuningChoice("rccl", "gfx90a")),  # RCCL's number of gfx90a
    "90": _LinkRate(46.0, "xgmi-mi100", None),
}
# NVSwitches of these generations reduce; nvlsEfficiency of NVIDIA/nccl 5067397 src/graph/tuning.cc.
_NVLS = {
    "nvlink4": InNetwork("NVLS", 0.85, "nvlsEfficiency of Hopper, src/graph/tuning.cc", 0.82),
    "nvlink5": InNetwork("NVLS", 0.74, "nvlsEfficiency of Blackwell, src/graph/tuning.cc", 0.6),
}
# link_speed="32.0 GT/s PCIe", "8 GT/s" or "": GT/s to GB/s of one lane and direction
_SPEED = re.compile(r"\s*(\d{1,3}(?:\.\d{1,3})?) ?GT/s")


class _Topology(msgspec.Struct):
    """What one pass over the elements collects; GPUs and NICs in the order of the file."""

    gpus: dict[str, ElementTree.Element] = msgspec.field(default_factory=dict)  # by PCI bus id
    bare_gpus: int = 0  # PCI functions of a GPU's class without a <gpu> below
    bare_nics_gbps: list[float] = msgspec.field(default_factory=list)
    nics_gbps: dict[tuple[str, str], float] = msgspec.field(default_factory=dict)
    path_gbps: dict[str, float] = msgspec.field(default_factory=dict)  # PCIe of each GPU
    amd_cpu: bool = False
    notes: list[Note] = msgspec.field(default_factory=list)


def parse_topology(content: bytes, where: str) -> System:
    """System of a topology file: NVLink, xGMI or PCIe between GPUs, and the NICs.

    content  the file's bytes
    where    names it in errors
    raises   InputError when it is not such a file, or lists nothing that can carry data
    """
    found = _collect(_parse_xml(content, where), where)
    fabric, tuning = _fabric(found, where)
    network = _network(found)
    if fabric is None and network is None:
        raise InputError(
            f"{where}: no links between GPUs and no NICs. "
            "Give the file that NCCL_TOPO_DUMP_FILE wrote on the machine."
        )
    return System(
        name=re.split(r"[/\\]", where)[-1],
        title=f"topology file, {len(found.gpus) or found.bare_gpus} GPUs",
        fabric=fabric,
        network=network,
        tuning=tuning,
        notes=tuple(found.notes),
    )


def _parse_xml(content: bytes, where: str) -> ElementTree.Element:
    """Root element; document types are refused, since entities can grow without bound."""
    if b"<!DOCTYPE" in content or b"<!ENTITY" in content:
        raise InputError(f"{where}: declares a document type. Take it out: NCCL writes none.")
    try:
        root = ElementTree.fromstring(content)
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise InputError(f"{where}: not XML ({error}). Dump the topology again.") from error
    if root.tag != "system":
        raise InputError(
            f"{where}: begins with <{root.tag}>, not <system>. "
            "Give the topology (NCCL_TOPO_DUMP_FILE), not the graph file."
        )
    return root


def _collect(root: ElementTree.Element, where: str) -> _Topology:
    """Walk the tree without recursion: depth is the file's, not ours."""
    found = _Topology()
    stack: list[tuple[ElementTree.Element, str, float]] = [(root, "", float("inf"))]
    while stack:
        element, bus, slowest = stack.pop()
        if element.tag == "pci":
            bus = element.get("busid", "").lower()
            slowest = min(slowest, _pci_gbps(element))
            _bare(element, slowest, found)
        elif element.tag == "gpu":
            # Several <gpu> of one bus id are ranks or partitions that share its links.
            found.gpus.setdefault(bus or element.get("dev", ""), element)
            found.path_gbps.setdefault(bus, slowest)
        elif element.tag == "cpu":
            found.amd_cpu = found.amd_cpu or element.get("vendor") == "AuthenticAMD"
        elif element.tag == "net":
            # A NIC without a place is listed under every <cpu>: name and port identify it.
            key = (element.get("name", element.get("dev", "")), element.get("port", ""))
            found.nics_gbps.setdefault(key, min(slowest, _number(element, "speed") / 8000))
        stack.extend((child, bus, slowest) for child in reversed(element))
    if max(len(found.gpus), found.bare_gpus) > _MAX_GPUS:
        raise InputError(f"{where}: more than {_MAX_GPUS} GPUs. Give the file of one node or rack.")
    return found


def _bare(element: ElementTree.Element, path_gbps: float, found: _Topology) -> None:
    """Count a PCI function of a static file, which has no <gpu> and <net> elements."""
    if any(child.tag in ("gpu", "nic", "pci") for child in element):
        return
    pci_class = element.get("class", "")
    if pci_class.startswith(_GPU_CLASSES):
        found.bare_gpus += 1
    elif pci_class.startswith(_NIC_CLASSES):
        found.bare_nics_gbps.append(path_gbps)


def _number(element: ElementTree.Element, name: str) -> float:
    """A number of an attribute; 0 where it is missing, not a number, or below 0."""
    try:
        value = float(element.get(name, "0"))
    except ValueError:
        return 0.0
    return value if 0 <= value < 1e9 else 0.0


def _pci_gbps(element: ElementTree.Element) -> float:
    """PCIe rate of one direction in GB/s; infinite where speed or width is unknown.

    8 to 32 GT/s code 128 of 130 bits, below that 8 of 10; 64 GT/s 242 of 256 bytes.
    """
    speed = _SPEED.match(element.get("link_speed", ""))
    width = _number(element, "link_width")
    if speed is None or width < 1:
        return float("inf")
    rate = float(speed[1])
    coding = 0.8 if rate < 8 else 128 / 130 if rate < 64 else 242 / 256
    return rate * coding * width / 8


def _fabric(found: _Topology, where: str) -> tuple[Fabric | None, TuningChoice | None]:
    """Links between the GPUs, in the order of the file, and the matching constants."""
    if not found.gpus:
        if found.bare_gpus:
            found.notes.append(
                Note(
                    "static_file",
                    {},
                    "a static file: it lists no NVLink or xGMI, so it cannot describe one node; a"
                    " file of NCCL_TOPO_DUMP_FILE can",
                )
            )
        return None, None
    kind = next(
        (c.tag for gpu in found.gpus.values() for c in gpu if c.tag in ("nvlink", "xgmi")), None
    )
    if kind is None:
        return _pci_fabric(found, where), None
    return _link_fabric(found, kind, where)


def _link_rate(gpu: ElementTree.Element, kind: str, where: str) -> _LinkRate:
    """Link of a GPU's generation. RCCL writes the number of CUs as `sm`: it reads `gcn` instead."""
    if kind == "nvlink":
        capability = _number(gpu, "sm")
        for first, rate in _NVLINK.items():
            if capability >= first:
                return rate
        raise InputError(f'{where}: NVLink of sm="{gpu.get("sm")}". Describe it in TOML.')
    name = gpu.get("gcn", "").lower().removeprefix("gfx")
    for first_digits, rate in _XGMI.items():
        if name.startswith(first_digits):
            return rate
    raise InputError(f'{where}: xGMI of gcn="{gpu.get("gcn")}". Describe it in TOML.')


def _link_fabric(found: _Topology, kind: str, where: str) -> tuple[Fabric, TuningChoice | None]:
    """NVLink or xGMI as a matrix; all NVSwitches are one node, as in NCCL's own graph."""
    places = {bus: index for index, bus in enumerate(found.gpus)}
    rate = _link_rate(next(iter(found.gpus.values())), kind, where)
    size = len(places) + 1
    links = [[0.0] * size for _ in range(size)]
    for bus, gpu in found.gpus.items():
        i = places[bus]
        for link in gpu:
            if link.tag != kind:
                continue
            target = places.get(link.get("target", "").lower())
            if target is not None and target != i:
                links[i][target] += _number(link, "count")
            elif link.get("tclass", "").startswith(_NVSWITCH_CLASS):
                links[i][-1] += _number(link, "count")
                links[-1][i] += _number(link, "count")
    if not any(links[-1]):
        links = [row[:-1] for row in links[:-1]]
    capacity = tuple(tuple(count * rate.uni_gbps for count in row) for row in links)
    wiring, per_gpu = _regular(links, len(places))
    if not _joined(links, len(places)):
        found.notes.append(
            Note(
                "links_do_not_join",
                {"links": kind},
                f"the {kind} links of the file do not join all GPUs: between them PCIe through the"
                " host",
            )
        )
        capacity = _with_host(capacity, _pci_rates(found, where))
        wiring, per_gpu = "matrix", None
    fabric = _fabric_record(
        capacity,
        len(places),
        rate.uni_gbps,
        rate.kind,
        f"{kind} links of the topology file; {rate.uni_gbps:g} GB/s each by the GPU's generation",
    )
    if wiring == "switch":
        fabric = replace(fabric, in_network=_NVLS.get(rate.kind))
    tuning = rate.tuning
    if tuning is not None and found.amd_cpu:
        tuning = replace(tuning, cpu="amd")
    return replace(fabric, wiring=wiring, links_per_gpu=per_gpu), tuning


def _joined(links: list[list[float]], gpus: int) -> bool:
    """Whether every GPU reaches every other one over the links."""
    seen, left = {0}, [0]
    while left:
        i = left.pop()
        onward = [j for j, number in enumerate(links[i]) if number > 0 and j not in seen]
        seen.update(onward)
        left += onward
    return seen.issuperset(range(gpus))


def _with_host(
    capacity: tuple[tuple[float, ...], ...], rates: list[float]
) -> tuple[tuple[float, ...], ...]:
    """Links and, as one more switch, the host: each GPU is on it at the rate of its PCIe."""
    others = len(capacity) - len(rates)
    spokes = [*rates, *(0.0 for _ in range(others))]
    joined = [(*row, rate) for row, rate in zip(capacity, spokes, strict=True)]
    return (*joined, (*spokes, 0.0))


def _pci_rates(found: _Topology, where: str) -> list[float]:
    """PCIe rate of each GPU, at its slowest bridge.

    raises  InputError where the file does not give it
    """
    rates = [found.path_gbps.get(bus, float("inf")) for bus in found.gpus]
    if not all(0 < rate < float("inf") for rate in rates):
        raise InputError(
            f"{where}: GPUs without NVLink, xGMI or a known PCIe speed. Describe the system in"
            " TOML."
        )
    return rates


def _pci_kind(gbps: float) -> str:
    """Kind of link by the rate of 16 lanes; the slowest generation for fewer lanes."""
    return "pcie-gen5" if gbps > 60 else "pcie-gen4" if gbps > 30 else "pcie-gen3"


def _regular(links: list[list[float]], gpus: int) -> tuple[str, int | None]:
    """Name of a wiring in which all GPUs are alike, and the links of one; else matrix.

    Such wirings have closed forms, which matters for the 72 GPUs of a rack.
    """
    own = {links[i][j] for i in range(gpus) for j in range(gpus) if i != j}
    spokes = {row[-1] for row in links[:gpus]} if len(links) > gpus else {0.0}
    if own <= {0.0} and len(spokes) == 1:
        return "switch", int(spokes.pop())
    if len(own) == 1 and spokes == {0.0}:
        return "mesh", int(own.pop()) * (gpus - 1)
    return "matrix", None


def _pci_fabric(found: _Topology, where: str) -> Fabric:
    """GPUs whose only way is PCIe: a star through the host, each at its slowest bridge."""
    rates = _pci_rates(found, where)
    found.notes.append(
        Note(
            "pcie_through_host",
            {},
            "no NVLink or xGMI in the file: PCIe through the host, bridges shared by GPUs not"
            " counted",
        )
    )
    spokes = tuple((*((0.0,) * len(rates)), rate) for rate in rates)
    fabric = _fabric_record(
        (*spokes, (*rates, 0.0)),
        len(rates),
        min(rates),
        _pci_kind(min(rates)),
        "link_speed and link_width of the topology file",
    )
    # with one rate for all it is the star that closed forms are for
    return replace(fabric, wiring="host", links_per_gpu=1) if len(set(rates)) == 1 else fabric


def _fabric_record(
    capacity: tuple[tuple[float, ...], ...],
    gpus: int,
    uni_gbps: float,
    kind: str,
    source: str,
) -> Fabric:
    """A fabric of the file's links."""
    return Fabric(
        wiring="matrix",
        gpus=gpus,
        uni_gbps=uni_gbps,
        bi_gbps=2 * uni_gbps,
        links_per_gpu=None,
        gpu_bi_gbps=None,
        capacity=capacity,
        rings=(),
        hosts=1,
        usable=link_kinds()[kind],
        in_network=None,
        source=source,
        source_kind="user",
        confidence="medium",
    )


def _network(found: _Topology) -> Network | None:
    """NICs with the speeds the file gives (Mb/s), else with the rate of their PCIe slots."""
    rates = [rate for rate in found.nics_gbps.values() if rate > 0]
    source = "speed of each net element of the topology file (Mb/s)"
    if not rates:
        rates = [rate for rate in found.bare_nics_gbps if rate < float("inf")]
        source = "PCIe rate of each NIC of the topology file: an upper limit"
        if rates:
            found.notes.append(
                Note(
                    "nics_at_slot_rate",
                    {},
                    "the file gives no NIC speed: the rate of their PCIe slots is used",
                )
            )
    if not rates:
        return None
    # One figure per NIC is kept; NICs of different rates add up to the same node.
    uni_gbps = sum(rates) / len(rates)
    return Network(
        name="NICs of the topology file",
        nics=len(rates),
        uni_gbps=uni_gbps,
        bi_gbps=2 * uni_gbps,
        usable=link_kinds()["infiniband"],
        in_network=None,
        source=source,
        source_kind="user",
        confidence="medium",
    )
