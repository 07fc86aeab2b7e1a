"""Every exception that the bus raises.

The class says whose move it is; the message says what happened and where.

    BusError
    ├── UsageError            fix the call
    │   ├── BadSubject        a subject or pattern that is not well formed
    │   ├── BadType           a type that cannot be declared, or contradicts a known one
    │   ├── BadValue          a value that does not fit its attribute, or cannot be sent
    │   ├── BadFilter         an expression that is not a filter
    │   ├── TdlError          a TDL program that cannot be read, or failed
    │   │   └── TdlLimit      a TDL program that reached one of its limits
    │   ├── BadCall           an operation or arguments that no server of the subject accepts
    │   ├── DurableInUse      a durable name that is in use by another live subscription
    │   ├── TagExists         a tag of this name, or around it, that somebody else has created
    │   ├── NotCreator        a tag that only its creator may change or delete
    │   ├── NoRight           a tag that does not let this application publish or subscribe
    │   ├── NotAllowed        an action that the policy of the bus does not give to this principal
    │   ├── BadCredential     a certificate or credential that cannot be read, or does not count
    │   ├── BadPolicy         a policy that cannot be read, or is not signed as it must be
    │   └── BusClosed         the bus (or subscription) was closed, or belongs to another process
    ├── PeerError             the other side broke the protocol
    │   ├── BadFrame          bytes that are not a frame, an object or a descriptor
    │   ├── MismatchError     an object that does not fit its type as this process knows it
    │   └── IncompatiblePeer  a peer that speaks another major version of the wire
    ├── RemoteError           an operation raised what this process does not know, or an error
    │                         of the bus about a call that it made itself
    └── DeliveryError         the world failed; `retry_is_safe` says whether to try again
        ├── EngineError       the engine could not be opened, or gave up
        ├── NoTags            no node that holds the table of tags has answered in time
        ├── Backpressure      receivers did not keep up within the stated time; nothing was sent
        ├── QosRefused        a quality of service that is not available now; nothing changed
        ├── SlowConsumer      a subscription fell behind and was closed, as it had asked for
        ├── CallError         a call that got no answer
        │   ├── NoServer      no server accepted the call, so it has not run
        │   ├── CallCancelled the caller cancelled the call
        │   └── CallMayHaveRun  the call was sent, but its outcome is unknown
        ├── Unstable          who is there is not agreed on now, or nobody agrees on it
        ├── LossError         events that were sent to you and cannot be recovered
        └── StoreError        data that must survive a crash cannot be written or read
            ├── StoreFull     no room on the disk; the new data was not accepted
            ├── StoreCorrupt  a damaged file, and how to repair it
            └── LedgerInUse   another live process owns the ledger

Each exception also carries its facts as attributes, so you never need to parse the message.
"""

from __future__ import annotations

from itertools import groupby


class BusError(Exception):
    """The base class of every exception that the bus raises on purpose."""


class UsageError(BusError):
    """You made a wrong call; the same call will fail again."""


class BadSubject(UsageError, ValueError):
    """A subject or pattern is not well formed; `position` counts characters from 0."""

    def __init__(self, message: str, *, subject: str, position: int) -> None:
        super().__init__(message)
        self.subject = subject
        self.position = position


class BadType(UsageError, TypeError):
    """You declared a type that is not valid, or that contradicts a known type."""


class BadValue(UsageError, ValueError):
    """A value does not fit its attribute, or cannot be sent; `path` says where it is."""

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class BadFilter(UsageError, ValueError):
    """An expression is not a valid filter; `position` counts characters of `text` from 0.

    `position` is None if the filter was not made from text.
    """

    def __init__(
        self, message: str, *, text: str = "", position: int | None = None, hint: str = ""
    ) -> None:
        super().__init__(message)
        self.text = text
        self.position = position
        self.hint = hint


