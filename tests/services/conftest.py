"""Buses in one process, each test on a bus of its own."""

import contextlib
import uuid

import pytest

import infobus
from tests.bus.helpers import PATIENCE_S, make_nodes_patient


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    make_nodes_patient(monkeypatch)


@pytest.fixture
def connect(tmp_path):
    """Connect nodes to the test's bus; all are closed after it."""
    name = f"test-{uuid.uuid4().hex}"
    with contextlib.ExitStack() as stack:

        def connect(**options):
            usual = {"engine": "memory", "home": tmp_path, "sync_timeout_s": PATIENCE_S}
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
