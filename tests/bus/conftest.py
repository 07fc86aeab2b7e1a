"""Buses in one process, each test on a bus of its own."""

import contextlib
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import infobus
from infobus import Bus
from tests.patience import PATIENT

Connect = Callable[..., Bus]


@pytest.fixture
def bus_name() -> str:
    return f"test-{uuid.uuid4().hex}"


@pytest.fixture
def connect(bus_name: str) -> Iterator[Connect]:
    """Connect nodes to the test's bus; all are closed after it."""
    with contextlib.ExitStack() as stack:

        def connect(**options: Any) -> Bus:
            bus = infobus.connect(bus_name, **{"engine": "memory", "patience": PATIENT, **options})
            stack.callback(bus.close, 0.2)
            return bus

        yield connect


@pytest.fixture
def bus(connect: Connect) -> Bus:
    return connect()


@pytest.fixture
def other(bus: Bus, connect: Connect) -> Bus:
    """A second node on the same bus."""
    return connect()
