"""What packages and pages say of the project is what pyproject.toml says."""

from __future__ import annotations

import ast
import re
import subprocess
from email import message_from_bytes
from importlib.metadata import distribution

import pytest
from inputs import ROOT

tomllib = pytest.importorskip("tomllib")
yaml = pytest.importorskip("yaml")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Names that conda and Spack give otherwise.
CONDA = {"matplotlib": "matplotlib-base"}


def _requirements() -> dict[str, str]:
    """Version bounds by name, of what every installation needs."""
    found = {}
    for line in PROJECT["dependencies"]:
        name, bounds = re.fullmatch(r"([\w.-]+)([^;]*).*", line).groups()  # type: ignore[union-attr]
        found[name] = bounds.strip()
    return found


def test_the_version_is_one() -> None:
    version = PROJECT["version"]
    (head, *_) = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    conda = (ROOT / "packaging/conda/meta.yaml").read_text()
    spack = (ROOT / "packaging/spack/package.py").read_text()
    assert head == version == citation["version"]
    assert f'set version = "{version}"' in conda
    assert f'version("{version}")' in spack


def test_the_metadata_has_what_an_index_shows() -> None:
    told = message_from_bytes((distribution("collscope").read_text("METADATA") or "").encode())
    assert told["Description-Content-Type"] == "text/markdown"
    assert str(told.get_payload()).lstrip().startswith("# collscope")
    assert told["Author"] == "The collscope project"
    assert len(told.get_all("Classifier") or ()) > 10


def test_conda_asks_for_the_same() -> None:
    text = (ROOT / "packaging/conda/meta.yaml").read_text()
    plain = re.sub(r"\{%.*?%\}", "", text)
    recipe = yaml.safe_load(re.sub(r"\{\{.*?\}\}", "x", plain))
    run = dict(line.split(" ", 1) for line in recipe["requirements"]["run"])
    assert run.pop("python") == PROJECT["requires-python"]
    assert run == {CONDA.get(name, name): bounds for name, bounds in _requirements().items()}
    assert recipe["about"]["license"] == PROJECT["license"]


def test_spack_asks_for_the_same() -> None:
    tree = ast.parse((ROOT / "packaging/spack/package.py").read_text())
    asked = {
        node.args[0].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "depends_on"
        and isinstance(node.args[0], ast.Constant)
        and any(k.arg == "type" and "run" in ast.unparse(k.value) for k in node.keywords)
    }
    expected = {
        f"py-{name}@{lowest}" + ":" * ("<" not in bounds)
        for name, bounds in _requirements().items()
        if (lowest := re.match(r">=([\d.]+)", bounds)[1])  # type: ignore[index]
    }
    assert asked - {"mpi", "python@3.10:"} == expected


def test_templates_of_issues_are_forms() -> None:
    forms = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))
    assert len(forms) == 4
    for path in forms:
        form = yaml.safe_load(path.read_text())
        if path.stem != "config":
            assert {"name", "description", "body"} <= form.keys()
            assert all({"type", "id", "attributes"} <= part.keys() for part in form["body"])


def test_an_unreleased_version_gets_no_tag() -> None:
    if "(unreleased)" not in (ROOT / "CHANGELOG.md").read_text().split("\n## ")[1]:
        pytest.skip("the head of the changelog is released")
    done = subprocess.run(["make", "tag"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "is not released. Give it a date first." in done.stdout
