"""`collscope bench ceilings`: what the library reaches on this machine, as a system to judge by."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from collscope.cli import replay_options
from collscope.cli.options import (
    DEFAULT_DB,
    SYSTEM,
    SYSTEM_VARIABLE,
    Db,
    Run,
    require_writable,
    write,
)
from collscope.cli.values import complete_system
from collscope.gpu_vendors import Backend

# Seven operations at eleven sizes: 77 classes, a second each.
_SWEEP = "allreduce,allgather,reducescatter,broadcast,reduce,alltoall,sendrecv:1K..1G*4"


def ceilings(
    ranks: Annotated[int, typer.Option("-n", "--ranks", help="Ranks (GPUs).", min=2)],
    system: Annotated[
        str,
        typer.Option(
            "--system",
            autocompletion=complete_system,
            envvar=SYSTEM_VARIABLE,
            help=f"The machine: {SYSTEM}.",
        ),
    ],
    save: Annotated[
        Path, typer.Option("--save", help="System file to write, for --system of other commands.")
    ] = Path("ceilings.toml"),
    sweep: Annotated[
        str, typer.Option("--sweep", help="Operations and sizes, as for replay.")
    ] = _SWEEP,
    nodes: Annotated[int, typer.Option("--nodes", help="Nodes.", min=1)] = 1,
    backend: replay_options.BackendOption = Backend.AUTO,
    library: replay_options.Library = None,
    runtime: replay_options.Runtime = None,
    budget: Annotated[float, typer.Option("--budget", help="Seconds per class.", min=0)] = 0.3,
    timeout: replay_options.LaunchTimeout = None,
    env: replay_options.Environment = None,
    mpiexec: replay_options.Mpiexec = None,
    label: Annotated[str, typer.Option("--label", help="Label of the measurements.")] = "ceilings",
    db: Db = DEFAULT_DB,
    run: Run = "main",
) -> None:
    """Measure the bandwidth that the library reaches here.

    Possible savings then refer to this machine: report --system ceilings.toml.
    """
    from collscope.replay.measure import measure
    from collscope.replay.session import Method, Options, Target, make_session
    from collscope.replay.sweep import sweep_plan
    from collscope.reports.roofline.answer import require_base, text_of_fit
    from collscope.roofline.fit import fit

    require_base(system)  # before it is measured
    require_writable(save, "--save")
    planned = sweep_plan(sweep, nranks=ranks)
    method = Method(
        backend=backend.value, library=library, runtime=runtime, budget_s=budget, timeout_s=timeout
    )
    session = make_session(
        method, Options(ranks=ranks, environment=tuple(env or ()), launcher=mpiexec)
    )
    outcome = measure(planned.plan, session, Target(db, run, label=label))
    if outcome.measurements:
        fitted = fit(outcome.measurements, label, nnodes=nodes)
        write(text_of_fit(system, fitted, save), save, option="--save")
        write(f"{save}: {len(fitted.curves)} operations. Give it as --system {save}.", None)
    if outcome.notice is not None:
        write(f"bench ceilings: {outcome.notice.text}", None)
    if outcome.error is not None:
        raise outcome.error
