"""What every engine must do, as tests. Subclass `EngineConformance` in a pytest module:

    class TestMyEngine(EngineConformance):
        def new_engine(self) -> Engine:
            return MyEngine(...)

Each test opens the engines it needs on one network and closes them afterwards.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from infobus.engines import Engine
from infobus.errors import BusClosed, UsageError

_PATIENCE_S = 10.0


class EngineConformance:
    """The promises of `infobus.engines.base.Engine`, one test each."""

    def new_engine(self) -> Engine:
        """Return a fresh engine, not open yet, on the network of this test."""
        raise NotImplementedError

    def wait_a_little(self) -> None:
        """Let things happen; an engine with a virtual clock moves it on here."""
        time.sleep(0.002)

    def setup_method(self) -> None:
        """Start without engines."""
        self._engines: list[Engine] = []

    def teardown_method(self) -> None:
        """Close what a test opened."""
        for engine in self._engines:
            engine.close()

    def opened(self, node: str) -> Engine:
        """Return an open engine that is closed after the test."""
        engine = self.new_engine()
        self._engines.append(engine)
        engine.open(node)
        return engine

    def wait_until(self, condition: Callable[[], object], what: str) -> None:
        """Fail unless `condition` becomes true in good time."""
        deadline_s = time.monotonic() + _PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline_s, f"waited {_PATIENCE_S} s in vain: {what}"
            self.wait_a_little()

    def wait_known(self, sender: Engine, key: str, *receivers: list[bytes]) -> None:
        """Return when `sender` knows of the declarations that fill `receivers`; empty those."""

        def probes_came() -> bool:
            sender.put(key, b"probe")
            return all(receivers)

        self.wait_until(probes_came, f"a probe on {key}")
        sender.put(key, b"last probe")
        self.wait_until(lambda: all(got[-1] == b"last probe" for got in receivers), "the last one")
        for got in receivers:
            got.clear()

    def test_a_frame_reaches_every_other_node_that_declared_its_key(self) -> None:
        a, b, c, d = (self.opened(name) for name in "abcd")
        at_b: list[bytes] = []
        at_c: list[bytes] = []
        at_d: list[bytes] = []
        b.declare("c/news", at_b.append)
        c.declare("c/news", at_c.append)
        d.declare("c/sport", at_d.append)
        self.wait_known(a, "c/news", at_b, at_c)
        self.wait_known(a, "c/sport", at_d)
        a.put("c/news", b"hello")
        self.wait_until(lambda: at_b and at_c, "the frame")
        assert (at_b, at_c, at_d) == ([b"hello"], [b"hello"], [])

    def test_a_newcomer_is_heard_from_its_first_put_on(self) -> None:
        got: list[bytes] = []
        self.opened("a").declare("c/news", got.append)
        self.opened("b").put("c/news", b"first")
        self.wait_until(lambda: got, "the first frame")
        assert got == [b"first"]

    def test_an_engine_never_hears_itself(self) -> None:
        a, b = self.opened("a"), self.opened("b")
        at_a: list[bytes] = []
        at_b: list[bytes] = []
        changes: list[tuple[str, bool]] = []
        a.declare("c/news", at_a.append)
        b.declare("c/news", at_b.append)
        a.answer("q/x", lambda _: b"a")
        a.announce("l/a")
        a.watch("l/*", lambda key, alive: changes.append((key, alive)))
        self.wait_known(a, "c/news", at_b)
        a.put("c/news", b"hello")
        b.announce("l/b")
        self.wait_until(lambda: at_b and changes, "what goes to others")
        assert at_a == []
        assert a.query("q/x", b"", 1.0) == []
        assert changes == [("l/b", True)]

    def test_frames_of_one_node_on_one_key_arrive_in_order(self) -> None:
        a, b = self.opened("a"), self.opened("b")
        got: list[bytes] = []
        b.declare("c/*", got.append)
        self.wait_known(a, "c/news", got)
        sent = [b"%d" % number for number in range(2_000)]
        for payload in sent:
            a.put("c/news", payload)
        self.wait_until(lambda: len(got) >= len(sent), "all frames")
        assert got == sent

    def test_patterns_match_one_element_or_any_number(self) -> None:
        a, b = self.opened("a"), self.opened("b")
        one: list[bytes] = []
        many: list[bytes] = []
        b.declare("c/*", one.append)
        b.declare("c/**", many.append)
        self.wait_known(a, "c/x", one, many)
        for key in ("c", "c/x", "c/x/y", "n/x"):
            a.put(key, key.encode())
        a.put("c/end", b"end")
        self.wait_until(lambda: b"end" in one and len(many) == 4, "the frames")
        # Keys are not ordered against each other.
        assert sorted(one) == [b"c/x", b"end"]
        assert sorted(many) == [b"c", b"c/x", b"c/x/y", b"end"]

    def test_payloads_may_be_empty_or_large(self) -> None:
        a, b = self.opened("a"), self.opened("b")
        got: list[bytes] = []
        b.declare("c/x", got.append)
        self.wait_known(a, "c/x", got)
        large = bytes(range(256)) * 8192
        for payload in (b"", large, b""):
            a.put("c/x", payload)
        self.wait_until(lambda: len(got) == 3, "three frames")
        assert got == [b"", large, b""]
        assert all(type(payload) is bytes for payload in got)

    def test_control_frames_arrive_too(self) -> None:
        a, b = self.opened("a"), self.opened("b")
        got: list[bytes] = []
        b.declare("n/b", got.append)
        self.wait_known(a, "n/b", got)
        a.put("n/b", b"please", control=True)
        self.wait_until(lambda: got, "the control frame")
        assert got == [b"please"]

    def test_nothing_is_delivered_within_put(self) -> None:
        a, b = self.opened("a"), self.opened("b")
        returned: list[bytes] = []
        is_putting = False
        delivered_while_putting: list[bool] = []

        def bounce(payload: bytes) -> None:
            nonlocal is_putting
            delivered_while_putting.append(is_putting)
            is_putting = True
            b.put("c/y", payload)
            is_putting = False

        b.declare("c/x", bounce)
        a.declare("c/y", returned.append)

        def ball_came_back_often() -> bool:
            a.put("c/x", b"ball")
            return len(returned) > 20

        self.wait_until(ball_came_back_often, "the ball")
        assert not any(delivered_while_putting)

    def test_an_undeclared_key_is_silent_and_undeclaring_twice_is_harmless(self) -> None:
        a, b = self.opened("a"), self.opened("b")
        kept: list[bytes] = []
        dropped: list[bytes] = []
        b.declare("c/x", kept.append)
        declaration = b.declare("c/x", dropped.append)
        self.wait_known(a, "c/x", dropped, kept)
        declaration.undeclare()
        declaration.undeclare()
        a.put("c/x", b"after")
        self.wait_until(lambda: kept, "the frame for the other declaration")
        assert dropped == []

    def test_a_callback_may_undeclare_itself(self) -> None:
        a, b = self.opened("a"), self.opened("b")
        got: list[bytes] = []
        other: list[bytes] = []

        def once(payload: bytes) -> None:
            got.append(payload)
            declaration.undeclare()

        b.declare("c/x", other.append)
        self.wait_known(a, "c/x", other)
        declaration = b.declare("c/x", once)
        while not got:
            a.put("c/x", b"more")
            self.wait_a_little()
        other.clear()
        a.put("c/x", b"end")
        self.wait_until(lambda: b"end" in other, "the end")
        assert b"end" not in got

    def test_a_callback_that_raises_is_logged_once_and_goes_on(self) -> None:
        a, b = self.opened("a"), self.opened("b")
        got: list[bytes] = []

        def on_frame(payload: bytes) -> None:
            got.append(payload)
            raise LookupError(payload)

        with _CapturedLog("infobus.engine") as log:
            b.declare("c/x", on_frame)
            self.wait_known(a, "c/x", got)
            for payload in (b"1", b"2", b"3"):
                a.put("c/x", payload)
            self.wait_until(lambda: len(got) == 3, "three frames")
        assert got == [b"1", b"2", b"3"]
        assert len(log.messages) == 1
        assert "c/x" in log.messages[0] and "LookupError" in log.messages[0]

    def test_a_query_returns_the_answers_of_all_nodes(self) -> None:
        a, b, c = (self.opened(name) for name in "abc")
        b.answer("q/types/b", lambda payload: b"b " + payload)
        c.answer("q/types/c", lambda payload: b"c " + payload)
        answers: list[bytes] = []

        def both_answer() -> bool:
            answers[:] = a.query("q/types/*", b"story", 2.0)
            return len(answers) == 2

        self.wait_until(both_answer, "both to be known")
        assert sorted(answers) == [b"b story", b"c story"]
        assert a.query("q/types/b", b"only", 2.0) == [b"b only"]

    def test_a_query_that_nobody_answers_returns_nothing(self) -> None:
        a, b = self.opened("a"), self.opened("b")

        def fail(_: bytes) -> bytes:
            raise LookupError("no such type")

        with _CapturedLog("infobus.engine") as log:
            b.answer("q/types", fail)

            def was_asked() -> bool:
                assert a.query("q/types", b"", 0.5) == []
                return bool(log.messages)

            self.wait_until(was_asked, "the failing handler")
        assert a.query("q/unknown", b"", 0.5) == []

    def test_a_watcher_is_told_of_tokens_there_before_and_after(self) -> None:
        a, b, c = (self.opened(name) for name in "abc")
        a.announce("l/a")
        here: list[tuple[str, bool]] = []
        sentinel: list[tuple[str, bool]] = []
        c.watch("l/*", lambda key, alive: sentinel.append((key, alive)))
        self.wait_until(lambda: sentinel, "the token to have travelled")
        c.watch("l/*", lambda key, alive: here.append((key, alive)))
        assert here == [("l/a", True)]
        token = b.announce("l/b")
        self.wait_until(lambda: len(here) == 2, "the second token")
        token.undeclare()
        token.undeclare()
        self.wait_until(lambda: len(here) == 3, "the end of the second token")
        a.close()
        self.wait_until(lambda: len(here) == 4, "the end of the first node")
        assert here[1:] == [("l/b", True), ("l/b", False), ("l/a", False)]

    def test_a_watch_that_was_undeclared_is_silent(self) -> None:
        a, b = self.opened("a"), self.opened("b")
        kept: list[str] = []
        dropped: list[str] = []
        a.watch("l/*", lambda key, _: kept.append(key))
        a.watch("l/*", lambda key, _: dropped.append(key)).undeclare()
        b.announce("l/b")
        self.wait_until(lambda: kept, "the token")
        assert dropped == []

    def test_what_was_put_before_close_still_arrives(self) -> None:
        a, b = self.opened("a"), self.opened("b")
        got: list[bytes] = []
        b.declare("c/x", got.append)
        self.wait_known(a, "c/x", got)
        for number in range(1_000):
            a.put("c/x", b"%d" % number)
        a.close()
        self.wait_until(lambda: len(got) == 1_000, "the frames put before close")

    def test_a_closed_engine_says_so(self) -> None:
        engine = self.opened("a")
        declaration = engine.declare("c/x", lambda _: None)
        engine.put("c/x", b"")
        engine.close()
        engine.close()
        declaration.undeclare()
        self._expect_closed(engine)
        _expect(UsageError, lambda: engine.open("a"))

    def test_links_lead_to_the_sessions_of_others(self) -> None:
        a, b = self.opened("a"), self.opened("b")
        self.wait_until(lambda: a.links().others and b.links().others, "a link")
        assert a.links().own not in ("", b.links().own, *a.links().others)

    def test_an_engine_cannot_be_used_before_it_is_open(self) -> None:
        self._expect_closed(self.new_engine())

    def _expect_closed(self, engine: Engine) -> None:
        _expect(BusClosed, lambda: engine.put("c/x", b""))
        _expect(BusClosed, lambda: engine.put("c/x", b"", control=True))
        _expect(BusClosed, lambda: engine.declare("c/x", lambda _: None))
        _expect(BusClosed, lambda: engine.answer("q/x", lambda payload: payload))
        _expect(BusClosed, lambda: engine.query("q/x", b"", 0.1))
        _expect(BusClosed, lambda: engine.announce("l/x"))
        _expect(BusClosed, lambda: engine.watch("l/*", lambda _key, _alive: None))


def _expect(error: type[Exception], call: Callable[[], object]) -> None:
    try:
        call()
    except error:
        return
    raise AssertionError(f"expected {error.__name__}, but nothing was raised")


class _CapturedLog(logging.Handler):
    def __init__(self, logger: str) -> None:
        super().__init__()
        self.messages: list[str] = []
        self._logger = logging.getLogger(logger)

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())

    def __enter__(self) -> _CapturedLog:
        self._logger.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)
