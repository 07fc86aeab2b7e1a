"""A process with an engine in it that does what the test says, line by line.

It declares `c/**`, shows a token `l/<node>` and watches `l/*`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parents[2] / "src"
PATIENT = Path(__file__).parents[1] / "patient.toml"


class Agent:
    """The test's end of such a process; if it is not patient, it is taken for dead in a second."""

    def __init__(
        self,
        bus: str,
        node: str,
        prefix: tuple[str, ...] = (),
        patient: bool = True,
        **options: Any,
    ) -> None:
        arguments = json.dumps([bus, node, options])
        self.node = node
        self._process = subprocess.Popen(
            [*prefix, sys.executable, __file__, arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={
                "PYTHONPATH": str(SOURCE),
                "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
                **({"INFOBUS_SETTINGS": str(PATIENT)} if patient else {}),
            },
        )
        self.pid = self._process.pid

    def wait_open(self) -> float:
        """Return how long opening took."""
        return float(self._result())

    def put(self, key: str, text: str) -> None:
        self._call("put", key, text)

    def flood(self, key: str, count: int, size: int) -> float:
        """Put many frames; return the longest time that one took."""
        return float(self._call("flood", key, count, size))

    def received(self, count: int, timeout_s: float = 60.0) -> list[str]:
        """Return what came, as soon as it is `count` frames, or in time; forget it."""
        return list(self._call("received", count, timeout_s))

    def living(self, count: int, timeout_s: float = 60.0) -> list[str]:
        """Return the tokens seen, as soon as they are `count`, or in time."""
        return list(self._call("living", count, timeout_s))

    def send_signal(self, number: int) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        """End it as `kill -9` does. Idempotent."""
        self._process.kill()
        self._process.communicate()

    def close(self) -> None:
        self._call("close")

    def _call(self, *command: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return self._result()

    def _result(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"agent {self.node} ended with {self._process.poll()}"
        return json.loads(line)


def main() -> None:
    from infobus.bus.settings import load_settings
    from infobus.engines.zenoh.engine import ZenohEngine

    bus, node, options = json.loads(sys.argv[1])
    engine = ZenohEngine(bus, patience=load_settings().patience, **options)
    started_s = time.monotonic()
    engine.open(node)
    answer: Any = time.monotonic() - started_s
    frames: list[bytes] = []
    living: dict[str, bool] = {}

    def wait_count(things: Any, count: int, timeout_s: float) -> None:
        deadline_s = time.monotonic() + timeout_s
        while len(things()) != count and time.monotonic() < deadline_s:
            time.sleep(0.001)

    def alive() -> list[str]:
        return sorted(token for token, is_alive in dict(living).items() if is_alive)

    engine.declare("c/**", frames.append)
    engine.announce(f"l/{node}")
    engine.watch("l/*", living.__setitem__)
    while True:
        print(json.dumps(answer), flush=True)
        line = sys.stdin.readline()
        if not line:
            return
        answer = None
        match json.loads(line):
            case ["put", key, text]:
                engine.put(key, text.encode())
            case ["flood", key, count, size]:
                answer, payload = 0.0, b"x" * size
                for _ in range(count):
                    before_s = time.monotonic()
                    engine.put(key, payload)
                    answer = max(answer, time.monotonic() - before_s)
            case ["received", count, timeout_s]:
                wait_count(lambda: frames, count, timeout_s)
                answer = [frame.decode() for frame in frames]
                frames.clear()
            case ["living", count, timeout_s]:
                wait_count(alive, count, timeout_s)
                answer = alive()
            case ["close"]:
                engine.close()


if __name__ == "__main__":
    main()
