"""`infobus journal`: keeps what is published in a journal; shows, checks and mends journals."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from infobus.cli.lines import printable, to_json
from infobus.cli.options import BusName, Connect, Home, Listen, Seconds, join, stdin

if TYPE_CHECKING:
    from infobus.pipeline.recorder import Progress
    from infobus.stores.journal.manifest import Lost


class _Group(typer.core.TyperGroup):
    """`infobus journal 'news.>' ...` records: the word `record` may be left out."""

    def parse_args(self, context: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in context.help_option_names:
            args = ["record", *args]
        return super().parse_args(context, args)


app = typer.Typer(rich_markup_mode="rich", cls=_Group, no_args_is_help=True)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The journal's folder.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object.")]


@app.callback()
def group() -> None:
    """Keep what is published as Parquet files, by type, for Spark and for later.

    \b
    Keep it                     infobus journal 'news.>' --to DIR
    What is there?              infobus journal show DIR
    Is it whole?                infobus journal verify DIR
    Set damaged files aside     infobus journal repair DIR
    Merge small files           infobus journal compact DIR
    """


@app.command()
def record(
    patterns: Annotated[list[str], typer.Argument(metavar="SUBJECT...", help="What to keep.")],
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="The journal's folder.")],
    where: Annotated[
        str | None, typer.Option("--where", metavar="EXPR", help="Only what this is true of.")
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", help="Of the durable consumer; else each journal has its own."),
    ] = None,
    test: Annotated[bool, typer.Option("--test", help="Test events, too.")] = False,
    keep_days: Annotated[
        float | None, typer.Option("--keep-days", min=0, help="Let go what is older.")
    ] = None,
    keep_mb: Annotated[
        float | None, typer.Option("--keep-mb", min=0, help="Above so much, let the oldest go.")
    ] = None,
    grace_s: Annotated[
        float, typer.Option("--grace-s", min=0, help="How long replaced files stay.")
    ] = 600.0,
    linger_s: Annotated[
        float, typer.Option("--linger-s", min=0, help="How long events wait for each other.")
    ] = 0.5,
    count: Annotated[
        int | None, typer.Option("--count", min=1, help="End after so many events, or a few more.")
    ] = None,
    seconds: Seconds = None,
    until_eof: Annotated[
        bool, typer.Option("--until-eof", help="End when standard input ends.")
    ] = False,
    bus: BusName = None,
    home: Home = None,
    connect: Connect = None,
    listen: Listen = None,
) -> None:
    """Keep what is published under the subjects in the journal in DIR.

    After "keeping ..." (on stderr), nothing that is published is missed. Guaranteed events are
    in the journal once, whatever is killed when; of others, those of the last moments may miss.
    """
    from infobus.pipeline.recorder import Recorder
    from infobus.stores.journal.upkeep import Upkeep

    upkeep = Upkeep(
        keep_s=None if keep_days is None else keep_days * 86_400.0,
        keep_bytes=None if keep_mb is None else round(keep_mb * 1e6),
        grace_s=grace_s,
    )
    err = Console(stderr=True, highlight=False)
    with join(bus, home, connect, listen) as node:
        recorder = Recorder(
            node, patterns, to, name=name, where=where, test=test, upkeep=upkeep, linger_s=linger_s
        )
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: recorder.stop())
        told = f"keeping {', '.join(patterns)} in {to} (bus {node.name})"
        err.print(printable(told), style="dim", markup=False, soft_wrap=True)
        if seconds is not None:
            _later(seconds, recorder.stop)
        if until_eof:
            threading.Thread(target=_stop_at_end, args=(recorder.stop,), daemon=True).start()

        def on_commit(progress: Progress) -> None:
            status.update(_told(progress))
            if count is not None and progress.events >= count:
                recorder.stop()

        with err.status(_told(recorder.progress)) as status:
            recorder.run(on_commit)
    err.print(_told(recorder.progress), style="dim")


def _stop_at_end(stop: Callable[[], None]) -> None:
    stdin().read()
    stop()


def _later(seconds: float, do: Callable[[], None]) -> None:
    timer = threading.Timer(seconds, do)
    timer.daemon = True
    timer.start()


def _told(progress: Progress) -> str:
    losses = f", {progress.losses} losses reported" if progress.losses else ""
    return (
        f"{progress.events:,} events kept, {progress.guaranteed:,} of them guaranteed, "
        f"in {progress.commits:,} commits{losses}"
    )


@app.command()
def show(folder: Folder, as_json: AsJson = False) -> None:
    """Show what is in a journal: events, files and bytes by type."""
    from infobus.stores.journal.journal import Journal

    journal = Journal.open(folder)
    found = _holdings(journal)
    if as_json:
        print(to_json(found))
        return
    out = Console(highlight=False)
    table = Table(box=None, header_style="dim", pad_edge=False)
    for heading in ("type", "events", "files", "bytes", "versions"):
        table.add_column(heading, justify="left" if heading == "type" else "right")
    for name, row in found["types"].items():
        cells = (f"{row[key]:,}" for key in ("events", "files", "bytes", "versions"))
        table.add_row(printable(name or "(untyped)"), *cells)
    out.print(table)
    out.print(
        f"offsets {found['first_offset']} to {found['next_offset']}, "
        f"generation {found['generation']}, journal {found['journal']}"
    )
    for one in journal.manifest.lost:
        out.print(printable(_loss(one)), soft_wrap=True, markup=False)


def _holdings(journal: Any) -> dict[str, Any]:
    manifest = journal.manifest
    types: dict[str, dict[str, int]] = {}
    for segment in manifest.segments:
        row = types.setdefault(segment.type, {"events": 0, "files": 0, "bytes": 0, "versions": 0})
        row["events"] += segment.count
        row["files"] += 1
        row["bytes"] += segment.bytes
        row["versions"] = len(manifest.types.get(segment.type, ()))
    return {
        "journal": manifest.journal,
        "generation": manifest.generation,
        "first_offset": manifest.first_offset,
        "next_offset": manifest.next_offset,
        "types": dict(sorted(types.items())),
        "positions": manifest.positions,
        "lost": [{"type": one.type, "count": one.count, "path": one.path} for one in manifest.lost],
    }


def _loss(lost: Lost) -> str:
    where = f"kept: {lost.path}" if lost.is_kept else f"missing: {lost.path}"
    type = lost.type or "(untyped)"
    if lost.descriptor is not None:
        return f"descriptor of {type} lost; {where}"
    return f"{lost.count} events of {type} lost; {where}"


@app.command()
def verify(folder: Folder, as_json: AsJson = False) -> None:
    """Read every file of a journal, and check every checksum; ends with 1 if one is damaged."""
    from infobus.stores.journal.upkeep import verify as look

    problems = look(folder)
    if as_json:
        print(to_json(problems))
    else:
        for path, problem in problems.items():
            print(printable(f"{path}: {problem}"))
        print(f"{len(problems)} damaged" if problems else f"the journal in {folder} is whole")
    if problems:
        raise typer.Exit(1)


@app.command()
def repair(folder: Folder) -> None:
    """Set damaged files aside, so that everything else can be read again."""
    from infobus.stores.journal.journal import Journal, JournalWriter
    from infobus.stores.journal.upkeep import repair as mend

    Journal.open(folder)  # or a new one would be made where there is none
    with JournalWriter.open(folder) as writer:
        lost = mend(writer)
    for one in lost:
        print(printable(_loss(one)))
    if not lost:
        print(f"the journal in {folder} is whole; nothing was changed")


@app.command()
def compact(folder: Folder) -> None:
    """Merge small files, as far as they go together."""
    import time

    from infobus.stores.journal.journal import Journal, JournalWriter
    from infobus.stores.journal.upkeep import compact as merge

    Journal.open(folder)
    with JournalWriter.open(folder) as writer:
        fewer = merge(writer, time.time(), fan=2)
        print(f"{fewer} files fewer, {len(writer.manifest.segments)} left")
