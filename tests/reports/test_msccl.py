"""MSCCL algorithms: reading them safely, what their steps cost, and which classes they serve."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from command import collscope
from hypothesis import given
from hypothesis import strategies as st
from inputs import ROOT
from msccl_builder import (
    all_pairs_all_gather,
    document,
    header,
    ring_all_reduce,
    step,
)
from msgspec.structs import replace

from collscope.model import Datatype, Op, Redop, Severity
from collscope.parsers.msccl_xml import MOST_BYTES, MscclAlgorithm, parse
from collscope.reports.calls.answer import ClassRow
from collscope.reports.msccl.answer import build_msccl
from collscope.reports.msccl.cost import Costs, Lack, load_of
from collscope.reports.msccl.serve import refusal
from collscope.reports.msccl.structure import Hops, structure_of
from collscope.reports.msccl.text import refusal_words, render_msccl
from collscope.reports.rendering.formats import FORMATS
from collscope.roofline.catalogue import load_system


def algorithm(content: bytes) -> MscclAlgorithm:
    found = parse(content)
    assert found.algorithm is not None, found.diagnostics
    return found.algorithm


def error(content: bytes) -> str:
    """Code of the error that makes a file unusable."""
    found = parse(content)
    assert found.algorithm is None
    errors = [d for d in found.diagnostics if d.severity is Severity.ERROR]
    assert len(errors) == 1
    assert errors[0].message.endswith(".")
    return errors[0].code


def row(**values: object) -> ClassRow:
    base = ClassRow(
        class_id=1, op=Op.ALL_REDUCE, datatype=Datatype.FLOAT32, redop=Redop.SUM, root=None,
        count=1024, size_bytes=4096, in_place=True, nranks=4, nnodes=1, shape=None,
        backend="native", calls=10, total_bytes=40960, share_of_bytes=1.0, algorithm=None,
        protocol=None, channels=None, tuned_calls=0, kernel_calls=None,
        kernel_observations=None, transfer_ns=None, wait_ns=None, split_ns=None,
        seen_calls=None, seen_kernels=None, kernel_ns=None,
    )  # fmt: skip
    return replace(base, **values)  # type: ignore[arg-type]


def test_header_and_steps_are_read() -> None:
    found = algorithm(
        b'\xef\xbb\xbf<?xml version="1.0"?>\n<!-- made by hand -->\n'
        + ring_all_reduce(4, minBytes=1024, maxBytes=65536, outofplace=0, proto="LL128")
    )
    assert (found.op, found.nranks, found.protocol, found.chunks) == (Op.ALL_REDUCE, 4, "LL128", 4)
    assert (found.min_bytes, found.max_bytes) == (1024, 65536)
    assert (found.in_place, found.out_of_place) == (True, False)
    block = found.blocks[1][0]
    assert (block.send_peer, block.receive_peer, block.channel) == (2, 0, 0)
    assert [s.kind for s in block.steps] == ["s", "rrs", "rrs", "rrcs", "rcs", "rcs", "r"]
    assert found.steps == 4 * 7


def test_header_of_older_compilers() -> None:
    attributes = header("alltoall", 2, 2)
    for name in ("minBytes", "maxBytes", "outofplace"):
        del attributes[name]
    found = parse(document(attributes | {"inplace": 0}, [[], []]))
    assert found.algorithm is not None
    assert (found.algorithm.in_place, found.algorithm.out_of_place) == (False, True)
    assert [d.code for d in found.diagnostics] == ["old_header"]


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "not_xml"),
        (b"\x00\xff\xfe", "not_xml"),
        (b"<system/>", "no_algorithm"),
        (ring_all_reduce(4)[:900], "not_xml"),
        (b'<!DOCTYPE algo [<!ENTITY a "b">]>' + ring_all_reduce(2), "document_type"),
        (b'<?xml version="1.0" encoding="none-such"?>' + ring_all_reduce(2), "not_xml"),
        (b" " * (MOST_BYTES + 1), "huge"),
        (ring_all_reduce(4, ngpus=5), "lacks_gpus"),
        (ring_all_reduce(4, ngpus=3), "lacks_gpus"),
        (ring_all_reduce(4, nchunksperloop=0), "bad_attribute"),
        (ring_all_reduce(4, coll="dance"), "unknown_collective"),
        (ring_all_reduce(4, proto="LL64"), "unknown_protocol"),
        (ring_all_reduce(4, nchannels="x"), "bad_attribute"),
        (ring_all_reduce(4, nchannels="9" * 5000), "bad_attribute"),
        (ring_all_reduce(4, minBytes=-1), "bad_attribute"),
        (ring_all_reduce(4).replace(b'<gpu id="1"', b'<gpu id="0"'), "duplicate_gpu"),
        (ring_all_reduce(4).replace(b'send="2"', b'send="4"'), "bad_peer"),
        (ring_all_reduce(4).replace(b'send="2"', b'send="-1"'), "bad_peer"),
        (ring_all_reduce(4).replace(b'send="2"', b'send="1"'), "bad_peer"),
        (ring_all_reduce(4).replace(b'type="rrcs"', b'type="zip"'), "unknown_step"),
        (ring_all_reduce(4).replace(b's="3"', b's="4"', 1), "bad_step"),
        (document(header("reduce", 1, 1), [[(-1, -1, 0, [step("nop", 1, (0, 1))])]]),
         "bad_dependence"),
    ],
)  # fmt: skip
def test_unusable_files_are_one_error(content: bytes, code: str) -> None:
    assert error(content) == code


def test_a_step_that_waits_for_none_is_told_with_its_place() -> None:
    content = document(header("reduce", 1, 1), [[(-1, -1, 0, [step("nop", 1, (0, 1))])]])
    (found,) = parse(content).diagnostics
    assert found.message == (
        '<gpu id="0">, <tb id="0">: a <step> waits for step 1 of <tb id="0">, which does '
        "not exist. Compile the algorithm again, or repair the file."
    )


def test_entities_do_not_expand() -> None:
    # The "billion laughs": 10^9 words if entities were expanded.
    levels = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' for i in range(1, 10))
    bomb = f'<!DOCTYPE algo [<!ENTITY l0 "ha">{levels}]><algo name="&l9;"/>'
    assert error(bomb.encode()) == "document_type"


def test_foreign_elements_are_skipped() -> None:
    content = ring_all_reduce(2).replace(b"<gpu", b"<load><gpu/></load><gpu", 1)
    found = parse(content)
    assert found.algorithm == algorithm(ring_all_reduce(2))
    assert [d.code for d in found.diagnostics] == ["other_element"]


@given(st.data())
def test_a_cut_anywhere_is_an_error(data: st.DataObject) -> None:
    whole = ring_all_reduce(3)
    cut = data.draw(st.integers(0, len(whole) - 1))
    assert error(whole[:cut]) in ("not_xml", "no_algorithm")


@given(st.binary(max_size=400), st.integers(0, 2000))
def test_no_content_raises(noise: bytes, at: int) -> None:
    whole = ring_all_reduce(3)
    parse(noise)
    parse(whole[:at] + noise + whole[at + len(noise) :])


@pytest.mark.parametrize("nranks", [2, 3, 8])
def test_ring_has_the_known_structure(nranks: int) -> None:
    # 2(n−1) dependent messages; each link carries 2(n−1)/n of the bytes (busbw's factor).
    found = algorithm(ring_all_reduce(nranks))
    structure = structure_of(found)
    load = load_of(found, structure, nranks)
    assert structure.finishes
    assert structure.messages == 2 * (nranks - 1) * nranks
    assert structure.critical(nranks, 1.0, 1.0) == Hops(2 * (nranks - 1), 0)
    assert load.pair == load.gpu == pytest.approx(2 * (nranks - 1) / nranks)
    assert load.node is None


def test_ring_over_two_nodes() -> None:
    # Ranks 0, 1 | 2, 3: of six hops in a row that start anywhere, three cross.
    found = algorithm(ring_all_reduce(4))
    structure = structure_of(found)
    assert structure.critical(2, 1.0, 10.0) == Hops(3, 3)
    load = load_of(found, structure, 2)
    assert (load.pair, load.gpu, load.node) == (1.5, 1.5, 1.5)


def test_all_pairs_has_one_step() -> None:
    found = algorithm(all_pairs_all_gather(8))
    structure = structure_of(found)
    load = load_of(found, structure, 8)
    assert structure.critical(8, 1.0, 1.0) == Hops(1, 0)
    assert (load.pair, load.gpu) == (1 / 8, 7 / 8)


def test_dependences_within_a_gpu_count() -> None:
    # GPU 0 sends; block 0 of GPU 1 receives, and block 1 sends to GPU 2 only after that.
    gpus = [
        [(1, -1, 0, [step("s")])],
        [(-1, 0, 0, [step("r")]), (2, -1, 0, [step("nop"), step("s", 1, (0, 0))])],
        [(-1, 1, 0, [step("r")])],
    ]
    assert structure_of(algorithm(document(header("broadcast", 3, 1), gpus))).critical(
        3, 1.0, 1.0
    ) == Hops(2, 0)
    gpus[1][1] = (2, -1, 0, [step("nop"), step("s")])
    assert structure_of(algorithm(document(header("broadcast", 3, 1), gpus))).critical(
        3, 1.0, 1.0
    ) == Hops(1, 0)


@pytest.mark.parametrize("chain_first", [True, False])
def test_the_longest_of_several_chains_counts(chain_first: bool) -> None:
    # A chain over three GPUs, and a single message between two others.
    first, second = (0, 3) if chain_first else (2, 0)
    gpus: list[list[tuple[int, int, int, list[str]]]] = [[] for _ in range(5)]
    gpus[first] = [(first + 1, -1, 0, [step("s")])]
    gpus[first + 1] = [(first + 2, first, 0, [step("rcs")])]
    gpus[first + 2] = [(-1, first + 1, 0, [step("r")])]
    gpus[second] = [(second + 1, -1, 0, [step("s")])]
    gpus[second + 1] = [(-1, second, 0, [step("r")])]
    structure = structure_of(algorithm(document(header("broadcast", 5, 1), gpus)))
    assert structure.critical(5, 1.0, 1.0) == Hops(2, 0)


def test_algorithms_that_cannot_finish_are_named() -> None:
    lonely = document(header("reduce", 2, 1), [[(1, -1, 0, [step("s")])], []])
    unpaired = structure_of(algorithm(lonely)).unpaired
    assert unpaired is not None
    assert (unpaired.sent, unpaired.taken) == (1, 0)
    both = [[(1, 1, 0, [step("r"), step("s")])], [(0, 0, 0, [step("r"), step("s")])]]
    circle = algorithm(document(header("allgather", 2, 1), both))
    assert structure_of(circle).circular
    report = build_msccl([("x.xml", parse(lonely))], load_system("h100"), [row()], "main")
    assert report.algorithms[0].problem is not None
    assert report.classes == ()


def test_cost_is_the_sum_of_its_parts() -> None:
    # h100: 450 GB/s a GPU, of which the catalogue says what part is usable; Hopper's ring
    # latencies for Simple are 8.4 us a call and 3.4 us a step (NCCL 2.28.9's table).
    system = load_system("h100")
    assert system.fabric is not None
    found = algorithm(ring_all_reduce(8))
    structure = structure_of(found)
    cost = Costs(system).cost(found, structure, load_of(found, structure, 8), 8_000_000)
    rate = 450 * system.fabric.usable.value
    assert (cost.base_ns, cost.hops_ns) == (8400, pytest.approx(14 * 3400))
    assert cost.transfer_ns == pytest.approx(1.75 * 8e6 / rate)
    assert cost.time_ns == pytest.approx(8400 + 14 * 3400 + 1.75 * 8e6 / rate)


@pytest.mark.parametrize(("system", "line"), [("h100", 128), ("mi300x", 64)])
def test_protocols_carry_flags(system: str, line: int) -> None:
    costs = Costs(load_system(system))
    times = {}
    for protocol in ("LL", "LL128", "Simple"):
        found = algorithm(all_pairs_all_gather(8, proto=protocol))
        structure = structure_of(found)
        times[protocol] = costs.cost(found, structure, load_of(found, structure, 8), 1 << 20)
    assert times["LL"].transfer_ns == pytest.approx(2 * times["Simple"].transfer_ns)
    assert times["LL128"].transfer_ns == pytest.approx(
        line / (line - 8) * times["Simple"].transfer_ns
    )


def test_a_mesh_link_is_the_limit_of_one_ring() -> None:
    # mi300x: seven links a GPU, 64 GB/s each; a single ring loads one of them.
    system = load_system("mi300x")
    assert system.fabric is not None
    found = algorithm(ring_all_reduce(8))
    structure = structure_of(found)
    cost = Costs(system).cost(found, structure, load_of(found, structure, 8), 64_000_000)
    rate = 64 * system.fabric.usable.value
    assert cost.transfer_ns == pytest.approx(1.75 * 64e6 / rate)


def test_what_a_system_lacks_is_said() -> None:
    system = load_system("h100")
    costs = Costs(replace(system, network=None))
    found = algorithm(ring_all_reduce(16))
    assert costs.ranks_per_node(found) == 8
    load = load_of(found, structure_of(found), 8)
    assert costs.lacks(found, load) is Lack.NICS
    assert Costs(system).lacks(found, load) is None
    assert Costs(replace(system, tuning=None)).lacks(found, load) is Lack.LATENCIES


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, None),
        ({"in_place": None}, None),
        ({"op": Op.ALL_GATHER}, "another operation"),
        ({"nranks": 8}, "for 4 ranks"),
        ({"nranks": None}, "for 4 ranks"),
        ({"count": 1026}, "count 1026 not a multiple of 4"),
        ({"count": 0}, "count 0 not a multiple of 4"),
        ({"size_bytes": 1023}, "for 1 KiB to 64 KiB"),
        ({"size_bytes": 65537}, "for 1 KiB to 64 KiB"),
        ({"size_bytes": None}, "the size of the class is unknown"),
        ({"in_place": False}, "in place only"),
    ],
)
def test_which_classes_are_served(changes: dict[str, object], why: str | None) -> None:
    found = algorithm(ring_all_reduce(4, minBytes=1024, maxBytes=65536, outofplace=0))
    assert refusal_words(refusal(found, row(**changes))) == why


def test_first_algorithm_serves_and_the_nearest_miss_is_told() -> None:
    small = ring_all_reduce(4, maxBytes=1024)
    files = [("small.xml", parse(small)), ("any.xml", parse(ring_all_reduce(4))),
             ("also.xml", parse(ring_all_reduce(4))), ("eight.xml", parse(ring_all_reduce(8))),
             ("cut.xml", parse(small[:200]))]  # fmt: skip
    classes = [row(), row(count=1023), row(nranks=2), row(op=Op.BROADCAST)]
    report = build_msccl(files, load_system("h100"), classes, "main")
    served, odd, two = report.classes
    assert (served.file, served.others, served.why) == ("any.xml", ("also.xml",), None)
    assert served.msccl_ns is not None
    assert served.library_ns is not None
    assert (odd.file, refusal_words(odd.why)) == (None, "count 1023 not a multiple of 4")
    assert refusal_words(two.why) == "for 4 ranks"
    # of files that miss it alike the first one that would be tried tells why
    other = [(f"{n}.xml", parse(ring_all_reduce(n))) for n in (16, 8)]
    (told,) = build_msccl(other, None, [row(nranks=2)], "main").classes
    assert refusal_words(told.why) == "for 16 ranks"
    assert report.other_classes == 1
    assert report.algorithms[4].problem is not None


@pytest.mark.parametrize("system", [None, "h100"])
@pytest.mark.parametrize("classes", [None, [row(), row(op=Op.REDUCE)]])
def test_every_form_holds_the_report(system: str | None, classes: list[ClassRow] | None) -> None:
    files = [("ring.xml", parse(ring_all_reduce(4))), ("bad.xml", parse(b"<algo"))]
    machine = None if system is None else load_system(system)
    report = build_msccl(files, machine, classes, None if classes is None else "main")
    schema = json.loads((ROOT / "schemas" / "msccl.schema.json").read_text())
    jsonschema.validate(json.loads(render_msccl(report, "json")), schema)
    for form in FORMATS:
        assert "ring.xml" in render_msccl(report, form)
    assert "bad.xml: The file is cut" in render_msccl(report, "text")


def test_the_command(tmp_path: Path, samples: Path) -> None:
    (tmp_path / "ring.xml").write_bytes(ring_all_reduce(8, minBytes=1024))
    (tmp_path / "cut.xml").write_bytes(ring_all_reduce(8)[:500])
    (tmp_path / "notes.txt").write_text("not read")
    db = str(tmp_path / "t.db")
    log = str(samples / "rccl" / "guide-coll-klke.log")
    assert collscope("ingest", "log", log, "--db", db).code == 0
    found = collscope(
        "msccl",
        str(tmp_path),
        "--db",
        db,
        "--run",
        "main",
        "--system",
        "mi300x",
        "--format",
        "json",
    )
    assert found.code == 0
    report = json.loads(found.out)
    # The guide's log has one large and two small all-reduces on 8 ranks, all in place.
    assert [(c["size_bytes"], c["file"] is not None) for c in report["classes"]] == [
        (536870912, True), (72, False), (8, False)
    ]  # fmt: skip
    assert collscope("msccl", str(tmp_path), "--strict").code == 3
    assert collscope("msccl", str(tmp_path / "cut.xml")).code == 3
    assert collscope("msccl", str(tmp_path / "none.xml")).code == 3
    assert collscope("msccl", str(tmp_path), "--db", db, "--run", "other").code == 3
