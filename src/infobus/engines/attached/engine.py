"""An engine made of engines: it moves a node from one to the next without the node noticing.

It remembers what the node has declared, answers, shows and watches, and declares all of it in the
next engine. Frames that the node puts while it has no engine are lost. That is no error: they are
numbered, and receivers ask for them later. While both engines are open, frames may come twice.
Watchers hear only of differences: to them, a token that is seen again after the move never left.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from infobus.bounds import DEFAULT_BOUNDS, Bounds
from infobus.engines.attached.ways import EMBEDDED, Drop, Effect, Move, Open, Way, WayChoice
from infobus.engines.base import (
    DECLARATIONS_COUNT_MAX,
    Declaration,
    Engine,
    Guarded,
    Links,
    abandon_in_forked_child,
    closed_error,
    log,
)
from infobus.engines.zenoh.library import never_free
from infobus.errors import BusClosed, BusError, EngineError, UsageError
from infobus.patience import DEFAULT_PATIENCE, Patience

_LOOK_S = 0.02
"""How often to look while something is under way."""
_REST_S = 5.0
"""How often to look at all, should an event have been missed."""
_BLINK_S = 0.02
"""Tokens that are gone with a lost link are told later than the link is: see `_Watch`."""
_SETTLE_S = 1.0
"""After a move or a lost link, others have so long to be seen again: they may be moving, too."""
_CLOSE_PATIENCE_S = 2.0


class Carrier(Engine, Protocol):
    """An engine that another one can be made of."""

    on_links: Callable[[], None]
    """Called whenever a link comes or goes."""

    @property
    def is_linked(self) -> bool:
        """Whether anything can pass; always so for an engine that needs nobody."""

    def sender(self, key: str, *, control: bool, urgency: int) -> Callable[[bytes], None]:
        """What puts a frame on `key`, in one call."""

    def retire(self) -> None:
        """Call nobody any more; what was put before is still sent."""


class AttachedEngine:
    """One node's engine, by the best way that there is; see `Engine` for the promises.

    Args:
        make: Returns a fresh engine for one of the ways.
        offers: Returns the ways that there are now, best first.
        must_attach: Opening fails if the best way cannot be opened; otherwise the next is tried.
        prepare: Called before opening; it may wait for a way that is about to be there.
        bounds: How many keys are remembered.
    """

    declarations_count_max = DECLARATIONS_COUNT_MAX

    def __init__(
        self,
        make: Callable[[Way], Carrier],
        offers: Callable[[], tuple[Way, ...]],
        *,
        must_attach: bool = False,
        prepare: Callable[[], object] = lambda: None,
        bounds: Bounds = DEFAULT_BOUNDS,
        patience: Patience = DEFAULT_PATIENCE,
    ) -> None:
        self._make = make
        self._offers = offers
        self._must_attach = must_attach
        self._prepare = prepare
        self._keys_count_max = bounds.keys_count_max
        self._node = ""
        self._part: Carrier | None = None
        self._spare: Carrier | None = None
        self._way = EMBEDDED
        self._ways = WayChoice(EMBEDDED, random.random(), patience)
        self._lock = threading.RLock()  # over what is declared, and where
        self._entries: dict[_Entry, None] = {}
        self._own_tokens: set[str] = set()
        self._daemons: set[str] = set()
        self._settled_at_s = 0.0
        self._woken = threading.Event()
        self._results: SimpleQueue[tuple[Way, Carrier | None]] = SimpleQueue()
        self._is_closed = self._is_forked = False
        self._helpers: list[threading.Thread] = []
        # As in the engines below: from key to what sends, so that a put is no call more than there.
        self._data_puts: dict[tuple[str, int], Callable[[bytes], None]] = {}
        self._control_puts: dict[str, Callable[[bytes], None]] = {}

    # Opening and closing.

    def open(self, node: str) -> None:
        """Join the bus by the best way that can be opened.

        Raises:
            EngineError: None can.
        """
        if self._node:
            raise UsageError(f"the engine of {self._node!r} was opened before: make a new one")
        self._node = node
        self._prepare()
        offers = self._offers()
        # If it has to go on without the best one, that one has been there since now.
        self._ways.note_offers(offers, time.monotonic())
        for way in offers:
            try:
                part = self._opened(way)
                break
            except EngineError as error:
                if self._must_attach or way is offers[-1]:
                    raise
                log.warning("%s; this node goes on without", error)
        self._part, self._way = part, way
        self._ways.current = way
        abandon_in_forked_child(self)
        self.watch("d/*", self._daemon_changed)
        self._start(self._run)

    def close(self) -> None:
        """Leave the bus; frames that were put before are still sent."""
        with self._lock:
            self._is_closed = True
            part, self._part = self._part, None
            self._entries = {}
            self._data_puts, self._control_puts = {}, {}
        self._woken.set()
        deadline_s = time.monotonic() + _CLOSE_PATIENCE_S
        # Within the library, threads that still run when the program ends would abort it.
        for thread in list(self._helpers):
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline_s - time.monotonic()))
        for one in (part, self._spare):
            if one is not None:
                one.close()

    def abandon(self) -> None:
        """In a forked child: the engines below abandon what they hold themselves."""
        never_free(self._part, self._spare, self._entries, self._data_puts, self._control_puts)
        self._lock = threading.RLock()
        self._is_closed = self._is_forked = True
        self._part = self._spare = None
        self._helpers = []
        self._entries, self._data_puts, self._control_puts = {}, {}, {}

    @property
    def way(self) -> Way:
        """The way by which the node is on the bus now."""
        return self._way

    # What a node asks of its engine.

    def put(self, key: str, payload: bytes, *, control: bool = False, urgency: int = 0) -> None:
        """Send `payload` on `key`. Who puts while the node moves waits for some milliseconds."""
        try:
            send = self._control_puts[key] if control else self._data_puts[key, urgency]
        except KeyError:
            send = self._sender(key, control, urgency)
        try:
            send(payload)
        except Exception:
            self._put_again(key, payload, control, urgency)

    def declare(self, key: str, on_frame: Callable[[bytes], None]) -> Declaration:
        """Call `on_frame` with each frame that other nodes put on `key`."""
        return self._add(_Entry(self, "declare", key, on_frame))

    def answer(self, key: str, handler: Callable[[bytes], bytes]) -> Declaration:
        """Answer queries on `key`."""
        return self._add(_Entry(self, "answer", key, handler))

    def query(self, key: str, payload: bytes, timeout_s: float) -> list[bytes]:
        """Ask every other node that answers on `key`; nobody hears it while the node moves."""
        part = self._checked_part()
        try:
            return part.query(key, payload, timeout_s)
        except BusClosed:
            if part is self._part:
                raise
            return []

    def announce(self, key: str) -> Declaration:
        """Show a token on `key`; others see it go and come again at most, when the node moves."""
        self._own_tokens.add(key)
        return self._add(_Entry(self, "announce", key, token=key))

    def watch(self, key: str, on_change: Callable[[str, bool], None]) -> Declaration:
        """Report tokens on `key`: after a move, those that came and went with it."""
        return self._add(_Watch(self, key, on_change))

    def endpoints(self) -> dict[str, str]:
        """What became of each endpoint of the present way."""
        part = self._part
        return {} if part is None else part.endpoints()

    def links(self) -> Links:
        """Those of the present way."""
        part = self._part
        return Links("", "", ()) if part is None else part.links()

    # Declarations.

    def _add(self, entry: _Entry) -> Declaration:
        with self._lock:
            part = self._checked_part()
            self._entries[entry] = None
        # Without the lock: a watch waits until it has told whom it sees, and its callback may put
        # something as soon as it is told of the first, for which the lock is needed.
        try:
            declaration = entry.declare_in(part)
        except BaseException:
            with self._lock:
                if part is self._part or self._part is None:
                    self._entries.pop(entry, None)
                    raise
            return entry  # the node has moved meanwhile, and has declared it there
        with self._lock:
            if part is self._part:
                entry.declaration = declaration
                return entry
        declaration.undeclare()
        return entry

    def remove(self, entry: _Entry) -> None:
        """Forget a declaration; for `Declaration.undeclare`."""
        with self._lock:
            if entry in self._entries:
                del self._entries[entry]
                self._own_tokens.discard(entry.token)
                entry.declaration.undeclare()

    def is_own(self, token: str) -> bool:
        """Whether this node shows it."""
        return token in self._own_tokens

    def is_current(self, part: Carrier) -> bool:
        """Whether the node is there now."""
        return part is self._part

    def note_gone(self) -> None:
        """A token has disappeared: look soon whether it has, or whether the link was lost."""
        self._settled_at_s = max(self._settled_at_s, time.monotonic() + _BLINK_S)
        self._woken.set()

    # Putting.

    def _sender(self, key: str, control: bool, urgency: int) -> Callable[[bytes], None]:
        with self._lock:
            part = self._checked_part()
            send = part.sender(key, control=control, urgency=urgency)
            for puts in (self._control_puts, self._data_puts):
                if len(puts) >= self._keys_count_max:
                    puts.clear()
            if control:
                self._control_puts[key] = send
            else:
                self._data_puts[key, urgency] = send
            return send

    def _put_again(self, key: str, payload: bytes, control: bool, urgency: int) -> None:
        """The way may have changed just then; if it has not, this says what is wrong."""
        if control:
            self._control_puts.pop(key, None)
        else:
            self._data_puts.pop((key, urgency), None)
        part = self._checked_part()
        try:
            part.put(key, payload, control=control, urgency=urgency)
        except BusClosed:
            if part is self._part:
                raise

    def _checked_part(self) -> Carrier:
        part = self._part
        if part is None:
            raise closed_error(forked=self._is_forked, opened=bool(self._node))
        return part

    # Minding the ways, on a thread of its own.

    def _start(self, function: Callable[[], None]) -> None:
        thread = threading.Thread(target=function, name="infobus-way", daemon=True)
        self._helpers = [one for one in self._helpers if one.is_alive()]
        self._helpers.append(thread)
        thread.start()

    def _run(self) -> None:
        while not self._is_closed:
            self._woken.wait(self._pause_s())
            self._woken.clear()
            try:
                self._look()
            except Exception:
                log.exception("a node goes on minding its way after an error of its own")
        with contextlib.suppress(Empty):
            while True:
                _, part = self._results.get_nowait()
                if part is not None:
                    part.close()

    def _pause_s(self) -> float:
        ways, now_s = self._ways, time.monotonic()
        if not self._is_settled(now_s) or ways.lost_since_s is not None or ways.opening is not None:
            return _LOOK_S
        is_best = ways.is_settled and (ways.current.is_attached or not self._daemons)
        return _REST_S if is_best else 1.0

    def _look(self) -> None:
        part, ways, now_s = self._part, self._ways, time.monotonic()
        if part is None:
            return
        was_lost = ways.lost_since_s is not None
        if ways.current.is_attached or self._daemons or ways.offers != (EMBEDDED,):
            ways.note_offers(self._offers(), now_s)
        effects = ways.on_link(part.is_linked, now_s)
        if was_lost != (ways.lost_since_s is not None):
            self._unsettle()
        with contextlib.suppress(Empty):
            while True:
                way, opened = self._results.get_nowait()
                self._spare = opened
                step = ways.on_failed if opened is None else ways.on_opened
                effects += step(way, now_s)
        effects += ways.on_tick(now_s)
        for effect in effects:
            self._carry_out(effect)
        if self._is_settled(now_s) and part is self._part:
            self._settle()

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Open(way):
                self._start(lambda: self._open_spare(way))
            case Drop():
                spare, self._spare = self._spare, None
                if spare is not None:
                    self._start(spare.close)
            case Move(way):
                spare, self._spare = self._spare, None
                if spare is not None:
                    self._move(spare, way)

    def _opened(self, way: Way) -> Carrier:
        part = self._make(way)
        part.open(self._node)
        part.on_links = partial(self._links_changed, way)
        return part

    def _open_spare(self, way: Way) -> None:
        try:
            part: Carrier | None = self._opened(way)
        except BusError as error:
            log.info("a node stays where it is: %s", error)
            part = None
        if self._is_closed and part is not None:
            part.close()
        else:
            self._results.put((way, part))
            self._woken.set()

    def _move(self, part: Carrier, way: Way) -> None:
        """Declare everything in `part`, which is open, and go on there."""
        with self._lock:
            old = self._part
            if old is None:  # closed meanwhile
                self._start(part.close)
                return
            try:
                # Others see no break: what is declared twice ends with the second one.
                declared = [(entry, entry.declare_in(part)) for entry in self._entries]
            except BusError as error:
                log.warning("a node stays where it is: %s", error)
                self._ways.on_not_moved(self._way, time.monotonic())
                self._start(part.close)
                return
            for entry, declaration in declared:
                entry.declaration = declaration
            self._part, self._way = part, way
            self._data_puts, self._control_puts = {}, {}
            old.retire()
        log.warning("this node is on the bus %s now", _described(way))
        self._start(old.close)
        self._unsettle()
        self._settle(gone=False)

    # Watches.

    def _is_settled(self, now_s: float) -> bool:
        return now_s >= self._settled_at_s

    def _unsettle(self) -> None:
        self._settled_at_s = time.monotonic() + _SETTLE_S

    def _links_changed(self, way: Way) -> None:
        if way.is_attached:
            self._unsettle()  # it has but one link, and all tokens go with it
            self._woken.set()

    def _settle(self, *, gone: bool = True) -> None:
        """Tell what differs from what was told before."""
        part = self._part
        if part is not None and part.is_linked:
            with self._lock:
                watches = [entry for entry in self._entries if isinstance(entry, _Watch)]
            for watch in watches:
                watch.tell(part, gone=gone)

    def _daemon_changed(self, token: str, is_alive: bool) -> None:
        (self._daemons.add if is_alive else self._daemons.discard)(token)
        self._woken.set()


class _Entry:
    """Something that the node has declared, wherever it is."""

    declaration: Declaration

    def __init__(self, owner: AttachedEngine, kind: str, *arguments: Any, token: str = "") -> None:
        self.owner = owner
        self.kind = kind
        self.token = token
        self._arguments = arguments

    def declare_in(self, part: Carrier) -> Declaration:
        declared: Declaration = getattr(part, self.kind)(*self._arguments)
        return declared

    def undeclare(self) -> None:
        self.owner.remove(self)


class _Watch(_Entry):
    """Tells of tokens only what differs from what it told before, wherever that was seen.

    With a link, all tokens behind it are gone at once, and most of them are back as soon as there
    is another link. So what a daemon's client sees go is told a little later.
    """

    def __init__(
        self, owner: AttachedEngine, key: str, on_change: Callable[[str, bool], None]
    ) -> None:
        super().__init__(owner, "watch", key)
        self._key = key
        self._on_change = on_change
        self._lock = threading.RLock()
        self._guard = Guarded(key)
        self._told: set[str] = set()
        self._seen: weakref.WeakKeyDictionary[Carrier, set[str]] = weakref.WeakKeyDictionary()

    def declare_in(self, part: Carrier) -> Declaration:
        return part.watch(self._key, partial(self._changed, part))

    def _changed(self, part: Carrier, token: str, is_alive: bool) -> None:
        if self.owner.is_own(token):
            return
        with self._lock:
            seen = self._seen.setdefault(part, set())
            (seen.add if is_alive else seen.discard)(token)
            if not self.owner.is_current(part):
                return
            if is_alive or not self.owner.way.is_attached:
                self._tell(token, is_alive)
            else:
                self.owner.note_gone()

    def tell(self, part: Carrier, *, gone: bool) -> None:
        """Tell what is seen in `part` and was not told, and with `gone` what is not seen."""
        with self._lock:
            seen = self._seen.setdefault(part, set())
            for token in sorted(seen - self._told):
                self._tell(token, True)
            for token in sorted(self._told - seen) if gone else ():
                self._tell(token, False)

    def _tell(self, token: str, is_alive: bool) -> None:
        if is_alive != (token in self._told):
            (self._told.add if is_alive else self._told.discard)(token)
            try:
                self._on_change(token, is_alive)
            except Exception as error:
                self._guard.report(error)


def _described(way: Way) -> str:
    return f"by its daemon at {', '.join(way.endpoints)}" if way.is_attached else "by itself"
