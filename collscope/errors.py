"""Exceptions with the exit code each one ends the command with.

A message reads ``<where>: <what is wrong>. <what to do>.`` Only caller problems raise;
problems in the content of an input are counted `Diagnostic` records (see `collscope.model`).
"""

from __future__ import annotations


class CollscopeError(Exception):
    """Base of every error that a command reports; `exit_code` is the process's exit status."""

    exit_code = 1


class UsageError(CollscopeError):
    """The command line asks for something that cannot be done."""

    exit_code = 2


class InputError(CollscopeError):
    """An input file or a store cannot be used."""

    exit_code = 3


class UnreadableError(InputError):
    """A file that cannot be opened, read on, or read safely; `reason` is why."""

    def __init__(self, path: str, reason: str, remedy: str) -> None:
        """With several inputs, this one is reported and the rest are read."""
        super().__init__(f"{path}: {reason}. {remedy}.")
        self.reason = reason
        self._arguments = path, reason, remedy

    def __reduce__(self) -> tuple[type[UnreadableError], tuple[str, str, str]]:
        """How another process gets it."""
        return type(self), self._arguments


class RefusedError(InputError):
    """A service does not do what it was asked for, and nothing has changed."""


class NoVerdictError(CollscopeError):
    """Nothing was measured, or the samples are too noisy to judge."""

    exit_code = 4


class MissingToolError(CollscopeError):
    """A needed program or library is not installed."""

    exit_code = 5


class ReplayError(CollscopeError):
    """The replay failed on the device."""

    exit_code = 6
