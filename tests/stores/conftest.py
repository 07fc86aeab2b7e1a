"""Folders in memory where the system has them: here disks fail on purpose, not by being slow."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")


@pytest.fixture(scope="session")
def new_folder():
    """Makes folders that everybody may enter, and that are removed after the last test."""
    root = MEMORY if os.access(MEMORY, os.W_OK) else None
    folders = []

    def make():
        folders.append(Path(tempfile.mkdtemp(prefix="infobus-", dir=root)))
        folders[-1].chmod(0o755)
        return folders[-1]

    yield make
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def tmp_path(new_folder):
    folder = new_folder()
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
