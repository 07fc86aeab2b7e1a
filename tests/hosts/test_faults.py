"""Hosts and cables fail one after the other: what was missed is told, and work goes on.

This is the short form. The long one is `python -m tests.chaos --hosts 5 --faults 500`.
"""

from __future__ import annotations

import secrets
import time
from pathlib import Path

import pytest

from tests.chaos.site import Site, judged, silences_s, site
from tests.hosts.need import needs_networks

CREW = ("publisher", "listener", "keeper", "consumer")
FAULTS_S = {
    "cut off a host": 5.0,
    "cut one way": 2.0,
    "unplug a host": 2.0,
    "freeze a host": 2.0,
    "kill a host": 0.0,
}
CALM_S = 1.5
BACK_S = 6.0
"""After healing, work goes on within 3 s on a quiet machine."""


@needs_networks
@pytest.mark.slow
def test_what_was_missed_is_told_and_work_goes_on_after_each_fault(tmp_path: Path) -> None:
    seed = secrets.randbelow(2**32)
    with site(tmp_path / "site", seed, 3, crews=(CREW,)) as made:
        made.heal()
        for fault, for_s in FAULTS_S.items():
            wait(made, CALM_S)
            assert made.do(fault, time.monotonic(), for_s)
            wait(made, for_s)
        wait(made, CALM_S)
        verdict = judged(made)
    assert not verdict.violations, f"seed {seed}"
    assert verdict.figures["guaranteed events consumed"] > 0
    assert verdict.figures["plain events received"] > 0
    back_s = silences_s(made)
    assert back_s, "nobody was apart"
    assert max(back_s.values()) < BACK_S, f"seed {seed}: {back_s}"


def wait(made: Site, for_s: float) -> None:
    """Let the programs work for so long."""
    end_s = time.monotonic() + for_s
    while time.monotonic() < end_s:
        made.look_after(time.monotonic())
        time.sleep(0.05)
