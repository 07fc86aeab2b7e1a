"""What all tests share: how hypothesis searches, and that Ctrl-C reaches the programs under test.

Runs repeat exactly, so that a red test is red for everyone. To look for new failures:
`pytest --hypothesis-profile=explore`.
"""

import signal

from hypothesis import settings

# A shell starts what runs in the background with Ctrl-C ignored, and programs inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Deadlines measure the machine, not the code; a hang is caught by the timeout per test.
settings.register_profile("repeatable", deadline=None, max_examples=100, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=2_000)
settings.load_profile("repeatable")
