"""Systems: every shipped entry has a direction and a source; files of users; topology XML."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collscope.errors import InputError
from collscope.model import Op
from collscope.roofline.bounds import Request, bounds
from collscope.roofline.catalogue import catalogue_rows, load_system, shipped_systems
from collscope.roofline.reachable import reachable
from collscope.roofline.system import System, TuningChoice
from collscope.roofline.system_file import CONFIDENCES, SOURCE_KINDS, parse_system
from collscope.roofline.tables import bound_rows, roof_rows
from collscope.roofline.topology_xml import parse_topology

WANTED = {
    *("mi100", "mi210", "mi250x", "frontier", "mi300x", "mi325x", "mi355x", "mi300a"),
    *("dgx1-v100", "a100", "h100", "h200", "b200", "gb200-nvl72"),
    *("pcie-gen3", "pcie-gen4", "pcie-gen5", "pcie-gen6"),
    *("ib-hdr", "ib-ndr", "ib-xdr", "slingshot-11", "efa-p4d", "efa-p5", "efa-p5en"),
    *("roce-100", "roce-200", "roce-400", "roce-800"),
    *("tcp-1g", "tcp-10g", "tcp-25g", "tcp-100g"),
}
# Both directions of all links of a GPU, as the data sheets print them.
DATA_SHEET_BI_GBPS = {
    "mi100": 276,
    "mi210": 300,
    "mi300x": 896,
    "mi325x": 896,
    "mi355x": 1075.2,
    "mi300a": 768,
    "dgx1-v100": 300,
    "a100": 600,
    "h100": 900,
    "h200": 900,
    "b200": 1800,
    "gb200-nvl72": 1800,
}
# One direction of all NICs of a node, from the line rates in Gb/s.
NODE_GBIT = {
    "frontier": 4 * 200,
    "ib-hdr": 200,
    "ib-ndr": 400,
    "ib-xdr": 800,
    "slingshot-11": 200,
    "efa-p4d": 400,
    "efa-p5": 3200,
    "efa-p5en": 3200,
    "roce-100": 100,
    "roce-200": 200,
    "roce-400": 400,
    "roce-800": 800,
    "tcp-1g": 1,
    "tcp-10g": 10,
    "tcp-25g": 25,
    "tcp-100g": 100,
}
MINIMAL = """
name = "two"
title = "two GPUs"
[fabric]
wiring = "mesh"
gpus = 2
links_per_gpu = 1
uni_gbps = 10.0
source = "a label on the cable"
"""


def test_every_wanted_system_ships() -> None:
    assert {s.name for s in shipped_systems()} >= WANTED


@pytest.mark.parametrize("system", shipped_systems(), ids=lambda s: s.name)
def test_directions_and_sources(system: System) -> None:
    for part in (system.fabric, system.network):
        if part is None:
            continue
        assert part.bi_gbps == pytest.approx(2 * part.uni_gbps)
        assert len(part.source) > 15
        assert part.source_kind in SOURCE_KINDS
        assert part.source_kind != "user"
        assert part.confidence in CONFIDENCES
        assert len(part.usable.source) > 10
        assert 0 < part.usable.low <= part.usable.value <= part.usable.high <= 1
        assert part.in_network is None or part.in_network.source
    fabric = system.fabric
    if fabric is not None and fabric.gpu_bi_gbps is not None:
        for row in fabric.capacity[: fabric.gpus]:
            assert 2 * sum(row) == pytest.approx(fabric.gpu_bi_gbps)


@pytest.mark.parametrize("name", DATA_SHEET_BI_GBPS)
def test_data_sheet_figures_are_both_directions(name: str) -> None:
    fabric = load_system(name).fabric
    assert fabric is not None
    assert fabric.gpu_bi_gbps == pytest.approx(DATA_SHEET_BI_GBPS[name])
    assert 2 * sum(fabric.capacity[0]) == pytest.approx(DATA_SHEET_BI_GBPS[name])


@pytest.mark.parametrize("name", NODE_GBIT)
def test_network_rates_are_line_rates_in_bytes(name: str) -> None:
    network = load_system(name).network
    assert network is not None
    assert network.node_gbps == pytest.approx(NODE_GBIT[name] / 8)


def test_catalogue_rows() -> None:
    rows = {row.name: row for row in catalogue_rows()}
    assert rows["mi300x"].gpu_uni_gbps == 448
    assert rows["frontier"].gpu_uni_gbps == 300  # the GCDs with six links
    assert rows["ib-ndr"].wiring is None
    assert rows["h100"].in_network == "NVLS"


def test_names_aliases_and_nearest_names() -> None:
    assert load_system("DGX-H100").name == "h100"
    with pytest.raises(InputError, match=r"'mi300': not known\. Did you mean mi300x, mi300a"):
        load_system("mi300")
    with pytest.raises(InputError, match=r"'zzz': not known\. Give a name"):
        load_system("zzz")
    with pytest.raises(InputError, match=r"ib-ndr has no links\. Write NODE\+NETWORK"):
        load_system("ib-ndr+h100")


# --- files of users --------------------------------------------------------------------------


def test_a_users_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(MINIMAL, encoding="utf-8")
    system = load_system(str(path))
    assert system.fabric is not None
    assert system.fabric.capacity == ((0, 10), (10, 0))
    assert system.fabric.bi_gbps == 20
    combined = load_system(f"{path}+4xroce-100")
    assert combined.network is not None
    assert combined.network.node_gbps == 50


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("uni_gbps = 10.0", "uni_gbps = 10.0\nbi_gbps = 10.0", "not twice uni_gbps 10"),
        ("uni_gbps = 10.0", "uni_gbps = 10.0\ngpu_bi_gbps = 10", "in both directions are 20"),
        ("uni_gbps = 10.0", "uni_gbps = -1", "not positive"),
        ("uni_gbps = 10.0", "uni_gbps = nan", "not positive"),
        ("uni_gbps = 10.0", 'uni_gbps = "fast"', r"fabric\.uni_gbps"),
        ("uni_gbps = 10.0", "gbps = 10.0", "unknown field gbps"),
        ('"mesh"', '"star"', "Use one of mesh, switch, host, matrix"),
        ('"mesh"', '"matrix"', "not 2 rows of 2 numbers"),
        ("gpus = 2", "gpus = 1000000", "1000000 GPUs"),
        ("gpus = 2", "gpus = 1", "mesh of one GPU"),
        ("links_per_gpu = 1", "", "links_per_gpu is missing"),
        ('"a label on the cable"', '" "', "source is empty"),
        ("gpus = 2", "gpus = 2\nusable_fraction = 75", "between 0 and 1"),
        ("gpus = 2", 'gpus = 2\nconfidence = "sure"', "Use one of high, medium, low"),
        ("[fabric]", "[fabric", "not TOML"),
        (MINIMAL, 'name = "n"\ntitle = "t"', "neither links nor NICs"),
        (
            "gpus = 2",
            "gpus = 2\nlinks = [[0, 1], [1, 0]]\nrings = [[0, 1], [0, 1]]",
            "more links from GPU 0 to GPU 1",
        ),
        (
            "[fabric]",
            '[tuning]\nlibrary = "x"\narchitecture = "y"\n[fabric]',
            "no constants of x y",
        ),
    ],
)
def test_bad_files_are_named_and_explained(old: str, new: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        parse_system(MINIMAL.replace(old, new), "mine.toml")
    assert str(caught.value).startswith("mine.toml: ")
    assert str(caught.value).endswith(".")


def test_asymmetric_and_switched_matrix() -> None:
    text = MINIMAL.replace('"mesh"', '"matrix"').replace(
        "links_per_gpu = 1", "switches = 1\nlinks = [[0, 0, 3], [0, 0, 1], [2, 5, 0]]"
    )
    found = bounds(parse_system(text, "t"), Request(Op.ALL_REDUCE, 2))
    assert found is not None
    assert found.busbw_gbps == 10  # GPU 1 sends 10; GPU 0 could send 30 and receive 20


@given(st.text(max_size=200))
def test_any_text_is_a_system_or_an_input_error(text: str) -> None:
    with suppress(InputError):
        parse_system(text, "t")


def test_missing_large_and_binary_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        load_system(str(tmp_path / "none.toml"))
    large = tmp_path / "large.toml"
    large.write_bytes(b"#" * (5 << 20))
    with pytest.raises(InputError, match="larger than 4 MiB"):
        load_system(str(large))
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\x80\x81")
    with pytest.raises(InputError, match="not UTF-8"):
        load_system(str(binary))


# --- topology XML ----------------------------------------------------------------------------


def _gpu(bus: str, links: str, attributes: str = 'sm="90"', speed: str = "32.0 GT/s PCIe") -> str:
    return (
        f'<pci busid="{bus}" class="0x030200" link_speed="{speed}" link_width="16">'
        f'<gpu dev="0" {attributes} rank="0">{links}</gpu></pci>'
    )


def _topology(*parts: str) -> System:
    body = f'<system version="1"><cpu numaid="0">{"".join(parts)}</cpu></system>'
    return parse_topology(body.encode(), "topo.xml")


def test_nvswitch_dump() -> None:
    # Four rows to four switches, as NCCL writes them for H100: 5 + 4 + 5 + 4 links.
    switches = "".join(
        f'<nvlink target="0000:{bus}:00.0" count="{count}" tclass="0x068000"/>'
        for bus, count in (("d0", 5), ("d2", 4), ("d1", 5), ("cf", 4))
    )
    net = '<nic><net name="mlx5_0" dev="0" speed="400000" port="1"/></nic>'
    system = _topology(*(_gpu(f"0000:{i}8:00.0", switches) for i in range(1, 9)), net)
    found = bounds(system, Request(Op.ALL_REDUCE, 8))
    assert found is not None
    assert found.busbw_gbps == pytest.approx(450)
    assert system.fabric is not None
    reached = bounds(system, Request(Op.ALL_REDUCE, 8, links=system.fabric.usable.value))
    assert reached is not None
    assert reached.busbw_gbps == pytest.approx(18 * 20.6)
    assert system.network is not None
    assert system.network.node_gbps == 50


def test_direct_nvlinks_and_a_nic_listed_twice() -> None:
    nic = '<nic><net name="eth0" dev="0" speed="100000" port="0"/></nic>'
    a = _gpu("0001:00:00.0", '<nvlink target="0002:00:00.0" count="12"/>', 'sm="80"')
    b = _gpu("0002:00:00.0", '<nvlink target="0001:00:00.0" count="12"/>', 'sm="80"')
    system = _topology(a, b, nic, nic)
    assert system.fabric is not None
    assert system.fabric.capacity == ((0, 300), (300, 0))
    assert system.network is not None
    assert system.network.node_gbps == 12.5


def test_a_gpu_without_its_links_is_joined_by_pcie() -> None:
    row = '<nvlink target="fffffff:ff:ff.0" count="18" tclass="0x068000"/>'
    system = _topology(_gpu("a", row), _gpu("b", row), _gpu("c", '<c2c bw="44712" count="5"/>'))
    assert [note.text for note in system.notes] == [
        "the nvlink links of the file do not join all GPUs: between them PCIe through the host",
    ]
    # 32 GT/s on 16 lanes, 128 of 130 bits: 63 GB/s into the GPU; (n - 1) / |U| of one is 2 x 63
    found = bounds(system, Request(Op.ALL_REDUCE, 3))
    assert found is not None
    assert found.busbw_gbps == pytest.approx(32 * 16 / 8 * 128 / 130)
    with pytest.raises(InputError, match="or a known PCIe speed"):
        _topology(_gpu("a", row), _gpu("b", row), _gpu("c", "", speed=""))


def test_two_hives_are_joined_by_pcie() -> None:
    def gpu(bus: str, other: str) -> str:
        return _gpu(bus, f'<xgmi target="{other}" count="1"/>', 'gcn="908"', "16.0 GT/s PCIe")

    system = _topology(gpu("a", "b"), gpu("b", "a"), gpu("c", "d"), gpu("d", "c"))
    found = reachable(system, Request(Op.ALL_REDUCE, 4))
    assert found is not None
    assert 0 < found.low_gbps <= found.busbw_gbps <= found.high_gbps < 46 + 32
    assert system.fabric is not None
    assert len(system.fabric.capacity) == 5  # the host


def test_nvswitches_of_a_file_reduce() -> None:
    row = '<nvlink target="fffffff:ff:ff.0" count="18" tclass="0x068000"/>'
    for sm, feature in (("90", "NVLS"), ("80", None)):
        system = _topology(*(_gpu(f"b{i}", row, f'sm="{sm}"') for i in range(8)))
        assert system.fabric is not None
        assert (system.fabric.in_network and system.fabric.in_network.name) == feature


@pytest.mark.parametrize("name", ["topo_3p_pcie", "topo_8p_pcie", "topo_4p3l_2h", "topo_8p_rome"])
def test_topologies_of_rccl_have_finite_times(corpus: Path, name: str) -> None:
    system = load_system(str(corpus / "wild-2026-11" / "topo-xml" / f"{name}.xml"))
    assert system.fabric is not None
    rows = roof_rows(system, Op.ALL_REDUCE, system.fabric.gpus, 1)
    assert all(0 < row.time_low_ns <= row.time_ns <= row.time_high_ns < 1e12 for row in rows)
    assert all(0 < row.reachable_gbps <= row.limit_gbps for row in bound_rows(
        system, system.fabric.gpus, 1
    ))  # fmt: skip


@pytest.mark.parametrize(("gpus", "missing"), [(72, None), (24, 5)])
def test_a_large_domain_with_and_without_a_lost_link(gpus: int, missing: int | None) -> None:
    row = '<nvlink target="fffffff:ff:ff.0" count="{}" tclass="0x068000"/>'
    parts = [_gpu(f"b{i}", row.format(17 if i == missing else 18), 'sm="100"') for i in range(gpus)]
    system = _topology(*parts)
    expected = 900 if missing is None else 850  # all data must enter the weaker GPU
    for op in (Op.ALL_REDUCE, Op.ALL_TO_ALL):
        found = bounds(system, Request(op, gpus))
        assert found is not None
        assert found.busbw_gbps == pytest.approx(expected)
    for op in (Op.BROADCAST, Op.GATHER, Op.SEND_RECV):
        found = bounds(system, Request(op, gpus))
        assert found is not None
        assert expected <= found.busbw_gbps <= 900 * (1 + 1e-9)


def test_pcie_only_dump() -> None:
    system = _topology(_gpu("a", "", speed="16.0 GT/s PCIe"), _gpu("b", ""))
    found = bounds(system, Request(Op.ALL_REDUCE, 2))
    assert found is not None
    assert found.busbw_gbps == pytest.approx(31.5, rel=1e-3)  # the slower slot
    assert "PCIe through the host" in system.notes[0].text


def test_real_rccl_topology(corpus: Path) -> None:
    system = load_system(str(corpus / "topology/rccl-topo_8p_940.xml"))
    # RCCL writes sm="304", the number of CUs: the rate must come from gcn.
    for nranks, expected in ((8, 448), (4, 192), (2, 64)):
        found = bounds(system, Request(Op.ALL_REDUCE, nranks))
        assert found is not None
        assert found.busbw_gbps == pytest.approx(expected)
    assert system.network is not None
    assert (system.network.nics, system.network.uni_gbps) == (8, 50)
    # vendor="GenuineIntel": NCCL's limits between nodes depend on it
    assert system.tuning == TuningChoice("rccl", "gfx94", "intel")


def test_cpu_of_the_file_and_what_is_known_of_the_newest_gpus() -> None:
    gpu = '<xgmi target="{}" count="1" tclass="0x120000"/>'

    def pair(gcn: str) -> str:
        return "".join(_gpu(a, gpu.format(b), f'gcn="{gcn}"') for a, b in ("ab", "ba"))

    amd = '<cpu numaid="1" vendor="AuthenticAMD"/>'
    assert _topology(pair("gfx942"), amd).tuning == TuningChoice("rccl", "gfx94", "amd")
    # No constants were read for gfx950: as the shipped system says, 75 % and no latencies.
    newest = _topology(pair("gfx950"), amd)
    assert newest.tuning is None
    assert newest.fabric is not None
    assert newest.fabric.usable.value == pytest.approx(0.75)
    assert newest.fabric.usable.assumed


@pytest.mark.parametrize(
    ("name", "nics", "rate"), [("ndv5-topo.xml", 8, 63.0), ("p4d-24xl-topo.xml", 4, 15.75)]
)
def test_real_static_topologies_say_nothing_about_nvlink(
    corpus: Path, name: str, nics: int, rate: float
) -> None:
    system = load_system(str(corpus / "topology" / name))
    assert system.fabric is None
    assert system.network is not None
    assert system.network.nics == nics
    assert system.network.uni_gbps == pytest.approx(rate, rel=1e-3)
    assert len(system.notes) == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<system", "not XML"),
        (b"<graphs version='1'/>", "not the graph file"),
        (b"<system/>", "no links between GPUs and no NICs"),
        (b"<!DOCTYPE x [<!ENTITY a 'b'>]><system/>", "declares a document type"),
        (b"<system><gpu dev='0' sm='20'><nvlink count='1'/></gpu></system>", "NVLink of sm"),
        (b"<system><gpu dev='0'><xgmi count='1'/></gpu></system>", "xGMI of gcn"),
        (b"<system><gpu dev='0'/></system>", "or a known PCIe speed"),
        (b"<system>" + b"<a>" * 100_000 + b"</a>" * 100_000 + b"</system>", "no links"),
    ],
)
def test_bad_topologies(content: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        parse_topology(content, "t.xml")
    assert str(caught.value).startswith("t.xml: ")


def test_a_topology_cut_anywhere_is_an_input_error(corpus: Path) -> None:
    content = (corpus / "topology/rccl-topo_8p_940.xml").read_bytes()
    for end in range(1, len(content.rstrip()), 501):
        with pytest.raises(InputError):
            parse_topology(content[:end], "t.xml")


@pytest.mark.parametrize(
    ("system", "name", "other"),
    [
        ("h200", "NVIDIA H200", False),
        ("dgx-h200", "NVIDIA H100 80GB HBM3", True),
        ("h200+8xib-ndr", "NVIDIA H200", False),
        ("h200+8xib-ndr", "AMD Instinct MI300X OAM", True),
        ("h200", "NVIDIA GH200 480GB", True),
        ("a100", "NVIDIA A100-SXM4-80GB", False),
        ("dgx1-v100", "Tesla V100-SXM2-32GB", False),
        ("frontier", "AMD Instinct MI250X", False),
        ("mi250", "AMD Instinct MI250", False),
        ("mi350x", "AMD Instinct MI350X", False),
        ("mi300x", "AMD Instinct MI300A", True),
        ("gb200-nvl72", "NVIDIA GB200", False),
        ("b200", "NVIDIA GB200", True),
        # Names that tell no model, and systems that are of no GPU: nothing is said.
        ("h200", "AMD Radeon Graphics", False),
        ("h200", "gfx942:sramecc+:xnack-", False),
        ("h200", "", False),
        ("pcie-gen5", "NVIDIA H200", False),
        ("ib-ndr", "NVIDIA H200", False),
    ],
)
def test_gpus_of_another_model_are_told(system: str, name: str, other: bool) -> None:
    """Device names as CUDA's and HIP's device properties print them."""
    found = load_system(system).other_gpus([name])
    assert (found is not None) == other
    if found is not None:
        assert found.names == (name,)


def test_every_shipped_system_of_a_gpu_names_its_model() -> None:
    for system in shipped_systems():
        if system.fabric is not None and not system.name.startswith("pcie"):
            assert any(model in system.title.upper() for model in system.fabric.gpu_models)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("name = " + "[" * 100_000 + "]" * 100_000, "too deep"),
        ("name = " + "{a=" * 100_000 + "1" + "}" * 100_000, "too deep"),
        ("a." * 50_000 + "b = 1", "more than 32 parts"),
        ("[" + '"a" . ' * 50_000 + "b]\nc = 1", "more than 32 parts"),
        ("x = {" + "'a'." * 50_000 + "b = 1}", "more than 32 parts"),
        ("#" * (5 << 20), "larger than 4 MiB"),
        ("", "empty"),
    ],
    ids=["lists", "tables", "key", "header", "inline", "large", "empty"],
)
def test_a_file_that_no_reader_should_work_on(tmp_path: Path, content: str, why: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(content)
    with pytest.raises(InputError, match=why):
        load_system(str(file))


def test_a_pipe_without_a_writer_is_empty(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "mine.toml")
    with pytest.raises(InputError, match="empty"):
        load_system(str(tmp_path / "mine.toml"))
