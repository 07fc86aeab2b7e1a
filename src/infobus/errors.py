"""Every exception of the bus. The class says whose move it is; the message says what and where.

    BusError
    ├── UsageError            fix the call
    │   ├── BadSubject        a subject or pattern that is not well formed
    │   ├── BadType           a type that cannot be declared, or contradicts a known one
    │   ├── BadValue          a value that does not fit its attribute, or cannot be sent
    │   ├── BadFilter         an expression that is not a filter
    │   ├── TdlError          a TDL program that cannot be read, or failed
    │   │   └── TdlLimit      a TDL program that wanted more than it was given
    │   ├── BadCall           an operation or arguments that no server of the subject takes
    │   ├── DurableInUse      a durable name that is in use by another live subscription
    │   └── BusClosed         the bus (or subscription) was closed, or belongs to another process
    ├── PeerError             the other side broke the protocol
    │   ├── BadFrame          bytes that are not a frame, an object or a descriptor
    │   └── IncompatiblePeer  a peer that speaks another major version of the wire
    ├── RemoteError           an operation has raised an exception that is not known here
    └── DeliveryError         the world failed; `retry_is_safe` says whether to try again
        ├── EngineError       the engine could not be opened, or gave up
        ├── Backpressure      receivers did not keep up within the stated time; nothing was sent
        ├── QosRefused        a quality of service that cannot be had now; nothing has changed
        ├── SlowConsumer      a subscription that asked for it was closed because it fell behind
        ├── CallError         a call that has no answer
        │   ├── NoServer      nobody has taken it, so it has not run
        │   ├── CallCancelled it was cancelled by its caller
        │   └── CallMayHaveRun  it was sent, and nobody can say what became of it
        ├── LossError         events that were sent to you and can no longer be had
        └── StoreError        what must survive a crash cannot be kept or read
            ├── StoreFull     no room on the disk; what was to be kept was not accepted
            ├── StoreCorrupt  a damaged file, and how to repair it
            └── LedgerInUse   another live process owns the ledger

Facts travel as attributes too, so that nobody needs to parse the text.
"""

from __future__ import annotations

from itertools import groupby


class BusError(Exception):
    """The root of everything the bus raises on purpose."""


class UsageError(BusError):
    """The call was wrong; the same call will fail again."""


class BadSubject(UsageError, ValueError):
    """A subject or pattern is not well formed; `position` counts characters from 0."""

    def __init__(self, message: str, *, subject: str, position: int) -> None:
        super().__init__(message)
        self.subject = subject
        self.position = position


class BadType(UsageError, TypeError):
    """A type cannot be declared as asked, or contradicts one that is known."""


class BadValue(UsageError, ValueError):
    """A value does not fit its attribute, or cannot be sent; `path` says where it sits."""

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class BadFilter(UsageError, ValueError):
    """An expression is not a filter: `position` counts characters of `text` from 0.

    `position` is None for a filter that was not made from text.
    """

    def __init__(
        self, message: str, *, text: str = "", position: int | None = None, hint: str = ""
    ) -> None:
        super().__init__(message)
        self.text = text
        self.position = position
        self.hint = hint


class TdlError(UsageError):
    """A TDL program cannot be read, or failed: `line` and `column` count from 1, 0 is outside.

    `origin` names the text, `stack` the calls under way, the innermost first, each with the
    place it was made at. `condition` is the object that was signalled; None if the program
    was not even read.
    """

    def __init__(
        self,
        message: str,
        *,
        line: int,
        column: int,
        origin: str = "",
        stack: tuple[str, ...] = (),
        condition: object = None,
    ) -> None:
        super().__init__(message)
        self.line = line
        self.column = column
        self.origin = origin
        self.stack = stack
        self.condition = condition

    def report(self) -> str:
        """The message, and the calls that led there, one to a line."""
        lines = [str(self)]
        for call, group in groupby(self.stack):
            count = len(list(group))
            lines.append(f"  in {call}" + (f" ({count} times)" if count > 1 else ""))
        return "\n".join(lines)


class TdlLimit(TdlError):
    """A TDL program wanted more fuel, memory, depth or definitions than it was given."""


