"""Run TDL programs on a bus, and host programs that others send."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection
from typing import Any

from infobus import Bus, DataObject, Event, UsageError, type_of
from infobus.adapters.tdl_programs import KeptPrograms, Program
from infobus.errors import TdlError
from infobus.services import DynamicService, Interface, Service
from infobus.subjects import covers
from infobus.tdl import Capabilities, Interpreter, ProgramLimits
from infobus.tdl.signatures import check_key, is_signed, sign

ABILITIES = ("publish", "subscribe", "serve", "call")
PROGRAM = "program"
"""The purpose named in the signature of a program for a host."""
AGE_MAX_S = 300.0
"""How long a sender has from the number that the host gave it until its program arrives."""


class Programs:
    """An interpreter whose programs may use a bus. They run one at a time.

    While a program waits for a service that it has called, others may run.

    Args:
        bus: Returns the bus; called when a program first needs it.
        allow: Which of `publish`, `subscribe`, `serve` and `call` programs may use.
        within: A pattern; programs may use only subjects that it covers.
        write: Receives what programs print; without it, they cannot print.
        report: Receives errors in functions that handle events.
        limits: How much one run, event or call may use.
        key: Signs methods that travel with their classes.
    """

    def __init__(
        self,
        bus: Callable[[], Bus],
        *,
        allow: Collection[str] = ABILITIES,
        within: str = ">",
        write: Callable[[str], object] | None = None,
        report: Callable[[TdlError], object] | None = None,
        limits: ProgramLimits | None = None,
        key: bytes | None = None,
    ) -> None:
        strange = sorted(set(allow) - set(ABILITIES))
        if strange:
            raise UsageError(f"{strange[0]!r} is not one of {', '.join(ABILITIES)}")
        self.is_at_work = False
        """Whether events or calls can still reach a program that has run."""
        self._bus = bus
        self._within = within
        self._report = report
        self._turn = threading.Lock()
        able = {name: getattr(self, f"_{name}") for name in allow}
        self._interpreter = Interpreter(
            limits=limits, capabilities=Capabilities(write=write, **able), key=key
        )
        self._served: dict[str, DataObject] = {}

    def run(self, source: str, origin: str = "") -> str:
        """Run a program; returns its value in TDL notation. Raises `TdlError`."""
        with self._turn:
            return self._interpreter.show(source, origin)

    def names(self) -> list[str]:
        """All names that are defined for a program."""
        return self._interpreter.names()

    @property
    def served(self) -> dict[str, str]:
        """The types of the objects that are served, by subject."""
        return {subject: type_of(obj).name for subject, obj in self._served.items()}

    def _check(self, subject: str) -> None:
        if not covers(self._within, subject):
            raise UsageError(f"the host lets programs use {self._within} only, not {subject}")

    def _publish(self, subject: str, data: Any) -> None:
        self._check(subject)
        self._bus().publish(subject, data)

    def _subscribe(self, pattern: str, handle: Callable[[str, Any], Any]) -> None:
        self._check(pattern)

        def on_event(event: Event) -> None:
            try:
                with self._turn:
                    handle(event.subject, event.data)
            except TdlError as error:
                if self._report is None:
                    raise
                self._report(error)

        self._bus().subscribe(pattern, on_event)
        self.is_at_work = True

    def _serve(self, subject: str, obj: DataObject) -> None:
        self._check(subject)
        operations = type_of(obj).operations

        def perform(operation: str, arguments: dict[str, Any]) -> Any:
            with self._turn:
                return self._interpreter.perform(obj, operations[operation], **arguments)

        service = DynamicService(Interface.of_type(type_of(obj)), perform)
        if subject in self._served:
            self._bus().replace(subject, service)
        else:
            self._bus().serve(subject, service)
        self._served[subject] = obj
        self.is_at_work = True

    def _call(
        self, subject: str, operation: str, arguments: list[Any], named: dict[str, Any]
    ) -> Any:
        self._check(subject)
        bus = self._bus()
        self._turn.release()  # else a program that calls a service of this host would wait forever
        try:
            return bus.service(subject)[operation](*arguments, **named)
        finally:
            self._turn.acquire()


class TdlHost(Service):
    """Runs TDL programs that are sent to it, if they are signed with its key.

    With `kept`, it stores the programs it runs, and runs them again at the next start.
    """

    def __init__(
        self,
        programs: Programs,
        subject: str,
        *,
        key: bytes | None,
        permit_all: bool = False,
        kept: KeptPrograms | None = None,
    ) -> None:
        if (key is None) != permit_all:
            raise UsageError("give the host a key, or permit all programs; one of the two")
        self._programs = programs
        self._subject = subject
        self._key = None if key is None else check_key(key)
        self._kept = kept
        self._start = os.urandom(16).hex()  # so what was signed for the host before is not run
        self._run_before: dict[bytes, float] = {}  # signature -> when its number was drawn
        self._admitting = threading.Lock()
        self.failed: list[TdlError] = []
        """The errors of kept programs that could not be run again."""
        for program in kept.programs if kept is not None else []:
            try:
                programs.run(program.source, program.origin)
            except TdlError as error:
                self.failed.append(error)

    def draw(self) -> str:
        """A number for the signature of the next program, which must arrive within 5 minutes."""
        return f"{self._start}:{time.monotonic()}"

    def run(self, source: str, origin: str = "", number: str = "", signature: bytes = b"") -> str:
        """Run a program, and keep its definitions; returns its value.

        `number` is one that `draw` has returned. It is signed with the program, so that nobody can
        record a program and send it again. No clock but the host's own counts.
        """
        if self._key is not None:
            self._admit(self._key, number, signature, origin, source)
        value = self._programs.run(source, origin)
        if self._kept is not None:
            with self._admitting:
                self._kept.add(Program(source, origin))
        return value

    def served(self) -> dict[str, str]:
        """The types of the objects that the programs serve, by subject."""
        return self._programs.served

    def names(self) -> list[str]:
        """All names that are defined for a program here."""
        return self._programs.names()

    def _admit(self, key: bytes, number: str, signature: bytes, *fields: str) -> None:
        if not is_signed(key, signature, PROGRAM, self._subject, number, *fields):
            raise UsageError("the host did not run the program: it is not signed with its key")
        start, _, drawn_s = number.partition(":")
        if start != self._start:
            raise UsageError(
                "the host did not run the program: it was signed before the host started, or for "
                "another one; sign it anew"
            )
        now_s = time.monotonic()
        with self._admitting:
            if not now_s - AGE_MAX_S <= float(drawn_s) <= now_s:
                raise UsageError(
                    f"the host did not run the program: it is more than {AGE_MAX_S:.0f} s since "
                    "the host gave the number under it; sign it anew"
                )
            if signature in self._run_before:
                raise UsageError(
                    "the host did not run the program: it has come before; sign it anew"
                )
            self._run_before = {
                known: known_s
                for known, known_s in self._run_before.items()
                if known_s >= now_s - AGE_MAX_S
            }
            self._run_before[signature] = float(drawn_s)


def send(
    bus: Bus,
    subject: str,
    source: str,
    origin: str = "",
    key: bytes | None = None,
    *,
    timeout_s: float | None = None,
) -> str:
    """Have the host under `subject` run a program; returns its value.

    Raises:
        UsageError: The host does not trust it.
        TdlError: It failed.
    """
    host = bus.service(subject, timeout_s=timeout_s)
    if key is None:
        return str(host.run(source=source, origin=origin))
    number = host.draw()
    signature = sign(key, PROGRAM, subject, number, origin, source)
    return str(host.run(source=source, origin=origin, number=number, signature=signature))
