"""How long tests, and the nodes in them, wait for what is certain to come."""

from pathlib import Path

import pytest
from msgspec import toml

from infobus import Patience

SETTINGS = Path(__file__).with_name("patient.toml")
"""The settings file of programs that are patient with each other."""

PATIENT_PROGRAM = toml.decode(SETTINGS.read_bytes(), type=dict[str, Patience])["patience"]

PATIENCE_S = 20.0

PATIENT = Patience(
    handshake_s=PATIENCE_S,
    sync_s=PATIENCE_S,
    subscribe_s=PATIENCE_S,
    close_s=PATIENCE_S,
    types_s=PATIENCE_S,
    state_s=PATIENCE_S,
    policy_s=PATIENCE_S,
    answers_s=PATIENCE_S,
    discovery_s=PATIENCE_S,
)
"""Of nodes in one process.

A program goes on after a second or two without an answer; a test would then see what is right for
nodes that do not answer, and not what it is about.
"""


def make_programs_patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nodes of this process, and of programs that it starts, wait for slow ones."""
    monkeypatch.setenv("INFOBUS_SETTINGS", str(SETTINGS))
