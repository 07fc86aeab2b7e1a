"""Programs keep their word through kills, stops, full disks, wrong clocks and hostile frames.

This is the short form. The long one is `python -m tests.chaos --seconds 3600`; a seed says which
harm is done, not when each program gets its turn, so a run cannot be repeated exactly.
"""

import secrets
from pathlib import Path

from tests.chaos.arena import fight


def test_under_harm_of_every_kind_nothing_is_lost_doubled_or_disordered(tmp_path: Path) -> None:
    seed = secrets.randbelow(2**32)
    verdict, arena = fight(tmp_path / "arena", seed, seconds=12.0)
    assert not verdict.violations, f"seed {seed}, {arena.faults}"
    for figure in ("plain events received", "guaranteed events consumed", "calls answered"):
        assert verdict.figures[figure] > 0, f"seed {seed}: the arena did nothing"
    assert arena.faults, "no harm was done"
