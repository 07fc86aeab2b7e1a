"""The long form: `python -m tests.chaos --seconds 3600 --seed 7`; prints figures and violations.

With `--hosts 5 --faults 500`, the programs run on several hosts, and hosts and cables fail too;
with `--routers`, each host is a site, and routers and their links fail.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.chaos import arena, site
from tests.chaos.checker import Verdict
from tests.chaos.federation import Federation


def main() -> None:
    asked = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    asked.add_argument("--seconds", type=float, default=60.0, help="how long to do harm")
    asked.add_argument("--seed", type=int, default=secrets.randbelow(2**32), help="which harm")
    asked.add_argument("--hosts", type=int, default=0, help="on so many hosts (needs root)")
    asked.add_argument("--faults", type=int, default=100, help="with --hosts: until so many")
    asked.add_argument("--mesh", action="store_true", help="with --hosts: without daemons")
    asked.add_argument(
        "--routers", action="store_true", help="with --hosts: a bus on each, joined by routers"
    )
    options = asked.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="infobus-chaos-"))
    out = Console()
    length = f"{options.faults} faults" if options.hosts else f"{options.seconds:.0f} s"
    out.print(f"seed {options.seed}, {length}; diaries and errors are in {folder}")
    with out.status("kills, stops, full disks, wrong clocks, hostile frames, cut cables ..."):
        verdict, faults = _fight(folder, options)
    table = Table("what", "count", title="Chaos")
    table.columns[1].justify = "right"
    for name, count in sorted({**faults, **verdict.figures}.items()):
        table.add_row(name, f"{count:,}")
    table.add_row("violations", f"{len(verdict.violations):,}", style="bold")
    out.print(table)
    for violation in verdict.violations[:50]:
        out.print(violation, style="red", markup=False)
    sys.exit(bool(verdict.violations))


def _fight(folder: Path, options: argparse.Namespace) -> tuple[Verdict, Counter[str]]:
    if options.hosts:
        made_of = Federation if options.routers else site.Site
        kind = "routers" if options.routers else "mesh" if options.mesh else "daemons"
        return site.fight(folder, options.seed, options.hosts, kind, options.faults, made_of)
    verdict, fought = arena.fight(folder, options.seed, options.seconds)
    return verdict, fought.faults


if __name__ == "__main__":
    main()
