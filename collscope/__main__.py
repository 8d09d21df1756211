"""``python -m collscope``."""

from collscope.cli import main

main()
