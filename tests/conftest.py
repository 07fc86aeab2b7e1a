"""What all tests share: how hypothesis searches.

Runs repeat exactly, so that a red test is red for everyone. To look for new failures:
`pytest --hypothesis-profile=explore`.
"""

from hypothesis import settings

# Deadlines measure the machine, not the code; a hang is caught by the timeout per test.
settings.register_profile("repeatable", deadline=None, max_examples=100, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=2_000)
settings.load_profile("repeatable")
