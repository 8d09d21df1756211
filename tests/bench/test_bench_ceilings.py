"""What a machine has done as its ceiling: `roofline --fit --save` and `bench ceilings`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import collscope

from collscope.errors import InputError
from collscope.model import Op
from collscope.programs import REPLAYER, installed
from collscope.roofline.catalogue import load_system
from collscope.roofline.roof import Roofs
from collscope.roofline.system_file import parse_system
from collscope.roofline.workload import Workload

TABLE = """\
#       size         count      type   redop    root     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)
     1048576        262144     float     sum      -1    50.00   20.97   36.70      0
    16777216       4194304     float     sum      -1   400.00   41.94   73.40      0
"""


def test_a_table_becomes_a_system(tmp_path: Path) -> None:
    db, table, saved = tmp_path / "t.db", tmp_path / "t.txt", tmp_path / "mine.toml"
    table.write_text(TABLE)
    words = ("--op", "AllReduce", "--ranks", "8", "--label", "mine", "--db", db)
    assert collscope("ingest", "table", table, *words).code == 0
    assert collscope("roofline", "h100", "--fit", "mine", "--save", saved, "--db", db).code == 0
    system = load_system(str(saved))
    assert (system.name, system.fabric) == ("mine", load_system("h100").fabric)
    found = Roofs(system).ceilings(Workload(Op.ALL_REDUCE, 16777216, 8))
    assert found is not None
    assert found.reachable.time_ns == pytest.approx(400_000)
    assert "measurements of label mine" in found.reachable.assumptions[0].text
    # other operations have the links' own ceiling
    other = Roofs(system).ceilings(Workload(Op.ALL_GATHER, 16777216, 8))
    plain = Roofs(load_system("h100")).ceilings(Workload(Op.ALL_GATHER, 16777216, 8))
    assert other is not None
    assert plain is not None
    assert other.reachable.time_ns == plain.reachable.time_ns
    report = collscope("report", "--system", saved, "--db", db, "--format", "json")
    classes = json.loads(report.out)["judgement"]["classes"]
    assert [row["efficiency"] for row in classes] == [pytest.approx(1.0), pytest.approx(1.0)]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("sizes = [1, 2]", "sizes = [1]", "as many times as sizes"),
        ("times_us = [1.0, 2.0]", "times_us = [1.0, -2.0]", "above 0"),
        ('op = "AllReduce"', 'op = "Nothing"', "each operation and shape once"),
    ],
)
def test_curves_that_cannot_be_are_refused(old: str, new: str, message: str) -> None:
    text = (
        'name = "x"\ntitle = "x"\nbase = "h100"\n[[measured]]\nop = "AllReduce"\nnranks = 8\n'
        'sizes = [1, 2]\ntimes_us = [1.0, 2.0]\nsource = "a test"\n'
    )
    assert len(parse_system(text, "x.toml", load_system).measured) == 1
    with pytest.raises(InputError, match=message):
        parse_system(text.replace(old, new), "x.toml", load_system)


def test_a_file_is_no_base(tmp_path: Path) -> None:
    own = tmp_path / "a.toml"
    own.write_text(f'name = "a"\ntitle = "a"\nbase = "{own}"\n')
    with pytest.raises(InputError, match="Name a system of collscope roofline --list"):
        load_system(str(own))


def test_a_sweep_becomes_a_system(tmp_path: Path) -> None:
    if installed(REPLAYER) is None:
        pytest.skip("the replayer was not built with this installation")
    saved = tmp_path / "c.toml"
    done = collscope(
        "bench", "ceilings", "-n", "2", "--system", "pcie-gen4", "--save", saved,
        "--sweep", "allreduce,sendrecv:1K,64K", "--backend", "host", "--budget", "0.02",
        "--db", tmp_path / "t.db",
    )  # fmt: skip
    assert done.code == 0, done.err
    shapes = {curve.key for curve in load_system(str(saved)).measured}
    assert shapes == {(Op.ALL_REDUCE, 2, 1), (Op.SEND_RECV, 2, 1)}