class BadCall(UsageError, TypeError):
    """No server of the subject has the operation, or takes these arguments; `signatures` says
    what they have instead.
    """

    def __init__(self, message: str, *, signatures: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.signatures = signatures


class DurableInUse(UsageError):
    """The durable name `name` belongs to another live subscription; one at a time may use it."""

    def __init__(self, message: str, *, name: str) -> None:
        super().__init__(message)
        self.name = name


class BusClosed(UsageError):
    """The bus or subscription is closed, or was opened by another process before a fork."""


class PeerError(BusError):
    """The other side broke the protocol; this node keeps working."""


class BadFrame(PeerError):
    """Bytes from outside that are not a frame, an object, or a type descriptor."""


class IncompatiblePeer(PeerError):
    """A peer speaks another major version of the wire protocol, so it is not listened to."""

    def __init__(self, message: str, *, sender: str) -> None:
        super().__init__(message)
        self.sender = sender


class RemoteError(BusError):
    """An operation has raised an exception whose class is not known here.

    `type_name` and `message` are those of the exception; `remote_traceback` is empty unless the
    server runs in test mode.
    """

    def __init__(self, type_name: str, message: str, remote_traceback: str = "") -> None:
        super().__init__(f"{type_name}: {message}")
        self.type_name = type_name
        self.message = message
        self.remote_traceback = remote_traceback


class DeliveryError(BusError):
    """The world failed. `retry_is_safe` says whether trying again can send something twice."""

    retry_is_safe: bool = True


class EngineError(DeliveryError):
    """The engine could not be opened, or can no longer carry frames.

    What was published when that happened is kept, and may still arrive.
    """

    retry_is_safe = False


class Backpressure(DeliveryError):
    """Receivers did not keep up within the stated time. The event was not sent.

    Of several events published by one call, those before it were.
    """

    def __init__(self, message: str, *, waiting_for: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.waiting_for = waiting_for


class QosRefused(DeliveryError):
    """A reservation or registration was refused, by this node or by the manager of its group.

    Nothing has changed. `asked` and `free` are events/s or bytes/s, whichever did not fit; they
    are None where a rule or a full class was the reason.
    """

    def __init__(
        self, message: str, *, asked: float | None = None, free: float | None = None
    ) -> None:
        super().__init__(message)
        self.asked = asked
        self.free = free


class SlowConsumer(DeliveryError):
    """A subscription with `when_full="disconnect"` fell behind by its queue and was closed."""

    retry_is_safe = False


class CallError(DeliveryError):
    """A call has no answer; `subject` and `operation` say which."""

    def __init__(self, message: str, *, subject: str, operation: str) -> None:
        super().__init__(message)
        self.subject = subject
        self.operation = operation


class NoServer(CallError, TimeoutError):
    """Nobody serves the subject, or all servers are busy. The call has not run."""


class CallCancelled(CallError):
    """The call was cancelled by its caller; what had begun may have had effects."""

    retry_is_safe = False


class CallMayHaveRun(CallError, TimeoutError):
    """The call was sent, but its server has died, or has not answered in time.

    `call_id` is not empty if the call is made exactly once: calling again with it is safe.
    """

    retry_is_safe = False

    def __init__(
        self, message: str, *, subject: str, operation: str, node: str = "", call_id: str = ""
    ) -> None:
        super().__init__(message, subject=subject, operation=operation)
        self.node = node
        self.call_id = call_id


class LossError(DeliveryError):
    """Events numbered `first` to `last` of one sender's channel are gone for this subscription.

    `priority` is their class: each class of a channel has numbers of its own. Both are empty for
    events of a ledger, and where any channel of the sender may be meant. `last` is None when nobody
    can say how many there were: the sender had given this node up for dead and stopped numbering
    events for it, or may have done so while this process stood still.
    """

    retry_is_safe = False

    def __init__(
        self,
        message: str,
        *,
        sender: str,
        channel: str,
        first: int,
        last: int | None,
        priority: str = "",
    ) -> None:
        super().__init__(message)
        self.sender = sender
        self.channel = channel
        self.priority = priority
        self.first = first
        self.last = last


class StoreError(DeliveryError):
    """What must survive a crash cannot be kept or read; `path` is the file or folder."""

    def __init__(self, message: str, *, path: str) -> None:
        super().__init__(message)
        self.path = path


class StoreFull(StoreError):
    """The disk has no room, or failed to write. What was to be kept was not accepted.

    Everything accepted before is safe, and the store goes on as soon as there is room.
    """


class StoreCorrupt(StoreError):
    """A file is damaged, so nothing of it is served; `problems` says what was found."""

    retry_is_safe = False

    def __init__(self, message: str, *, path: str, problems: tuple[str, ...]) -> None:
        super().__init__(message, path=path)
        self.problems = problems


class LedgerInUse(StoreError):
    """Another live process owns the ledger."""
