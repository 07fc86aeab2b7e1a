"""A program with a bus in it that does what the test says, line by line.

A command is a JSON line, its answer one too. Commands on events use {"n": number} as objects.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parents[3] / "src"


class Node:
    """The test's end of such a program; if it is not patient, it is taken for dead in a second."""

    def __init__(
        self,
        bus: str,
        patient: bool = True,
        popen: Callable[..., subprocess.Popen[str]] = subprocess.Popen,
        **options: Any,
    ) -> None:
        environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
        if not patient:
            environment.pop("INFOBUS_SETTINGS", None)
        self._process = popen(
            [sys.executable, __file__, json.dumps([bus, options])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.pid = self._process.pid
        self.name = ""

    def wait_open(self) -> Node:
        self.name = self.answer()
        return self

    def __call__(self, *command: Any) -> Any:
        """Have a command carried out, and wait for its answer."""
        self.begin(*command)
        return self.answer()

    def begin(self, *command: Any) -> None:
        """Give a command without waiting for its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"node {self.pid} ended with {self._process.wait()}"
        return json.loads(line)

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it as `kill -9` does. Idempotent."""
        self._process.kill()
        self._process.communicate()

    def wait_exit(self, timeout_s: float = 60.0) -> int:
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process.wait(timeout_s)


class Account:
    """What a subscription got: per sender, numbers received and losses reported, in order."""

    def __init__(self) -> None:
        self.entries: dict[str, list[Any]] = {}
        self.changed = threading.Condition()

    def note(self, sender: str, entry: Any) -> None:
        with self.changed:
            self.entries.setdefault(sender, []).append(entry)
            self.changed.notify_all()

    def wait(self, count: int, timeout_s: float) -> dict[str, list[Any]]:
        def has_enough() -> bool:
            return sum(map(len, self.entries.values())) >= count

        with self.changed:
            self.changed.wait_for(has_enough, timeout_s)
            entries, self.entries = self.entries, {}
            return entries


def main() -> None:
    import infobus

    def subscribe(pattern: str, options: dict[str, Any]) -> Account:
        account = Account()
        sub = bus.subscribe(pattern, **options)

        def consume() -> None:
            while True:
                try:
                    event = sub.receive()
                except infobus.LossError as loss:
                    account.note(loss.sender, ["lost", loss.first, loss.last])
                except infobus.BusClosed:
                    return
                else:
                    account.note(event.sender, [event.data["n"], event.seq])

        threading.Thread(target=consume, daemon=True).start()
        return account

    bus_name, options = json.loads(sys.argv[1])
    bus = infobus.connect(bus_name, **options)
    accounts: dict[str, Account] = {}
    answer: Any = bus.node
    while True:
        print(json.dumps(answer), flush=True)
        line = sys.stdin.readline()
        if not line:
            return
        answer = None
        match json.loads(line):
            case ["subscribe", pattern, options]:
                accounts[pattern] = subscribe(pattern, options)
            case ["publish", subject, first, last]:
                for number in range(first, last + 1):
                    bus.publish(subject, {"n": number})
            case ["flood", subject, count, size]:  # returns the longest time that one took
                answer, fill = 0.0, "x" * size
                for number in range(count):
                    before_s = time.monotonic()
                    bus.publish(subject, {"n": number, "fill": fill})
                    answer = max(answer, time.monotonic() - before_s)
            case ["account", pattern, count, timeout_s]:
                answer = accounts[pattern].wait(count, timeout_s)
            case ["peers", count, timeout_s]:
                deadline_s = time.monotonic() + timeout_s
                while len(bus.stats().peers) != count and time.monotonic() < deadline_s:
                    time.sleep(0.005)
                answer = len(bus.stats().peers)
            case ["stats", name]:
                answer = getattr(bus.stats(), name)
            case ["close"]:
                bus.close()
            case ["exec", code]:
                scope = {"bus": bus, "infobus": infobus, "answer": None}
                exec(code, scope)
                answer = scope["answer"]


if __name__ == "__main__":
    main()
