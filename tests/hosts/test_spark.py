"""Spark with its driver and its executors on different hosts, and the bus between them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from infobus.testing.hosts import Hosts, NetworkHost
from tests.bus.helpers import wait_until
from tests.hosts.need import needs_networks
from tests.spark.java import OPTIONS, needs_java

COUNT = 1_000
PROGRAM = Path(__file__).with_name("spark_program.py")
DEPLOY = "org.apache.spark.deploy"
SPARK_PORT = 7077

SUBSCRIBER = """
import infobus
with infobus.connect() as bus:
    sub = bus.subscribe("alerts.>", durable="desk")
    print("ready", flush=True)
    for _ in range({count}):
        print(sub.receive(timeout_s=300).data.n, flush=True)
"""
PUBLISHER = """
import sys
import infobus
class Reading(infobus.DataObject):
    n: int
    celsius: float
with infobus.connect() as bus:
    with bus.quench("readings.>") as wanted:  # what nobody knows of is owed to nobody
        while not wanted.expression().everything and next(wanted.changes()):
            pass
    for n in range({count}):
        bus.publish("readings.oven", Reading(n=n, celsius=99.0 + n % 2), guaranteed=True)
    sys.stdin.read()
"""


def java_at(host: NetworkHost) -> dict[str, str]:
    return {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": (
            f"--driver-java-options '{OPTIONS}' "
            f"--conf 'spark.executor.extraJavaOptions={OPTIONS}' pyspark-shell"
        ),
        "SPARK_DAEMON_JAVA_OPTS": OPTIONS,
        "SPARK_DAEMON_MEMORY": "512m",
        "SPARK_LAUNCHER_OPTS": OPTIONS,
        "SPARK_LOCAL_IP": host.address,
    }


@contextmanager
def program(host: NetworkHost, *command: str, **options: object) -> Iterator[subprocess.Popen[str]]:
    with host.popen(
        [sys.executable, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        **options,
    ) as started:
        try:
            yield started
        finally:
            started.kill()


def spark_class(host: NetworkHost, folder: Path, *arguments: str) -> subprocess.Popen[str]:
    import pyspark

    script = Path(pyspark.__file__).parent / "bin" / "spark-class"
    with (folder / f"{arguments[0]}-{host.name}.log").open("wb") as log:
        at = ["--host", host.address, "--webui-port", "0"]
        command = [str(script), f"{DEPLOY}.{arguments[0]}", *at, *arguments[1:]]
        return host.popen(command, stdout=log, stderr=log, env=java_at(host))


def start_daemons(hosts: Hosts, folder: Path) -> None:
    """One on each host, linked with those before it; returns when each of them is linked."""
    logs = [folder / f"daemon-{host.name}.log" for host in hosts]
    for host, log in zip(hosts, logs, strict=True):
        joined = [f"--join={other.endpoint}" for other in hosts if other is not host]
        here = [f"--listen={host.endpoint}", "--insecure"]
        with log.open("wb") as errors:
            command = [sys.executable, "-m", "infobus.cli", "daemon", "run", *here, *joined]
            host.popen(command, stderr=errors)
    linked = len(hosts) - 1
    wait_until(lambda: all(log.read_text().count(" is linked") >= linked for log in logs))


@needs_networks
@needs_java
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_readings_become_alerts_across_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver is on one host, its executor on another, the programs of the bus on a third."""
    settings = tmp_path / "infobus.toml"
    settings.write_text('bus = "plant"\n')
    monkeypatch.setenv("INFOBUS_SETTINGS", str(settings))
    with Hosts(3) as hosts, ExitStack() as stack:
        first, middle, last = hosts
        start_daemons(hosts, tmp_path)
        master = f"spark://{first.address}:{SPARK_PORT}"
        spark_class(first, tmp_path, "master.Master", "--port", str(SPARK_PORT))
        work = ["--cores", "1", "--memory", "1g", "--work-dir", str(tmp_path / "work")]
        spark_class(middle, tmp_path, "worker.Worker", *work, master)
        code = SUBSCRIBER.format(count=COUNT // 2)
        desk = stack.enter_context(program(last, "-c", code))
        assert line_of(desk) == "ready"
        driver = stack.enter_context(
            program(first, str(PROGRAM), master, first.address, str(tmp_path), env=java_at(first))
        )
        assert line_of(driver) == f"executor on {middle.name}"
        assert line_of(driver) == "started"
        stack.enter_context(program(last, "-c", PUBLISHER.format(count=COUNT)))
        got = [json.loads(line_of(desk)) for _ in range(COUNT // 2)]
        assert sorted(got) == list(range(1, COUNT, 2))


def line_of(running: subprocess.Popen[str]) -> str:
    assert running.stdout is not None
    line = running.stdout.readline()
    assert line, f"it ended with {running.wait()}"
    return line.rstrip("\n")
