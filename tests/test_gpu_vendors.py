"""The table of GPU vendors in Python and the replayer's: the same rows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from inputs import ROOT

from collscope import gpu_libraries
from collscope.gpu_vendors import LIBRARIES, VENDORS, Backend, Library, Vendor

_TABLE = (ROOT / "native" / "replayer" / "gpu" / "vendors.h").read_text()
_ROWS = dict(re.findall(r"constexpr Vendor (\w+) = \{\n(.*?)\n\};", _TABLE, re.DOTALL))


def _field(row: str, name: str) -> str:
    """Value of a field of a row: all up to the next one."""
    found = re.search(rf"^    \.{name} = (.*?),(?:\s*//[^\n]*)?(?=\n    \.|\Z)", row, re.S | re.M)
    assert found is not None, name
    return found[1]


def _library(row: str, field: str) -> tuple[str, tuple[str, ...]]:
    """Label and sonames."""
    names = re.findall(r'"([^"]+\.so[^"]*)"', _field(row, field))
    return _field(row, f"{field}_label").strip('"'), tuple(names)


def _told(library: Library) -> tuple[str, tuple[str, ...]]:
    return library.name, library.sonames


def test_both_tables_have_the_same_vendors() -> None:
    (order,) = re.findall(r"std::array vendors = \{(.*?)\};", _TABLE)
    assert sorted(_ROWS) == sorted(order.replace("&", "").split(", "))
    assert {v.backend.value for v in VENDORS} == set(_ROWS)
    assert {b.value for b in Backend} == {"auto", "host", *_ROWS}


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda v: v.backend.value)
def test_a_vendor_has_the_same_libraries_in_both_tables(vendor: Vendor) -> None:
    name = vendor.backend.value
    row = _ROWS[name]
    assert _field(row, "name") == f'"{name}"'
    assert _library(row, "library") == _told(vendor.collectives)
    assert _library(row, "runtime") == _told(vendor.runtime)
    assert _field(row, "library_name") == f'"{vendor.collectives.name.lower()}"'
    assert _field(row, "runtime_version") == vendor.runtime.version.__name__
    assert vendor.runtime.version_symbol == f"{name}RuntimeGetVersion"
    assert vendor.runtime.count_symbol == f"{name}GetDeviceCount"


def test_libraries_of_wheels_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for library in LIBRARIES:
        vendor = "nvidia/x" if library.stem in {"libcudart", "libnccl"} else "_rocm_sdk_core"
        folder = tmp_path / vendor / "lib"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / library.sonames[0]).touch()
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    monkeypatch.setenv("ROCM_PATH", str(tmp_path / "none"))
    for library in LIBRARIES:
        (found,) = [c for c in gpu_libraries._candidates(library) if c.startswith(str(tmp_path))]
        assert Path(found).name == library.sonames[0]
