"""Processes that do not take each other for dead when they are only slow."""

import pytest

from tests.processes.patient.sitecustomize import be_patient
from tests.processes.programs.node import PATIENT


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    be_patient(monkeypatch.setattr)
    monkeypatch.setenv("PYTHONPATH", PATIENT)
