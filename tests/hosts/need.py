"""What tests over several hosts need of the machine; each is skipped with a reason without it."""

import pytest

from infobus.testing.hosts import what_is_missing

_MISSING = what_is_missing()

needs_networks = pytest.mark.skipif(bool(_MISSING), reason=_MISSING)
