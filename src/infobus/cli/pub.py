"""`infobus pub`: publish from the shell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import typer

from infobus import Bus, Type, UsageError
from infobus.cli.marks import headers_from_marked, object_from_marked, unmarked
from infobus.cli.options import (
    Guaranteed,
    HeaderItems,
    Quality,
    SealingKeys,
    WhichBus,
    complete_types,
    grouped,
)
from infobus.cli.payload import Payload
from infobus.cli.publication import PatientPublisher
from infobus.cli.repeats import Repeats
from infobus.cli.terminal import stdin, warn
from infobus.cli.types import type_on_bus
from infobus.cli.values import (
    headers_from_items,
    object_from_items,
    object_from_json,
    read_object,
)
from infobus.errors import BadFrame
from infobus.objects import find_type
from infobus.objects.classes import learn

Subject = Annotated[
    str | None,
    typer.Argument(
        metavar="SUBJECT",
        help="Such as [b]news.equity.gmc[/b]; [b]-[/b] reads subjects and objects from stdin.",
    ),
]
Items = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="OBJECT",
        help="JSON, or KEY=TEXT and KEY:=JSON ..., or [b]-[/b] to read objects from stdin.",
    ),
]
TypeName = Annotated[
    str | None,
    typer.Option(
        "--type",
        metavar="TYPE",
        autocompletion=complete_types,
        help="Publish an object of this type, which some program on the bus must know.",
    ),
]
Wait = Annotated[
    float, typer.Option(metavar="SECONDS", min=0, help="Wait up to this long for a subscriber.")
]


@grouped
def command(
    payload: Payload,
    repeats: Repeats,
    quality: Quality,
    keys: SealingKeys,
    which: WhichBus,
    subject: Subject = None,
    items: Items = None,
    type_name: TypeName = None,
    wait: Wait = 0.0,
    guaranteed: Guaranteed = False,
    headers: HeaderItems = None,
) -> None:
    """Publish one object, one object per line of stdin, or what you type at a prompt.

    \b
    infobus pub news.equity.gmc headline="GM up" price:=41.5
    infobus pub news.equity.gmc --type Story headline="GM up"
    infobus pub news.equity.gmc headline="GM up" --header trace=4bf92f --header attempt:=2
    infobus pub desk.order symbol=GMC price:=41.5 --sign desk --seal-to audit --clear symbol
    infobus pub door.bell --text hello           # a text; with -, all of stdin
    infobus pub door.photo --raw photo.jpg       # bytes of a file; with -, all of stdin
    infobus pub plant.oven n:={n} at={time} celsius:={random} --count 100 --sleep 0.5
    infobus pub news.equity.gmc -  < objects     # each line: JSON
    infobus pub -                  < events      # each line: SUBJECT JSON, or an event in JSON
    infobus sub 'news.>' --json | infobus pub - --bus other
    infobus pub                                  # asks for everything

    KEY=TEXT is text; with --type, it is read as the attribute's type. KEY:=JSON is any value.

    With --count, {n} is 1, 2, 3 ..., {time} is the moment, and {random} is a whole number below
    1,000,000, wherever they stand in OBJECT or --text. Without --count, they mean themselves.

    An object that nobody subscribes to is not sent, and stderr says so. With --guaranteed, the
    home's ledger keeps it all the same, for durable consumers that are away.

    Exit codes: 1 if nobody subscribed within --wait, 2 if a line of stdin was bad (and skipped).
    """
    if wait and guaranteed:
        raise UsageError("--wait is not for --guaranteed: what is kept waits for its consumers")
    _check(payload, repeats, subject, items, type_name)
    data, bad_count = payload.read(), 0
    told = headers_from_items(headers or []) or None
    with which.join() as node:
        options = quality.options() | keys.options()
        publisher = PatientPublisher(node, wait, guaranteed=guaranteed, headers=told, **options)
        if subject is None and stdin().isatty():
            from infobus.cli.prompt import prompt_until_end

            prompt_until_end(node, publisher)
            return
        type_ = None if type_name is None else type_on_bus(node, type_name)
        if subject is None or subject == "-" or items == ["-"]:
            bad_count = _publish_stdin(node, publisher, subject, type_)
        else:
            for fill in repeats.fillers():
                publisher.publish(subject, _object(data, items or [], type_, fill))
    publisher.tell_unwanted()
    if bad_count or (wait and publisher.unwanted):
        raise typer.Exit(2 if bad_count else 1)


def _check(
    payload: Payload,
    repeats: Repeats,
    subject: str | None,
    items: list[str] | None,
    type_name: str | None,
) -> None:
    """Raise `UsageError` if the arguments do not go together."""
    repeats.check()
    is_stdin = subject in (None, "-") or items == ["-"]
    if repeats.count is not None and is_stdin:
        raise UsageError("--count is for what the command itself says, not for lines of stdin")
    if payload.is_given:
        if subject in (None, "-") or items or type_name:
            raise UsageError("--text and --raw stand for the object: give a SUBJECT and no OBJECT")
    elif not is_stdin and not items and type_name is None:
        raise UsageError(f"nothing to publish under {subject}: give KEY=TEXT, JSON, --text, or -")


def _object(
    data: str | bytes | None, items: list[str], type_: Type | None, fill: Callable[[str], str]
) -> Any:
    if data is None:
        return object_from_items([fill(item) for item in items], type_)
    return fill(data) if isinstance(data, str) else data


def _publish_stdin(
    node: Bus, publisher: PatientPublisher, subject: str | None, type_: Type | None
) -> int:
    """Publish standard input; returns how many of its lines were bad."""
    target = None if subject == "-" else subject
    read_count, bad_count = _publish_lines(node, publisher, target, type_)
    if subject is None and not read_count:
        raise UsageError("nothing to publish: give a SUBJECT and an object, or lines on stdin")
    return bad_count


def _publish_lines(
    node: Bus, publisher: PatientPublisher, subject: str | None, type_: Type | None
) -> tuple[int, int]:
    """Publish standard input; returns how many lines there were, and how many of them were bad."""
    read_count = bad_count = 0
    types: dict[str, Type] = {}
    for number, line in enumerate(stdin(), 1):
        if not line.strip():
            continue
        read_count += 1
        try:
            if subject is None and line.lstrip().startswith("{"):
                _publish_event(node, publisher, line, types)
                continue
            target, text = (subject, line) if subject is not None else _split_line(line)
            publisher.publish(target, object_from_json(text, type_))
        except UsageError as error:
            bad_count += 1
            warn(f"line {number}: {error}")
    return read_count, bad_count


def _publish_event(
    node: Bus, publisher: PatientPublisher, line: str, types: dict[str, Type]
) -> None:
    """Publish an event as `infobus sub --json` prints it; `types` are those found so far."""
    try:
        event = msgspec.json.decode(line, type=_PrintedEvent)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise UsageError(f"expected an event as `infobus sub --json` prints it: {error}") from None
    for known in _learned(event.descriptors):
        types[known.name] = known
    values = read_object(bytes(event.data).decode())
    obj: Any = None
    if event.type is None:
        obj = {name: unmarked(value) for name, value in values.items()}
    else:
        if event.type not in types:
            types[event.type] = type_on_bus(node, event.type)
        obj = object_from_marked(types[event.type], values)
    options: dict[str, Any] = {}
    if event.priority is not None:
        options["priority"] = event.priority
    if event.headers is not None:
        options["headers"] = headers_from_marked(event.headers)
    publisher.publish(event.subject, obj, **options)


def _learned(written: list[bytes]) -> list[Type]:
    """The types that descriptors define; the bus's own rules decide which of them count."""
    try:
        found = [find_type(learn(one)) for one in written]
    except BadFrame as error:
        raise UsageError(f"descriptors: {error}") from None
    return [known for known in found if known is not None and known.is_known]


class _PrintedEvent(msgspec.Struct):
    subject: str
    data: msgspec.Raw
    type: str | None = None
    priority: str | None = None
    headers: dict[str, Any] | None = None
    descriptors: list[bytes] = []


def _split_line(line: str) -> tuple[str, str]:
    # A subject may hold spaces, so it ends where the object begins.
    subject, brace, rest = line.partition("{")
    if not brace or not subject.strip():
        raise UsageError(f"expected SUBJECT and a JSON object, got {line.strip()[:60]!r}")
    return subject.strip(), brace + rest
