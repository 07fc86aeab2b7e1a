"""Quality of service for a group of nodes: a manager, and members that keep to its policy.

The distributed QoS manager of paper 002 (section 6), in events like any other: under
`qos.<group>.` the manager publishes its policy, members ask for reservations and tell what they
hold, and the manager answers. A member decides by itself what its own node can bear, and whether
the policy allows a class; only the sum over the group needs the manager. If that does not answer,
the node's own decision stands, so a group works on while its manager is replaced: a new one hears
from every member what it holds. The last policy holds until there is another.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from infobus.bus.threads import SYSTEM_THREADS, Threads
from infobus.errors import BusClosed, BusError, QosRefused, UsageError
from infobus.objects import DataObject
from infobus.protocols.qos.admission import Admission, Load, Shares
from infobus.protocols.qos.classes import Classes
from infobus.protocols.qos.policy import Denied, Policy
from infobus.subjects import check_subject

if TYPE_CHECKING:
    from infobus.bus.bus import Bus
    from infobus.bus.deliver.event import Event

log = logging.getLogger("infobus")


class QosPolicy(DataObject, name="infobus.QosPolicy"):
    """What a group's manager publishes: the fields of a `Policy`."""

    rules: Any


class QosAsk(DataObject, name="infobus.QosAsk"):
    """A member asks for a reservation; `number` names the question."""

    number: int
    reservation: str
    events_per_s: float
    bytes_per_s: float


class QosAnswer(DataObject, name="infobus.QosAnswer"):
    """The manager's answer; an empty `refusal` is a yes."""

    number: int
    refusal: str = ""
    asked: float | None = None
    free: float | None = None


class QosHeld(DataObject, name="infobus.QosHeld"):
    """All that a member has reserved (events/s and bytes/s), and what it is just asking for."""

    held: dict[str, list[float]]
    asking: list[str]
    refused: str = ""  # why it does not keep to the policy; empty if it does


class QosManager:
    """Publishes the policy of a group of nodes, and bounds what they reserve together.

    One for each group, on any node; use it as a context manager. What it has granted outlives
    it. The share of a node that is gone is free again.

    >>> import infobus
    >>> from infobus.protocols.qos.classes import DEFAULT_CLASSES
    >>> with infobus.connect("qos-manager", engine="memory") as bus:
    ...     with QosManager(bus, "floor", Policy(events_per_s=100)):
    ...         member = QosMember(bus, "floor", Admission(None), DEFAULT_CLASSES)
    ...         member.reserve("prices", 80)
    ...         member.reserve("news", 30)
    Traceback (most recent call last):
    infobus.errors.QosRefused: 'news' asks for 30 events/s, but only 20 of 100 are free: ask for \
less, release another reservation, or have more given

    Args:
        bus: The node that it runs on.
        group: The group's name: one element of a subject, or several.
        policy: What all members keep to.
        beat_s: How often the policy is repeated, and members tell what they hold.
        threads: What starts the thread that does so.
    """

    def __init__(
        self,
        bus: Bus,
        group: str,
        policy: Policy,
        *,
        beat_s: float = 1.0,
        threads: Threads = SYSTEM_THREADS,
    ) -> None:
        self._subject = _subject_of(group)
        self.group = group
        self._bus = bus
        self._policy = policy
        self._shares = Shares(policy.events_per_s, policy.bytes_per_s)
        self._lock = threading.Lock()
        self._refusals: dict[str, str] = {}
        self._subscription = bus.subscribe_many(
            [f"{self._subject}.ask", f"{self._subject}.held"], self._on_event, on_loss="ignore"
        )
        self._publish_policy()
        self._stop = threads.every(beat_s, self._beat, f"infobus-qos-{group}")

    @property
    def policy(self) -> Policy:
        """What members keep to."""
        return self._policy

    def change(self, policy: Policy) -> None:
        """Have another policy. What was granted stays; `excess` tells if that is too much."""
        with self._lock:
            self._policy = policy
            self._shares.bound(policy.events_per_s, policy.bytes_per_s)
        self._publish_policy()

    def held(self) -> dict[str, dict[str, Load]]:
        """What each node has reserved, by name."""
        with self._lock:
            return {node: dict(loads) for node, loads in self._shares.nodes.items() if loads}

    def excess(self) -> Load:
        """By how much the group oversteps its bound."""
        with self._lock:
            return self._shares.excess()

    def refusals(self) -> dict[str, str]:
        """The nodes that do not keep to the policy, and why."""
        with self._lock:
            return dict(self._refusals)

    def close(self) -> None:
        """Answer no more. Idempotent."""
        self._stop()
        self._subscription.close()

    def __enter__(self) -> QosManager:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _publish_policy(self) -> None:
        rules = msgspec.to_builtins(self._policy)
        self._bus.publish(f"{self._subject}.policy", QosPolicy(rules=rules))

    def _beat(self) -> None:
        try:
            self._forget_lost()
            self._publish_policy()
        except BusClosed:
            self._stop()
        except BusError as error:
            log.warning("group %r: the policy could not be published: %s", self.group, error)

    def _forget_lost(self) -> None:
        alive = {self._bus.node, *self._bus.stats().peers}
        with self._lock:
            for node in self._shares.nodes.keys() - alive:
                self._shares.lost(node)
                self._refusals.pop(node, None)

    def _on_event(self, event: Event) -> None:
        match event.data:
            case QosAsk() as ask:
                answer = self._answer(event.sender, ask)
                self._bus.publish(f"{self._subject}.answer.{event.sender}", answer)
            case QosHeld() as told:
                self._on_held(event.sender, told)

    def _answer(self, node: str, ask: QosAsk) -> QosAnswer:
        try:
            with self._lock:
                self._shares.reserve(node, ask.reservation, Load(ask.events_per_s, ask.bytes_per_s))
        except QosRefused as error:
            refusal = f"group {self.group!r}: {error}"
            return QosAnswer(number=ask.number, refusal=refusal, asked=error.asked, free=error.free)
        except UsageError as error:
            return QosAnswer(number=ask.number, refusal=str(error))
        return QosAnswer(number=ask.number)

    def _on_held(self, node: str, told: QosHeld) -> None:
        try:
            held = {name: Load(*numbers) for name, numbers in told.held.items()}
        except (UsageError, TypeError) as error:
            log.warning("group %r: node %s tells what makes no sense: %s", self.group, node, error)
            return
        with self._lock:
            known = self._shares.nodes.get(node)
            for name in told.asking:  # it may not have heard yet what it was answered
                if known and name in known:
                    held.setdefault(name, known[name])
            self._shares.told(node, held)
            is_news = told.refused != self._refusals.pop(node, "")
            if told.refused:
                self._refusals[node] = told.refused
        if is_news and told.refused:
            log.error("group %r: node %s does not keep to it: %s", self.group, node, told.refused)
        if known is None:
            self._publish_policy()


