"""Programs on a bus of the test's own."""

import contextlib
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.patience import make_programs_patient
from tests.processes.programs.node import Node

Start = Callable[..., Node]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test's own nodes are as patient as those of its programs."""
    make_programs_patient(monkeypatch)


@pytest.fixture
def start() -> Iterator[Start]:
    """Start nodes on a bus of the test's own; all are killed after it."""
    bus = f"test-{uuid.uuid4().hex}"
    with contextlib.ExitStack() as stack:

        def start(wait: bool = True, on_bus: str = bus, **options: Any) -> Node:
            node = Node(on_bus, **options)
            stack.callback(node.kill)
            return node.wait_open() if wait else node

        yield start
