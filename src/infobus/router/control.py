"""The socket by which the commands of a host ask its routers: one question, one answer, as JSON."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from infobus import BusError, EngineError, UsageError
from infobus.engines.zenoh.rendezvous import private_folder

log = logging.getLogger("infobus.router")

Question = dict[str, Any]
Answer = Any

_QUESTION_BYTES_MAX = 64 * 1024
_ANSWER_BYTES_MAX = 64 * 1024 * 1024
_LISTEN_S = 2.0  # for a question, once somebody has called
_SUFFIX = ".router"


class ControlSocket:
    """Answers questions about one router; a host has at most one router of a name for each user.

    Args:
        name: The router's.
        answer: What to answer. A `BusError` that it raises goes to the one who asks.
    """

    def __init__(self, name: str, answer: Callable[[Question], Answer]) -> None:
        self._name = name
        self._path = _path(name)
        self._answer = answer
        self._socket: socket.socket | None = None

    def open(self) -> None:
        """Listen.

        Raises:
            EngineError: This host has a router of that name already, or there is no folder.
        """
        try:
            private_folder()
            if _is_answered(self._path):
                raise EngineError(
                    f"router {self._name!r} runs on this host already: stop it, or give this one "
                    "another name"
                )
            self._path.unlink(missing_ok=True)
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(os.fsencode(self._path))
            listener.listen(8)
        except OSError as error:
            raise EngineError(f"router {self._name!r} cannot be asked anything: {error}") from error
        self._socket = listener
        thread = threading.Thread(target=self._run, args=(listener,), daemon=True)
        thread.name = f"infobus-{self._name}-control"
        thread.start()

    def close(self) -> None:
        """Answer nobody any more. Idempotent."""
        listener, self._socket = self._socket, None
        if listener is not None:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # ends the thread that waits for a call
            listener.close()
            self._path.unlink(missing_ok=True)

    def _run(self, listener: socket.socket) -> None:
        while self._socket is not None:
            try:
                call, _ = listener.accept()
            except OSError:
                return
            with call:
                try:
                    call.settimeout(_LISTEN_S)
                    call.sendall(self._reply(_read(call, _QUESTION_BYTES_MAX)))
                except OSError:  # the one who asked has left
                    continue

    def _reply(self, told: bytes) -> bytes:
        try:
            answer = {"answer": self._answer(msgspec.json.decode(told, type=Question))}
        except BusError as error:
            answer = {"error": str(error), "is_usage": isinstance(error, UsageError)}
        except msgspec.DecodeError as error:
            answer = {"error": f"not a question: {error}", "is_usage": True}
        except Exception:
            log.exception("a question about router %s was not answered", self._name)
            answer = {"error": "it failed; its log says more", "is_usage": False}
        return msgspec.json.encode(answer)


def ask_router(name: str, question: str, *, timeout_s: float = 5.0, **more: Any) -> Answer:
    """Ask a router of this host and user.

    Raises:
        EngineError: There is none of that name, or it does not answer.
        BusError: What it says went wrong.
    """
    with socket.socket(socket.AF_UNIX) as call:
        call.settimeout(timeout_s)
        try:
            call.connect(os.fsencode(_path(name)))
            call.sendall(msgspec.json.encode({"ask": question, **more}))
            call.shutdown(socket.SHUT_WR)
            told = msgspec.json.decode(_read(call, _ANSWER_BYTES_MAX))
        except (FileNotFoundError, ConnectionRefusedError):
            raise EngineError(f"no router {name!r} runs on this host") from None
        except (OSError, msgspec.DecodeError) as error:
            raise EngineError(f"router {name!r} does not answer: {error}") from None
    if "error" in told:
        kind = UsageError if told["is_usage"] else EngineError
        raise kind(f"router {name!r}: {told['error']}")
    return told["answer"]


def routers_here() -> list[str]:
    """The names of the routers of this user that run on this host."""
    try:
        paths = sorted(private_folder().glob(f"*{_SUFFIX}"))
    except OSError:
        return []
    return [path.name.removesuffix(_SUFFIX) for path in paths if _is_answered(path)]


def _path(name: str) -> Path:
    return private_folder() / f"{name}{_SUFFIX}"


def _is_answered(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as call, suppress(OSError):
        call.connect(os.fsencode(path))
        return True
    return False


def _read(call: socket.socket, bytes_max: int) -> bytes:
    told = bytearray()
    while chunk := call.recv(65536):
        told += chunk
        if len(told) > bytes_max:
            raise OSError("too long")
    return bytes(told)
