"""What of a job's log reaches the ranks that `tune` starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import collscope
from inputs import ROOT

from collscope.cli.progress import progress
from collscope.cli.tune_inputs import TuneOptions, make_request
from collscope.replay.command import Choice, Source
from collscope.replay.session import Method, Options, make_session
from collscope.tuning.records import Variable
from collscope.tuning.settings import KNOBS, may_come_from_logs
from collscope.tuning.state import TuningRequest

_LINE = "NCCL_NVLS_ENABLE set by environment to 0."
# Variables whose value NCCL or RCCL loads, reads or writes as a file (NVIDIA/nccl env.rst,
# ROCm/rccl's environment variables), and words that are none of a knob.
_FILES = (
    "NCCL_TUNER_PLUGIN", "NCCL_TUNER_CONFIG_FILE", "COLLSCOPE_TUNER_CSV", "NCCL_PROFILER_PLUGIN",
    "NCCL_NET_PLUGIN", "NCCL_ENV_PLUGIN", "NCCL_GIN_PLUGIN", "NCCL_CONF_FILE", "NCCL_TOPO_FILE",
    "NCCL_GRAPH_FILE", "NCCL_DEBUG_FILE", "NCCL_TOPO_DUMP_FILE", "RCCL_TUNER_PLUGIN",
    "RCCL_MSCCL_ALGO_DIR", "MSCCL_XML_FILES", "LD_PRELOAD", "LD_LIBRARY_PATH",
    "NCCL_ALGO", "NCCL_BUFFSIZE", "NCCL_P2P_LEVEL",
)  # fmt: skip


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of a log that sets a variable of each kind."""
    for name in KNOBS:
        monkeypatch.delenv(name, raising=False)
    sets = [
        *(f"{name} set by environment to /tmp/x.so" for name in _FILES),
        "NCCL_PROTO set by environment to ^LL128",
        "NCCL_MAX_CTAS set by environment to 16",
    ]
    for rank in range(2):
        lines = (ROOT / f"samples/nccl/ddp/rank{rank}.log").read_text().splitlines(keepends=True)
        at = next(i for i, line in enumerate(lines) if _LINE in line)
        lines[at:at] = [lines[at].replace(_LINE, text) for text in sets]
        (tmp_path / f"rank{rank}.log").write_text("".join(lines))
    assert collscope("ingest", "log", tmp_path, "--db", tmp_path / "t.db").code == 0
    return tmp_path / "t.db"


def _request(db: Path, *environment: str) -> tuple[TuningRequest, tuple[str, ...]]:
    options = TuneOptions(
        Source(db, "main"), Choice(), make_session(Method(), Options((), environment)), (), None,
        None, None, 1, db.parent / "out", None, 10.0, 1,
    )  # fmt: skip
    return make_request(options, progress())


def test_a_log_names_no_file_that_the_ranks_load(job: Path) -> None:
    request, notices = _request(job)
    assert request.present == (
        Variable("NCCL_PROTO", "^LL128", "logs"),
        Variable("NCCL_MAX_CTAS", "16", "logs"),
    )
    assert request.kept == (("NCCL_NVLS_ENABLE", "0"),)
    (told,) = [n.text for n in notices if n.code == "variables_left_out"]
    for name in ("NCCL_TUNER_PLUGIN", "NCCL_TUNER_CONFIG_FILE", "COLLSCOPE_TUNER_CSV", "NCCL_ALGO"):
        assert name in told
    # the job's own ranks have it all the same: the result takes it from them
    assert "NCCL_TUNER_PLUGIN" in request.left_out


def test_env_names_what_a_log_may_not(job: Path) -> None:
    request, notices = _request(job, "NCCL_TUNER_PLUGIN=/mine.so", "NCCL_ALGO=")
    assert Variable("NCCL_TUNER_PLUGIN", "/mine.so", "--env") in request.present
    (told,) = [n.text for n in notices if n.code == "variables_left_out"]
    assert "NCCL_TUNER_PLUGIN" not in told
    assert "NCCL_ALGO" not in told


@pytest.mark.parametrize(
    ("name", "value", "taken"),
    [
        ("NCCL_BUFFSIZE", "8388608", True),
        ("NCCL_BUFFSIZE", "0x800000", True),
        ("NCCL_BUFFSIZE", "-2", True),
        ("NCCL_BUFFSIZE", "9223372036854775807", False),  # an int keeps it
        ("NCCL_BUFFSIZE", "2147483648", False),
        ("NCCL_BUFFSIZE", "0x100000000", False),
        ("NCCL_LL_BUFFSIZE", "9" * 19, False),
        ("NCCL_P2P_NET_CHUNKSIZE", "4294967296", False),
        ("NCCL_MAX_NCHANNELS", "112", True),
        ("NCCL_MAX_NCHANNELS", "010", True),  # 8
        ("NCCL_MAX_NCHANNELS", "99999999999999999", False),
        ("NCCL_MIN_P2P_NCHANNELS", "-7", False),
        ("NCCL_NTHREADS", "512", True),
        ("NCCL_NTHREADS", "65536", False),
        ("NCCL_IB_QPS_PER_CONNECTION", "128", True),
        ("NCCL_IB_QPS_PER_CONNECTION", "129", False),
        ("NCCL_NVLS_ENABLE", "2", True),
        ("NCCL_NVLS_ENABLE", "4294967296", False),
        ("NCCL_P2P_LEVEL", "NVL", True),
        ("NCCL_P2P_LEVEL", "5", True),
        ("NCCL_P2P_LEVEL", "evil", False),
        ("NCCL_THREAD_THRESHOLDS", "8 8 64 512", True),
        ("NCCL_THREAD_THRESHOLDS", f"8 {'9' * 19}", False),
    ],
)
def test_numbers_of_a_log_are_ones_that_the_library_can_take(
    name: str, value: str, taken: bool
) -> None:
    assert may_come_from_logs(name, value) == taken


def test_every_number_that_a_log_may_set_has_a_bound() -> None:
    words = {"NCCL_ALGO", "NCCL_PROTO", "NCCL_THREAD_THRESHOLDS"}
    for name in {*KNOBS, "NCCL_IB_DISABLE", "NCCL_PXN_DISABLE", "NCCL_COLLNET_ENABLE"} - words:
        assert not may_come_from_logs(name, "99999999999999999")


def test_what_is_left_out_is_named_where_tune_fails(job: Path) -> None:
    done = collscope("tune", "--db", job, "--backend", "host", "--out", job.parent / "out")
    assert done.code != 0
    assert "set in the logs, but not for these measurements" in done.err
    for name in ("NCCL_BUFFSIZE", "NCCL_NET_PLUGIN", "NCCL_TOPO_FILE", "LD_PRELOAD"):
        assert name in done.err