class TdlError(UsageError):
    """A TDL program cannot be read, or it failed.

    `line` and `column` count from 1; 0 means that the error is outside the program. `origin`
    names the text. `stack` lists the active calls, innermost first, each with its position.
    `condition` is the object that the program signalled, or None if the program could not be
    read.
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
        """Return the message, followed by the active calls, one per line."""
        lines = [str(self)]
        for call, group in groupby(self.stack):
            count = len(list(group))
            lines.append(f"  in {call}" + (f" ({count} times)" if count > 1 else ""))
        return "\n".join(lines)


class TdlLimit(TdlError):
    """A TDL program needed more fuel, memory, depth or definitions than its limits allow."""


class BadCall(UsageError, TypeError):
    """No server of the subject has this operation, or accepts these arguments.

    `signatures` lists the operations that the servers do have.
    """

    def __init__(self, message: str, *, signatures: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.signatures = signatures


class DurableInUse(UsageError):
    """Another live subscription uses the durable name `name`; only one may use it at a time."""

    def __init__(self, message: str, *, name: str) -> None:
        super().__init__(message)
        self.name = name


class TagExists(UsageError):
    """Somebody else, `creator`, has created the tag `tag`: of this name, or around it."""

    def __init__(self, message: str, *, tag: str, creator: str) -> None:
        super().__init__(message)
        self.tag = tag
        self.creator = creator


class NotCreator(UsageError):
    """Only `creator` may change or delete the tag `tag`. An operator may delete it by force."""

    def __init__(self, message: str, *, tag: str, creator: str) -> None:
        super().__init__(message)
        self.tag = tag
        self.creator = creator


class NoRight(UsageError):
    """The tag `tag` of `creator` does not let this application publish, or subscribe."""

    def __init__(self, message: str, *, tag: str, creator: str) -> None:
        super().__init__(message)
        self.tag = tag
        self.creator = creator


class NotAllowed(UsageError):
    """The policy of a secured bus does not let `principal` do this, so nothing was done.

    `action` is one word, such as `publish` or `call`; `subject` is what it was to be done to.
    `rule` is the rule that decided, empty if there is none that allows it. `policy` is the version
    of the policy.
    """

    def __init__(
        self,
        message: str,
        *,
        action: str,
        subject: str,
        principal: str,
        rule: str = "",
        policy: int = 0,
    ) -> None:
        super().__init__(message)
        self.action = action
        self.subject = subject
        self.principal = principal
        self.rule = rule
        self.policy = policy


class BadCredential(UsageError, ValueError):
    """A certificate or credential cannot be read, or does not count here and now.

    `why` is one word: `malformed`, `readable` (by other users), `authority`, `bus`, `use`, `early`,
    `expired` or `revoked`.
    """

    def __init__(self, message: str, why: str = "malformed") -> None:
        super().__init__(message)
        self.why = why


class BadPolicy(UsageError, ValueError):
    """A policy cannot be read, or is not signed by the authority of the bus.

    `path` says where in the policy, such as `roles.operator.publish`; it may be empty.
    """

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class BusClosed(UsageError):
    """The bus or subscription is closed, or was opened in another process before a fork."""


class PeerError(BusError):
    """The other side broke the protocol; this node keeps working."""


class BadFrame(PeerError):
    """Bytes from outside are not a frame, an object, or a type descriptor."""


class MismatchError(PeerError):
    """An object does not fit its type as this process knows it, so its event was left out.

    The sender has another definition of the type `type`: the value `sent` of `attribute` (None if
    it was not sent) is not of the kind `expected`. `event` is the event with the object as it was
    sent. The subscription goes on with the next event.
    """

    def __init__(
        self,
        message: str,
        *,
        subject: str,
        type: str,
        attribute: str,
        expected: str,
        sent: object,
        event: object = None,
    ) -> None:
        super().__init__(message)
        self.subject = subject
        self.type = type
        self.attribute = attribute
        self.expected = expected
        self.sent = sent
        self.event = event


class IncompatiblePeer(PeerError):
    """A peer speaks another major version of the wire protocol, so this node ignores it."""

    def __init__(self, message: str, *, sender: str) -> None:
        super().__init__(message)
        self.sender = sender


class RemoteError(BusError):
    """An operation raised an exception whose class this process does not know.

    `type_name` and `message` describe that exception. `remote_traceback` is empty unless the
    server runs in test mode.

    The bus's own errors arrive as this, too: a `NoServer` that an operation got when it called
    another service must not tell you that your call has not run. Here it is the `__cause__`.
    """

    def __init__(self, type_name: str, message: str, remote_traceback: str = "") -> None:
        super().__init__(f"{type_name}: {message}")
        self.type_name = type_name
        self.message = message
        self.remote_traceback = remote_traceback


class DeliveryError(BusError):
    """The environment failed, not your program.

    If `retry_is_safe` is False, trying again can send something twice.
    """

    retry_is_safe: bool = True


class EngineError(DeliveryError):
    """The engine could not be opened, or can no longer carry frames.

    Events that you published before the failure are still held, and may still arrive.
    """

    retry_is_safe = False


class NoTags(DeliveryError, TimeoutError):
    """No node that holds the table of tags has answered in time; asking again is safe."""


class Backpressure(DeliveryError):
    """Receivers did not keep up within the stated time, so the event was not sent.

    If one call published several events, the events before this one were sent.
    """

    def __init__(self, message: str, *, waiting_for: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.waiting_for = waiting_for


class QosRefused(DeliveryError):
    """This node, or the manager of its group, refused a reservation or registration.

    Nothing has changed. `asked` and `free` are events/s or bytes/s, whichever did not fit. They
    are None if a rule or a full class was the reason.

    If it was a hop on the way to other sites, `hop` is the name of that router, `toward` that of
    its neighbour, and `offer` what would be admitted there: arguments for `Bus.reserve`.
    """

    def __init__(
        self,
        message: str,
        *,
        asked: float | None = None,
        free: float | None = None,
        hop: str = "",
        toward: str = "",
        offer: dict[str, float] | None = None,
    ) -> None:
        super().__init__(message)
        self.asked = asked
        self.free = free
        self.hop = hop
        self.toward = toward
        self.offer = offer


class SlowConsumer(DeliveryError):
    """A subscription with `when_full="disconnect"` fell behind by its queue and was closed."""

    retry_is_safe = False


class CallError(DeliveryError):
    """A call got no answer; `subject` and `operation` identify the call."""

    def __init__(self, message: str, *, subject: str, operation: str) -> None:
        super().__init__(message)
        self.subject = subject
        self.operation = operation


class NoServer(CallError, TimeoutError):
    """Nobody serves the subject, or all servers are busy. The call has not run."""


class CallCancelled(CallError):
    """The caller cancelled the call. If the operation had started, it may have had effects."""

    retry_is_safe = False


class CallMayHaveRun(CallError, TimeoutError):
    """The call was sent, but its server died or did not answer in time.

    If `call_id` is not empty, the call runs exactly once: you can safely call again with it.
    """

    retry_is_safe = False

    def __init__(
        self, message: str, *, subject: str, operation: str, node: str = "", call_id: str = ""
    ) -> None:
        super().__init__(message, subject=subject, operation=operation)
        self.node = node
        self.call_id = call_id


class Unstable(DeliveryError):
    """Who the members are is not agreed on now; the message says why."""

    retry_is_safe = True


class LossError(DeliveryError):
    """This subscription has lost the events `first` to `last` of one sender's channel.

    `priority` is their class: each class of a channel has its own numbers. Both are empty for
    events of a ledger, and when any channel of the sender may be meant. `last` is None when nobody
    can say how many there were: the sender had declared this node dead and stopped numbering events
    for it, or may have done so while this process stood still.

    `reason` is "unreachable" if the sender is out of reach and did not say goodbye. It may have
    died; if not, whatever it publishes meanwhile is lost. Otherwise `reason` is empty.
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
        reason: str = "",
    ) -> None:
        super().__init__(message)
        self.sender = sender
        self.channel = channel
        self.priority = priority
        self.first = first
        self.last = last
        self.reason = reason


class StoreError(DeliveryError):
    """Data that must survive a crash cannot be written or read.

    `path` is the file or folder.
    """

    def __init__(self, message: str, *, path: str) -> None:
        super().__init__(message)
        self.path = path


class StoreFull(StoreError):
    """The disk is full, or a write failed, so the new data was not accepted.

    All data accepted before is safe. The store works again as soon as there is room.
    """


class StoreCorrupt(StoreError):
    """A file is damaged, so the store serves none of it; `problems` lists the damage."""

    retry_is_safe = False

    def __init__(self, message: str, *, path: str, problems: tuple[str, ...]) -> None:
        super().__init__(message, path=path)
        self.problems = problems


class LedgerInUse(StoreError):
    """Another live process owns the ledger."""
