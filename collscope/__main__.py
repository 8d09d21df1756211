"""``collscope`` and ``python -m collscope``."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C ends it in silence, also while its modules load."""
    try:
        from collscope import cli  # noqa: PLC0415 - what takes the time

        cli.main()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
