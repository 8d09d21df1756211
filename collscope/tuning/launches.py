"""One start of the replayer per setting; all rows go to one CSV, with a label and a round each."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterable
from pathlib import Path

import msgspec
from msgspec.structs import replace

from collscope.errors import InputError, MissingToolError, UsageError
from collscope.model import Measurement
from collscope.replay.launch import Job as Start
from collscope.replay.launch import run_job
from collscope.replay.measure import replayer_arguments
from collscope.replay.plan import Plan
from collscope.replay.results import read_results
from collscope.replay.scratch import scratch_folder, write_plan
from collscope.replay.session import Session
from collscope.replay.variants import Variant
from collscope.tuning.settings import Setting
from collscope.units import count_of
from collscope.writing import one_line

# Errors that another setting does not mend.
_FATAL = {2: UsageError, 3: InputError, 5: MissingToolError}


class Launched(msgspec.Struct, frozen=True):
    """What a start left: rows by class of the plan, and why they are not all there."""

    rows: dict[int, Measurement]
    problem: str | None
    seconds: float


class Launches:
    """Starts settings on classes of a plan; what was measured stays in the CSV."""

    def __init__(
        self, plan: Plan, session: Session, csv: Path, kept: Iterable[tuple[str, str]]
    ) -> None:
        """Starts whose rows go to `csv`, a new file.

        kept  variables of every start; without a value: one that no rank may inherit
        """
        self.plan = plan
        self.csv = csv
        self.count = 0
        self._session = session
        values = dict(kept)
        self._kept = {name: value for name, value in values.items() if value}
        self._unset = tuple(name for name, value in values.items() if not value)
        csv.unlink(missing_ok=True)

    def start(
        self,
        setting: Setting,
        classes: Collection[int],
        number: int,
        *,
        verify: bool,
        label: str | None = None,
    ) -> Launched:
        """Measure classes with a setting, one process per rank that reads its environment anew.

        number  of the round; with the label it names the rows, so it must not come twice
        raises  UsageError, InputError, MissingToolError when no setting could be measured;
                KeyboardInterrupt after the ranks ended
        """
        chosen = [c for c in self.plan.classes if c.id in classes]
        part = replace(self.plan, classes=tuple(chosen))
        begin = time.monotonic()
        name = label or setting.name
        with scratch_folder(self.csv) as folder:
            plan_file = write_plan(part, folder / "plan")
            status, signal = self._run(setting, name, number, plan_file, verify=verify)
        self.count += 1
        rows = [m for m in read_results(self.csv) if (m.label, m.round) == (name, number)]
        found = {c.id: m for c, m in zip(chosen, rows, strict=False)}
        return Launched(found, _problem(status, signal, found, len(chosen)), _since(begin))

    def _run(
        self, setting: Setting, name: str, number: int, plan_file: Path, *, verify: bool
    ) -> tuple[int, int | None]:
        session = self._session
        method = session.method if verify else replace(session.method, verify=0)
        files = (plan_file, self.csv.absolute())
        arguments = replayer_arguments(method, Variant(name), number, files)
        if self.csv.exists():
            arguments.append("--append")
        environment = {**dict(session.environment), **self._kept, **dict(setting.environment)}
        ended = run_job(
            Start(
                tuple(arguments),
                self.plan.nranks // method.gpus_per_process,
                tuple(environment.items()),
                session.replayer,
                session.launcher,
                (*setting.unset, *self._unset),
            ),
            session.place,
        )
        if ended.status in _FATAL:
            raise _FATAL[ended.status](
                f"tune: the replayer ended with status {ended.status} for setting '{setting.name}',"
                " see above. Fix that first."
            )
        return ended.status, ended.signal


def _problem(
    status: int, signal: int | None, rows: dict[int, Measurement], wanted: int
) -> str | None:
    """Why a start did not measure everything; None when it did."""
    if signal is not None:
        return f"a rank was killed by signal {signal}"
    timeout = next((m for m in rows.values() if m.status == "timeout"), None)
    if timeout is not None:
        return timeout.message or "no result in time"
    if len(rows) < wanted:
        of = count_of(len(rows), wanted, "class", "classes")
        return f"the replayer ended with status {status} after {of}"
    return None


def _since(begin: float) -> float:
    return time.monotonic() - begin


def print_progress(text: str, *, always: bool = False) -> None:
    """Print a line for the user; `always`: also off a terminal, to explain the replayer's lines."""
    if always or sys.stderr.isatty():
        sys.stderr.write(f"tune: {one_line(text)}\n")
