"""How an exception travels: as the same class if the caller knows it, else as `RemoteError`.

Some errors of the bus speak about the caller's own call: that it has not run, or may be tried
again. From inside an operation, about a call that the operation made, they would be taken for
that. So they arrive as the cause of a `RemoteError`.
"""

from __future__ import annotations

import builtins
import sys
import traceback
from typing import Any

from infobus import errors
from infobus.errors import (
    BadCall,
    BadFrame,
    BadValue,
    BusClosed,
    CallMayHaveRun,
    DeliveryError,
    RemoteError,
)
from infobus.objects import codec

MESSAGE_CHARS_MAX = 10_000
_KEPT_CHARS_MAX = 100_000
# They mean something else where they are raised again.
_UNFIT = (StopIteration, StopAsyncIteration, GeneratorExit)
_ABOUT_A_CALL = (DeliveryError, BadCall, BusClosed)
_FROM_SERVERS = (BadCall, CallMayHaveRun)  # what a server says itself about a call


def write_error(error: BaseException, *, with_traceback: bool) -> bytes:
    """An exception that a server reports itself, as bytes."""
    return write_raised(error, with_traceback=with_traceback, is_from_operation=False)[0]


def write_raised(
    error: BaseException, *, with_traceback: bool, is_from_operation: bool = True
) -> tuple[bytes, tuple[int, ...]]:
    """An exception as bytes, and the types that a reader needs.

    What cannot be sent of it is left out.
    """
    kind = type(error)
    written: dict[str, Any] = {
        "module": kind.__module__,
        "type": kind.__qualname__,
        "message": _text_of(error)[:MESSAGE_CHARS_MAX],
    }
    if with_traceback:
        written["traceback"] = "".join(traceback.format_exception(error))[-_KEPT_CHARS_MAX:]
    if is_from_operation and isinstance(error, _ABOUT_A_CALL):
        written["nested"] = True
    try:
        state = {name: value for name, value in vars(error).items() if name[:1] != "_"}
        whole = {**written, "args": _arguments_of(error), "state": state}
        return codec.encode(whole)[1:]
    except BadValue:
        return codec.encode(written)[1:]


def _arguments_of(error: BaseException) -> list[Any]:
    """What the class was called with; `args` of an `OSError` lack the names of files."""
    if isinstance(error, OSError) and len(error.args) == 2:
        names = (
            [error.filename] if error.filename2 is None else [error.filename, None, error.filename2]
        )
        return [*error.args, *(names if error.filename is not None else [])]
    return list(error.args)


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "(its message cannot be shown)"


def read_error(encoded: bytes) -> Exception:
    """The exception in some bytes."""
    try:
        written = codec.decode(0, encoded)
    except BadFrame as error:
        return RemoteError("unknown", f"its description cannot be read: {error}")
    name, message = str(written.get("type", "")), str(written.get("message", ""))
    remote = str(written.get("traceback", ""))
    args, state = written.get("args"), written.get("state")
    known = _class_of(str(written.get("module", "")), name)
    if known is None or not isinstance(args, list) or not isinstance(state, dict):
        return RemoteError(name, message, remote)
    try:
        made = _made(known, args, state, message)
    except Exception:
        return RemoteError(name, message, remote)
    is_misleading = isinstance(made, _ABOUT_A_CALL) and not isinstance(made, _FROM_SERVERS)
    if is_misleading or written.get("nested"):
        wrapped = RemoteError(name, message, remote)
        wrapped.__cause__ = made
        return wrapped
    if remote:
        made.add_note(f"at the server:\n{remote}")
    return made


def _made(
    known: type[Exception], args: list[Any], state: dict[str, Any], message: str
) -> Exception:
    """An exception of that class, which says what the sent one said."""
    if known.__module__ == "builtins":
        made = known(*args)  # some keep in C what `args` do not hold
    else:
        # Without `__init__`: nothing that a stranger sends is handed to code.
        made = known.__new__(known, *args)
        made.args = tuple(args)
    made.__dict__.update(state)
    if str(made)[:MESSAGE_CHARS_MAX] != message:
        made.args = (message,)
        if str(made)[:MESSAGE_CHARS_MAX] != message:
            raise ValueError("it cannot be made to say what was sent")
    return made


def _class_of(module: str, name: str) -> type[Exception] | None:
    """A class of exceptions that this process has loaded already."""
    home = {"builtins": builtins, "infobus.errors": errors}.get(module, sys.modules.get(module))
    found: Any = home
    for part in name.split("."):
        found = getattr(found, "__dict__", {}).get(part)  # no code of the module is run
    if not isinstance(found, type) or not issubclass(found, Exception):
        return None
    return None if issubclass(found, _UNFIT) else found