@dataclass(slots=True)
class _Question:
    reservation: str
    came: threading.Event = field(default_factory=threading.Event)
    answer: QosAnswer | None = None


class QosMember:
    """A node's part in a group: holds its suppliers and consumers to the policy.

    Returning means that the group's policy is known here, or that no manager told one in time.

    Args:
        bus: The node.
        group: The group's name.
        admission: What the node itself can bear. From now on only the member changes it.
        classes: The priority classes of the bus.
        timeout_s: How long to wait for a manager's policy, and for each of its answers; the
            patience of the node if None.
        on_policy: Called whenever there is another policy.
        refusal: Why a policy cannot be kept to here; empty if it can. Then the one before it
            stays, and the manager is told.
    """

    def __init__(
        self,
        bus: Bus,
        group: str,
        admission: Admission,
        classes: Classes,
        *,
        timeout_s: float | None = None,
        on_policy: Callable[[], None] = lambda: None,
        refusal: Callable[[Policy], str] = lambda policy: "",
    ) -> None:
        self.refused = ""
        """Why the last policy is not kept to; empty if it is."""
        self._refusal = refusal
        self._subject = _subject_of(group)
        self.group = group
        self.policy = Policy()
        self._bus = bus
        self._admission = admission
        self._classes = classes
        self._timeout_s = bus.patience.policy_s if timeout_s is None else timeout_s
        self._on_new_policy = on_policy
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._questions: dict[int, _Question] = {}
        self._policy_came = threading.Event()
        self._has_left = False
        self._managers = bus.quench(f"{self._subject}.ask")
        self._subscription = bus.subscribe_many(
            [f"{self._subject}.policy", f"{self._subject}.answer.{bus.node}"],
            self._on_event,
            on_loss="ignore",
        )
        self._tell()
        if self._is_managed():
            self._policy_came.wait(self._timeout_s)

    def judge(self, pattern: str, class_: str) -> str:
        """The class in which a supplier or consumer of `pattern` goes that asks for `class_`.

        Raises:
            QosRefused: The policy denies it.
            UsageError: There is no such class.
        """
        if pattern.startswith("qos."):
            return class_  # what managers and members say to each other
        verdict = self.policy.judge(pattern, class_, self._classes)
        if isinstance(verdict, Denied):
            raise QosRefused(
                f"group {self.group!r}: {pattern!r} in class {class_!r} is denied by its policy: "
                f"{verdict.reason}"
            )
        return verdict.class_

    def reserve(self, name: str, events_per_s: float, bytes_per_s: float = 0.0) -> None:
        """Reserve a steady rate, of this node's share and of the group's.

        Raises:
            QosRefused: It does not fit, here or in the group; nothing is reserved.
            UsageError: A rate is no number, or the name is in use.
        """
        with self._lock:
            if name in self._admission.held:
                raise UsageError(f"there is a reservation {name!r} already; choose another name")
            self._admission.reserve(name, events_per_s, bytes_per_s)
        if not self._is_managed():
            return
        try:
            answer = self._ask(name, Load(events_per_s, bytes_per_s))
        except BaseException:
            self.release(name)
            raise
        if answer is None:
            log.warning(
                "group %r: no manager answered in %s s; %r is reserved by this node alone",
                self.group,
                self._timeout_s,
                name,
            )
        elif answer.refusal:
            self.release(name)
            raise QosRefused(answer.refusal, asked=answer.asked, free=answer.free)

    def release(self, name: str) -> None:
        """Give a reservation back; that there is none does no harm."""
        with self._lock:
            self._admission.release(name)
        self._tell()

    def excess(self) -> Load:
        """By how much this node has reserved more than the group's policy now allows it."""
        with self._lock:
            return self._admission.excess()

    def close(self) -> None:
        """Leave the group; what this node had reserved of its share is free. Idempotent."""
        self._subscription.close()
        with self._lock, suppress(BusClosed):
            self._has_left = True  # policies that came before still tell what this node holds
            self._bus.publish(f"{self._subject}.held", QosHeld(held={}, asking=[]))

    def _is_managed(self) -> bool:
        """Whether anyone listens to what members ask."""
        return self._managers.wants({}) is not False

    def _ask(self, name: str, load: Load) -> QosAnswer | None:
        question = _Question(name)
        with self._lock:  # also while publishing: what is told next knows of the question
            number = next(self._numbers)
            self._questions[number] = question
            ask = QosAsk(
                number=number,
                reservation=name,
                events_per_s=load.events_per_s,
                bytes_per_s=load.bytes_per_s,
            )
            self._bus.publish(f"{self._subject}.ask", ask)
        question.came.wait(self._timeout_s)
        with self._lock:
            del self._questions[number]
        return question.answer

    def _tell(self) -> None:
        """Tell a manager what this node holds, without what is not answered yet."""
        with self._lock, suppress(BusClosed):
            if self._has_left:
                return
            asking = {question.reservation for question in self._questions.values()}
            held = {
                name: [load.events_per_s, load.bytes_per_s]
                for name, load in self._admission.held.items()
                if name not in asking
            }
            self._bus.publish(
                f"{self._subject}.held",
                QosHeld(held=held, asking=sorted(asking), refused=self.refused),
            )

    def _on_event(self, event: Event) -> None:
        match event.data:
            case QosPolicy() as told:
                self._on_policy(event.sender, told)
            case QosAnswer() as answer:
                with self._lock:
                    question = self._questions.get(answer.number)
                if question is not None and question.answer is None:
                    question.answer = answer
                    question.came.set()

    def _on_policy(self, manager: str, told: QosPolicy) -> None:
        try:
            policy = msgspec.convert(told.rules, Policy)
        except (msgspec.ValidationError, UsageError) as error:
            log.warning("group %r: node %s tells no policy: %s", self.group, manager, error)
            return
        before, self.refused = self.refused, self._refusal(policy)
        if self.refused:
            if self.refused != before:
                log.error("group %r: its policy is refused: %s", self.group, self.refused)
            self._policy_came.set()
            self._tell()
            return
        with self._lock:
            is_new, self.policy = policy != self.policy, policy
            self._admission.bound(policy.events_per_s, policy.bytes_per_s)
        if is_new:
            self._on_new_policy()
        self._policy_came.set()
        self._tell()


def _subject_of(group: str) -> str:
    subject = f"qos.{group}"
    check_subject(subject)
    return subject
