"""What a user of another system sees."""

import subprocess
import sys


def test_a_system_that_it_cannot_run_on_is_told_in_a_sentence() -> None:
    program = "import os; del os.register_at_fork; import infobus"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith("ImportError: infobus needs Linux or macOS:")
