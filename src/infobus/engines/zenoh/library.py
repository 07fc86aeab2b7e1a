"""Loads and controls the Zenoh library within a Python process: its threads, and forks.

The library holds its runtime in static variables. After a fork its threads are gone but the
variables still say that they run, so in the child nothing is sent and closing waits for ever. A
second copy of the library has variables of its own. The child therefore loads one (35 ms and 33 MB
of address space, measured); the parent's objects stay behind, never freed.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TypeVar

_Result = TypeVar("_Result")
_Argument = TypeVar("_Argument")

# By default Zenoh learns on one thread that a link can be read, and reads it on another: one more
# sleeping thread to wake for every frame, which took 40 us on each side of a round trip.
_RUNTIME = "ZENOH_RUNTIME"
_FEW_THREADS = "(acc: (handover: rx), net: (handover: rx))"

_LARGE_BYTES = 8 * 1024 * 1024

_CALLBACK_THREAD = "pyo3-closure"  # as Zenoh names the threads that it starts itself

_library: ModuleType | None = None
_copies = 0


def zenoh_library() -> ModuleType:
    """Return a Zenoh library whose threads run in this process."""
    global _library
    if _library is None:
        import zenoh

        _library = zenoh if _copies == 0 else _fresh_copy(Path(zenoh.__file__).parent)
    return _library


@contextmanager
def few_threads() -> Iterator[None]:
    """While the first session opens: let Zenoh watch links on the threads that read them.

    Zenoh reads this from the environment once in a process; a value that the user set is kept.
    """
    if _RUNTIME in os.environ:
        yield
        return
    os.environ[_RUNTIME] = _FEW_THREADS
    try:
        yield
    finally:
        os.environ.pop(_RUNTIME, None)


def keep_freed_memory() -> None:
    """Reuse the memory of one large frame for the next.

    glibc returns free memory beyond 128 KiB to the system, which then has to allocate and clear
    every page of the next frame. But its limit follows the largest block that was ever freed: it
    keeps twice that size.
    """
    bytes(_LARGE_BYTES)


def in_daemon_thread(
    function: Callable[[], _Result], timeout_s: float | None = None
) -> _Result | None:
    """Run `function` so that the threads it starts are daemons; wait for it up to `timeout_s`.

    Zenoh starts one Python thread per callback, as an ordinary thread for which the interpreter
    waits at exit. A thread is a daemon if the thread that started it is one.
    """
    outcome: list[_Result] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            outcome.append(function())
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="infobus-zenoh", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if errors:
        raise errors[0]
    return outcome[0] if outcome else None


def call_at_exit_of_child(function: Callable[[], None]) -> None:
    """Call `function` when this process ends, if it is a child of `multiprocessing`.

    Such a child ends without running the functions registered with `atexit`.
    """
    multiprocessing = sys.modules.get("multiprocessing")
    if multiprocessing is not None and multiprocessing.parent_process() is not None:
        from multiprocessing.util import Finalize

        Finalize(None, function, exitpriority=0)


def start_callback_thread(function: Callable[[_Argument], None], argument: _Argument) -> None:
    """Run `function` on a thread that `join_callback_threads` waits for."""
    name = f"infobus-{_CALLBACK_THREAD}"
    threading.Thread(target=function, args=(argument,), name=name, daemon=True).start()


def join_callback_threads(timeout_s: float) -> None:
    """At exit, after all sessions are closed: wait for the callbacks that still run.

    A callback that runs while the interpreter shuts down aborts the process (SIGABRT): Python
    unwinds the thread, and Rust does not allow that.
    """
    deadline_s = time.monotonic() + timeout_s
    for thread in threading.enumerate():
        if _CALLBACK_THREAD in thread.name:
            thread.join(max(0.0, deadline_s - time.monotonic()))


def never_free(*things: object) -> None:
    """Keep `things` for ever: their destructors would wait for threads that a fork removed."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(list(things)))


def _fresh_copy(original: Path) -> ModuleType:
    name = f"infobus_zenoh_{_copies}"
    with tempfile.TemporaryDirectory(prefix="infobus-zenoh-") as folder:
        package = Path(folder) / name
        shutil.copytree(original, package, ignore=shutil.ignore_patterns("__pycache__"))
        spec = importlib.util.spec_from_file_location(
            name, package / "__init__.py", submodule_search_locations=[str(package)]
        )
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return module


def _after_fork_in_child() -> None:
    global _library, _copies
    if _library is not None:
        never_free(_library)
        _library = None
        _copies += 1


os.register_at_fork(after_in_child=_after_fork_in_child)
