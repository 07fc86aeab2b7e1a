"""How an exception travels: as the same class if the caller knows it, else as `RemoteError`."""

from __future__ import annotations

import builtins
import sys
import traceback
from typing import Any

from infobus import errors
from infobus.errors import BadFrame, BadValue, RemoteError
from infobus.objects import codec

MESSAGE_CHARS_MAX = 10_000
_KEPT_CHARS_MAX = 100_000
# They mean something else where they are raised again.
_UNFIT = (StopIteration, StopAsyncIteration, GeneratorExit)


def write_error(error: BaseException, *, with_traceback: bool) -> bytes:
    """An exception as bytes. What cannot be sent of it is left out."""
    kind = type(error)
    written: dict[str, Any] = {
        "module": kind.__module__,
        "type": kind.__qualname__,
        "message": _text_of(error)[:MESSAGE_CHARS_MAX],
    }
    if with_traceback:
        written["traceback"] = "".join(traceback.format_exception(error))[-_KEPT_CHARS_MAX:]
    try:
        state = {name: value for name, value in vars(error).items() if name[:1] != "_"}
        return codec.encode({**written, "args": list(error.args), "state": state})[1]
    except BadValue:
        return codec.encode(written)[1]


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
        # Without `__init__`: nothing that a stranger sends is handed to code.
        made = known.__new__(known, *args)
        made.args = tuple(args)
        made.__dict__.update(state)
        str(made)
    except Exception:
        return RemoteError(name, message, remote)
    if remote:
        made.add_note(f"at the server:\n{remote}")
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
