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
import re
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

_FOLDER = os.path.dirname(__file__)
_LOOK_S = 0.01

_SOURCE_PLACE = re.compile(r"\s*\bat \S+\.rs:\d+\.?")

_library: ModuleType | None = None
_copies = 0
_has_all_threads: bool | None = None  # None before its first session: that one decides


def zenoh_library(*, forwards: bool = False) -> ModuleType:
    """Return a Zenoh library whose threads run in this process.

    One that `forwards` has all its threads, see `threads_of_session`: if other sessions of this
    process do with few, it is another copy.
    """
    global _library
    if forwards and _has_all_threads is False:
        _leave_library()
    if _library is None:
        import zenoh

        _library = zenoh if _copies == 0 else _fresh_copy(Path(zenoh.__file__).parent)
    return _library


@contextmanager
def threads_of_session(*, forwards: bool) -> Iterator[None]:
    """While the first session opens: let Zenoh watch links on the threads that read them.

    Zenoh reads this from the environment once in a process; a value that the user set is kept.
    Never for a session that forwards: while it waits for a full link, nobody would learn that there
    is room again. Objects of 40 kB then passed it at 5 to 24 a second instead of 3,100.
    """
    global _has_all_threads
    if _has_all_threads is None:
        _has_all_threads = forwards
    if forwards or _RUNTIME in os.environ:
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
    """Run `function` on a thread for which no program waits to end."""
    name = f"infobus-{_CALLBACK_THREAD}"
    threading.Thread(target=function, args=(argument,), name=name, daemon=True).start()


def wait_for_library_threads(patience_s: float) -> None:
    """At exit, after all sessions are closed: wait until no thread is in the library any more.

    One that comes back from it while the interpreter shuts down aborts the process (SIGABRT):
    Python unwinds the thread, and Rust does not allow that. Looks are counted, not seconds: this
    process may be stopped here, and the others need their turn after that.
    """
    for _ in range(round(patience_s / _LOOK_S)):
        if not any(map(_is_in_library, threading.enumerate())):
            return
        time.sleep(_LOOK_S)


def _is_in_library(thread: threading.Thread) -> bool:
    if thread is threading.current_thread():
        return False
    if _CALLBACK_THREAD in thread.name:
        return True
    # While a thread is in the library, the innermost frame is that of our function that called it.
    frame = sys._current_frames().get(thread.ident or 0)
    return frame is not None and os.path.dirname(frame.f_code.co_filename) == _FOLDER


def plain_text(error: Exception) -> str:
    """What an error of the library says, without the places in its source code."""
    return _SOURCE_PLACE.sub("", str(error)).strip()


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


def _leave_library() -> None:
    global _library, _copies, _has_all_threads
    if _library is not None:
        never_free(_library)
        _library, _has_all_threads = None, None
        _copies += 1


os.register_at_fork(after_in_child=_leave_library)
