"""Extracts the actual error from the long messages of Spark."""

from __future__ import annotations

from infobus import errors
from infobus.errors import BusError, UsageError

_OURS = "infobus.errors."


def what_happened(error: BaseException) -> str:
    """Return one line: an error of ours that Spark has wrapped, or Spark's own first line.

    >>> what_happened(RuntimeError("Job aborted\\n  infobus.errors.StoreError: no disk\\n  at ..."))
    'StoreError: no disk'
    >>> what_happened(RuntimeError("Job aborted\\nbecause"))
    'Job aborted'
    """
    if isinstance(error, BusError):
        return f"{type(error).__name__}: {error}"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if line.startswith(_OURS)]
    if told:
        return told[-1].removeprefix(_OURS)
    return lines[0] if lines else type(error).__name__


def class_of(problem: str) -> type[BusError] | None:
    """Return the class of the error, if it is one of ours.

    >>> class_of("StoreError: no disk").__name__, class_of("Job aborted")
    ('StoreError', None)
    """
    found = getattr(errors, problem.partition(":")[0], None)
    return found if isinstance(found, type) and issubclass(found, BusError) else None


def unwrapped(error: Exception) -> Exception:
    """Return the error of ours that Spark has wrapped, for a command to report; else `error`."""
    problem = what_happened(error)
    found = class_of(problem)
    if found is None:
        return error
    kind = UsageError if issubclass(found, UsageError) else BusError
    return kind(problem.partition(": ")[2])
