"""Nodes that do not take each other for dead when they are only slow."""

import pytest

from tests.processes.patient.sitecustomize import be_patient


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    be_patient(monkeypatch.setattr)
