"""`infobus journal`: record what is published; show, verify and repair journals."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from infobus import UsageError
from infobus.cli.options import AsJson, Patterns, TestEvents, Until, Where, WhichBus, grouped
from infobus.cli.terminal import console, note, stdin, stop_when_asked, write_json
from infobus.printable import printable

if TYPE_CHECKING:
    from infobus.pipeline.recorder import RecorderProgress
    from infobus.stores.journal.manifest import LostPart
    from infobus.stores.journal.upkeep import Upkeep


class _Group(typer.core.TyperGroup):
    """Lets you leave out the word `record`: `infobus journal 'news.>' ...` records, too."""

    def parse_args(self, context: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in context.help_option_names:
            args = ["record", *args]
        return super().parse_args(context, args)


app = typer.Typer(rich_markup_mode="rich", cls=_Group, no_args_is_help=True)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The journal's folder.")]


@dataclass(frozen=True)
class Retention:
    """How much of a journal is kept, and how long."""

    keep_days: Annotated[
        float | None, typer.Option("--keep-days", min=0, help="Delete events older than this.")
    ] = None
    keep_mb: Annotated[
        float | None,
        typer.Option("--keep-mb", min=0, help="Delete the oldest events above this size."),
    ] = None
    grace_s: Annotated[
        float, typer.Option("--grace-s", min=0, help="How long replaced files stay for readers.")
    ] = 600.0

    def upkeep(self) -> Upkeep:
        """The same in seconds and bytes."""
        from infobus.stores.journal.upkeep import MERGED_BYTES_MAX, Upkeep

        least = math.ceil(2 * MERGED_BYTES_MAX / 1e6)  # two files, of which one goes as a whole
        if self.keep_mb is not None and self.keep_mb < least:
            raise UsageError(
                f"--keep-mb {self.keep_mb:g}: whole files are deleted, which have up to "
                f"{MERGED_BYTES_MAX / 1e6:.0f} MB, so the least that makes sense is {least}"
            )
        return Upkeep(
            keep_s=None if self.keep_days is None else self.keep_days * 86_400.0,
            keep_bytes=None if self.keep_mb is None else round(self.keep_mb * 1e6),
            grace_s=self.grace_s,
        )


@app.callback()
def group() -> None:
    """Record what is published in Parquet files, one folder per type, for Spark and for later.

    \b
    Record                      infobus journal 'news.>' --to DIR
    See what is there           infobus journal show DIR
    Check every file            infobus journal verify DIR
    Set damaged files aside     infobus journal repair DIR
    Merge small files           infobus journal compact DIR
    """


@app.command()
@grouped
def record(
    retention: Retention,
    until: Until,
    which: WhichBus,
    patterns: Patterns,
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="The journal's folder.")],
    where: Where = None,
    name: Annotated[
        str | None,
        typer.Option("--name", help="Name of the durable consumer; by default one per journal."),
    ] = None,
    test: TestEvents = False,
    linger_s: Annotated[
        float, typer.Option("--linger-s", min=0, help="How long to gather events before a commit.")
    ] = 0.5,
    until_eof: Annotated[
        bool, typer.Option("--until-eof", help="End when standard input ends.")
    ] = False,
) -> None:
    """Record what is published under the patterns in the journal in DIR.

    Once you see "keeping ..." (on stderr), nothing that is published is missed. The journal
    holds each guaranteed event exactly once, whichever program is killed. Of the other events,
    a crash may lose those of the last moments. With --count, a few more events may be kept.
    """
    from infobus.pipeline.recorder import Recorder

    with which.join() as node:
        recorder = Recorder(
            node,
            patterns,
            to,
            name=name,
            where=where,
            test=test,
            upkeep=retention.upkeep(),
            linger_s=linger_s,
        )
        stop_when_asked(recorder.stop, until.seconds)
        note(f"keeping {', '.join(patterns)} in {to} (bus {node.name})")
        if until_eof:
            threading.Thread(target=_stop_at_end, args=(recorder.stop,), daemon=True).start()

        def on_commit(progress: RecorderProgress) -> None:
            status.update(_told(progress))
            if until.count is not None and progress.events >= until.count:
                recorder.stop()

        with console(stderr=True).status(_told(recorder.progress)) as status:
            recorder.run(on_commit)
    note(_told(recorder.progress))


def _stop_at_end(stop: Callable[[], None]) -> None:
    stdin().read()
    stop()


def _told(progress: RecorderProgress) -> str:
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
        write_json(found)
        return
    out = console()
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
        out.print(printable(_loss(one)), soft_wrap=True)


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


def _loss(lost: LostPart) -> str:
    where = f"kept: {lost.path}" if lost.is_kept else f"missing: {lost.path}"
    type = lost.type or "(untyped)"
    if lost.descriptor is not None:
        return f"descriptor of {type} lost; {where}"
    return f"{lost.count} events of {type} lost; {where}"


@app.command()
def verify(folder: Folder, as_json: AsJson = False) -> None:
    """Read every file of a journal and check its checksum. Exit code: 1 if one is damaged."""
    from infobus.stores.journal.upkeep import verify as look

    problems = look(folder)
    if as_json:
        write_json(problems)
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

    Journal.open(folder)  # opening it to write would make a new one if there is none
    with JournalWriter.open(folder) as writer:
        lost = mend(writer)
    for one in lost:
        print(printable(_loss(one)))
    if not lost:
        print(f"the journal in {folder} is whole; nothing was changed")


@app.command()
def compact(
    folder: Folder,
    grace_s: Annotated[
        float,
        typer.Option(
            "--grace-s",
            min=0,
            help="How long replaced files stay for readers; 0 removes them now.",
        ),
    ] = 600.0,
) -> None:
    """Merge small files where their types and versions allow it.

    Files that were merged stay for a while, because somebody may be reading them. They are
    removed when a program next writes to the journal, or by this command.
    """
    import time

    from infobus.stores.journal.journal import Journal, JournalWriter
    from infobus.stores.journal.upkeep import compact as merge
    from infobus.stores.journal.upkeep import sweep

    Journal.open(folder)
    with JournalWriter.open(folder) as writer:
        fewer = merge(writer, time.time(), fan=2)
        removed = sweep(writer, time.time(), grace_s)
        manifest = writer.manifest
    print(f"{fewer} files fewer, {len(manifest.segments)} left")
    if removed:
        print(f"{removed} replaced files removed")
    if manifest.retired:
        print(
            f"{len(manifest.retired)} replaced files stay for their readers; to remove them, run "
            f"this again in {grace_s / 60:g} minutes, or now with --grace-s 0"
        )
