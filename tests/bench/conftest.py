"""Processes that do not take each other for dead when they are only slow."""

import pytest

from tests.patience import make_programs_patient
from tests.processes.programs.node import SOURCE


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    make_programs_patient(monkeypatch)
    monkeypatch.setenv("PYTHONPATH", str(SOURCE))
