"""`infobus filter explain` and `infobus filter test`: try a filter before you subscribe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table
from rich.text import Text
from rich.tree import Tree as Picture

from infobus import UsageError
from infobus.cli.options import AsJson
from infobus.cli.terminal import console, stdin, warn, write, write_json
from infobus.cli.values import object_from_json
from infobus.printable import printable

app = typer.Typer(no_args_is_help=True, help="Try a filter, as for [b]sub --where[/b].")

Expression = Annotated[
    str, typer.Argument(metavar="EXPR", help="Such as 'symbol == \"GMC\" && price > 40'.")
]

_EVENT_KEYS = {"subject", "type", "data", "id", "sender", "seq", "time"}  # of `sub --json`
_RESULTS = {True: "matched", False: "false", None: "undefined"}


@app.command("explain")
def explain(expression: Expression, as_json: AsJson = False) -> None:
    """Show how a filter is understood: its parts, its attributes, what it reduces to, its SQL.

    The types of the SQL columns are guessed from the values that the filter compares them with.
    """
    # Imported here, as below, so that the other commands start without the filter language.
    from infobus.cli.filter_text import explanation

    found = explanation(expression)
    if as_json:
        write_json(found)
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("filter", Text(printable(found["filter"]), "bold"))
    table.add_row("tree", _picture(found["tree"]))
    table.add_row("attributes", printable(", ".join(found["attributes"])) or "none")
    table.add_row("reduces to", printable(_reduced_text(found["reduced"])))
    for name, text in found["sql"].items():
        table.add_row(_SQL_LABELS[name], printable(_sql_text(name, text)))
    console().print(table)


@app.command("test")
def test(expression: Expression, as_json: AsJson = False) -> None:
    """Count the events on stdin that match, and say why each of the others does not.

    \b
    infobus filter test 'price > 40' < events.jsonl
    infobus sub 'trades.>' --json --count 100 | infobus filter test 'price > 40'

    Each line is one event: a JSON object, or a line that [b]sub --json[/b] printed.

    JSON carries no types, so [b]isa[/b] is always false here.

    Exit codes: 0 if any event matched, 1 if none did. Bad lines are reported and counted.
    """
    from infobus.filters import compile
    from infobus.filters.language.explanation import why

    where = compile(expression)
    counts = Counter(dict.fromkeys((*_RESULTS.values(), "bad"), 0))
    reasons: Counter[str] = Counter()
    for number, event in _events(counts):
        truth = where.evaluate(event)
        counts[_RESULTS[truth]] += 1
        found = why(where, event)
        # Counted without the values, because those differ from event to event.
        reasons.update(f"{one.condition}: {_RESULTS[one.truth]}" for one in found)
        if as_json:
            write_json({"line": number, "result": truth, "why": found})
        elif found:
            write(printable(f"line {number}: {'; '.join(map(str, found))}"))
    if as_json:
        write_json({"summary": counts})
    else:
        _print_summary(counts, reasons)
    if not counts["matched"]:
        raise typer.Exit(1)


def _events(counts: Counter[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The events on stdin with their line numbers; bad lines are reported and counted."""
    for number, line in enumerate(stdin(), 1):
        if not line.strip():
            continue
        try:
            event = object_from_json(line.strip())
        except UsageError as error:
            counts["bad"] += 1
            warn(f"line {number}: {error}")
            continue
        yield number, event["data"] if event.keys() >= _EVENT_KEYS else event


def _print_summary(counts: Counter[str], reasons: Counter[str]) -> None:
    table = Table(box=box.SIMPLE, pad_edge=False, show_header=False)
    table.add_column(justify="right", style="bold")
    table.add_column(overflow="fold")
    table.add_row(str(counts["matched"]), "matched")
    table.add_row(str(counts["false"] + counts["undefined"]), "did not match")
    for reason, count in reasons.most_common():
        table.add_row("", Text(printable(f"{count} {reason}"), "dim"))
    if counts["bad"]:
        table.add_row(str(counts["bad"]), "bad lines")
    console().print(table)


def _picture(branch: dict[str, Any]) -> Picture:
    picture = Picture(Text(printable(branch["node"]), "bold" if branch["parts"] else ""))
    for part in branch["parts"]:
        picture.children.append(_picture(part))
    return picture


def _reduced_text(reduced: str) -> str:
    told = {"everything": "everything: every event matches", "nothing": "nothing: none can match"}
    return told.get(reduced, reduced)


_SQL_LABELS = {
    "error": "SQL",
    "columns": "SQL columns",
    "condition": "SQL",
    "residual": "left over",
}
_IF_NONE = {"condition": "none: nothing of it can be left to a database", "residual": "nothing"}


def _sql_text(name: str, text: str | dict[str, str] | None) -> str:
    if isinstance(text, dict):
        return ", ".join(f"{column} {kind}" for column, kind in text.items()) or "none"
    return _IF_NONE[name] if text is None else text
