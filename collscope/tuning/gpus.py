"""Whether there is a GPU to tune on, asked before anything is measured."""

from __future__ import annotations

from collscope.errors import MissingToolError
from collscope.replay.probe import probe
from collscope.replay.session import Session

NO_GPU = (
    "tune: NCCL and RCCL find no usable GPU here ('collscope doctor' shows why). Run it where the "
    "job runs, or name the library with --library."
)


def refuse_host(session: Session) -> None:
    """Refuse to tune where there is nothing to set.

    raises  MissingToolError
    """
    if session.method.backend == "host":
        raise MissingToolError(
            "tune: --backend host has no settings to tune. Run it on GPUs, where the job runs."
        )


def require_gpu(session: Session, processes: int) -> None:
    """Refuse to tune where there are no GPUs; a named library is trusted.

    processes  that a launch starts; several come from the launcher, perhaps on other hosts
    raises     MissingToolError
    """
    refuse_host(session)
    if session.method.library is None and probe(session, processes).gpus is False:
        raise MissingToolError(NO_GPU)
