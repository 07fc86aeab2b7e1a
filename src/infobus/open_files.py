"""A process that has used up its open files is told so in words.

Much of the bus is loaded when it is first needed, and loading a module opens a file.
"""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

from infobus.errors import DeliveryError


@contextmanager
def open_files_needed() -> Iterator[None]:
    """If no file can be opened, raise a `DeliveryError` and no bare `OSError` or `ImportError`.

    Use it as a decorator, on what happens before anything is accepted: the error says so.
    """
    try:
        yield
    except (OSError, ImportError) as error:
        if not _is_out_of_files(error):
            raise
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        raise DeliveryError(
            f"no more files can be opened (this process may have {limit}), so nothing was done; "
            f"close some or raise the limit (ulimit -n), and try again: {error}"
        ) from error


def _is_out_of_files(error: OSError | ImportError) -> bool:
    if isinstance(error, OSError):
        return error.errno in (errno.EMFILE, errno.ENFILE)
    try:  # a shared library that cannot be opened only says so in its text
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as now:
        return _is_out_of_files(now)
    return False
