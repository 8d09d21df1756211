"""Where the tuner plugin of this installation is, and the environment that makes a job load it."""

from __future__ import annotations

from pathlib import Path

from collscope.errors import MissingToolError

LIBRARY = "libcollscope-tuner.so"


def installed_plugin() -> Path | None:
    """The plugin that was built with this installation; None when it was not built."""
    # The build puts _lib beside the native modules, in a wheel as in an editable install.
    import collscope._logscan as native  # noqa: PLC0415 - as programs.installed_replayer does

    path = Path(native.__file__).parent / "_lib" / LIBRARY
    return path if path.is_file() else None


def plugin_environment(csv: Path) -> dict[str, str]:
    """Variables with which a job's NCCL or RCCL loads the plugin and applies a CSV.

    raises  MissingToolError when the plugin was not built
    """
    found = installed_plugin()
    if found is None:
        raise MissingToolError(
            f"{LIBRARY}: not in this installation. Install collscope with a C++ compiler present."
        )
    return {"NCCL_TUNER_PLUGIN": str(found), "COLLSCOPE_TUNER_CSV": str(csv.absolute())}
