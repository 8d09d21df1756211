"""Values of the command line: as typer converts them, and without what typer loads for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from command import collscope
from hypothesis import given
from hypothesis import strategies as st
from typer.main import get_command

from collscope.cli import COMMANDS
from collscope.cli.options import Format
from collscope.cli.values import convert_lightly, converted


def _parameters() -> dict[str, Any]:
    """One parameter of every kind that a command has, as typer makes it."""
    holder = typer.Typer(add_completion=False)

    @holder.command()
    def command(
        texts: list[str],
        text: str = "main",
        place: Path = Path("x"),
        whole: Annotated[int, typer.Option(min=1, max=64)] = 4,
        real: Annotated[float, typer.Option(min=0)] = 0,
        choice: Format = Format.TEXT,
    ) -> None:
        """Nothing."""

    return {parameter.name: parameter for parameter in get_command(holder).params}


PARAMETERS = _parameters()
WORDS = st.one_of(
    st.text(),
    st.integers(-3, 99).map(str),
    st.floats(-1, 9).map(str),
    st.sampled_from(
        ["", ".", "1.", ".5", "1e3", "nan", "٣", "0x1", "1_000", "json", "JSON", "TEXT"]
    ),
)


@pytest.mark.parametrize("name", [name for name in PARAMETERS if name != "texts"])
@given(word=WORDS.filter(lambda word: "\0" not in word))
def test_a_value_is_converted_as_typer_does_or_left_to_it(name: str, word: str) -> None:
    if name == "place" and not word:  # typer takes it for the current folder
        with pytest.raises(typer.BadParameter, match="the name is empty"):
            _agrees(name, word)
        return
    _agrees(name, word)


@given(words=st.lists(st.text()))
def test_several_values(words: list[str]) -> None:
    _agrees("texts", tuple(words))


@pytest.mark.parametrize(
    ("name", "default"), [(n, p.default) for n, p in PARAMETERS.items() if n != "texts"]
)
def test_a_default_needs_no_pydantic(name: str, default: object) -> None:
    assert _agrees(name, default) is not None


def _agrees(name: str, value: object) -> object:
    """What `converted` makes of a value, which is what typer makes of it, or None."""
    parameter = PARAMETERS[name]
    described = parameter.type_descriptor
    light = converted(value, described.annotation, described.parameter_info)
    if light is not None:
        told = parameter.get_runtime_param().coerce(value, param=parameter, ctx=None)
        assert (light, type(light)) == (told, type(told))
    return light


def _every(command: Any) -> list[Any]:  # noqa: ANN401 - click's command
    """Parameters of a command or a group of them."""
    within = [_every(each) for each in getattr(command, "commands", {}).values()]
    return [*command.params, *(parameter for rows in within for parameter in rows)]


def test_no_option_asks_more_of_a_path_than_that_it_can_be_read() -> None:
    for parameter in (p for command in COMMANDS for p in _every(command.built)):
        asked = parameter.type_descriptor.parameter_info
        more = (asked.exists, asked.writable, asked.resolve_path, asked.allow_dash)
        assert not any(more)
        assert all((asked.file_okay, asked.case_sensitive))  # `converted` looks at dir_okay


def test_it_may_be_asked_twice() -> None:
    command = COMMANDS[0].built
    before = [parameter.get_runtime_param for parameter in _every(command)]
    convert_lightly(command)
    assert [parameter.get_runtime_param for parameter in _every(command)] == before


def test_a_report_loads_no_pydantic(samples: Path, tmp_path: Path) -> None:
    store = str(tmp_path / "t.db")
    assert collscope("ingest", "log", samples / "nccl" / "mixed", "--db", store).code == 0
    script = (
        f"import sys; sys.argv = ['collscope', 'report', '--db', {store!r}, '--top', '3']\n"
        "from collscope.cli import main\n"
        "main()\n"
        "sys.exit('pydantic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
