"""Buses in one process, each test on a bus of its own."""

import contextlib
import uuid

import pytest

import infobus
from tests.patience import PATIENT


@pytest.fixture
def connect(tmp_path):
    """Connect nodes to the test's bus; all are closed after it."""
    name = f"test-{uuid.uuid4().hex}"
    with contextlib.ExitStack() as stack:

        def connect(**options):
            usual = {"engine": "memory", "home": tmp_path, "patience": PATIENT}
            bus = infobus.connect(name, **{**usual, **options})
            stack.callback(bus.close, 0.5)
            return bus

        yield connect


@pytest.fixture
def bus(connect):
    return connect()


@pytest.fixture
def other(bus, connect):
    """A second node on the same bus."""
    return connect()
