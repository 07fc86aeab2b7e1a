"""What tests of engines share."""

import socket

import pytest


@pytest.fixture
def endpoint() -> str:
    """One at which nobody listens yet."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"tcp/127.0.0.1:{free.getsockname()[1]}"
