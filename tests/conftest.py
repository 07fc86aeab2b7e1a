"""What all tests share: how hypothesis searches, that Ctrl-C reaches programs, a PostgreSQL.

Runs repeat exactly, so that a red test is red for everyone. To look for new failures:
`pytest --hypothesis-profile=explore`.
"""

import signal

import pytest
from hypothesis import HealthCheck, settings

from infobus.bench.common.postgres import temporary_postgres
from infobus.errors import UsageError

# A shell starts what runs in the background with Ctrl-C ignored, and programs inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Deadlines, and how long it takes to draw values, measure the machine, not the code; a hang is
# caught by the timeout per test.
untimed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeatable", untimed, max_examples=100, derandomize=True)
settings.register_profile("explore", untimed, max_examples=2_000)
settings.load_profile("repeatable")


@pytest.fixture(scope="session")
def postgres():
    """The URL of a server that runs for these tests alone."""
    try:
        with temporary_postgres() as url:
            yield url
    except UsageError as error:
        pytest.skip(str(error))
