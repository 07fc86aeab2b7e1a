"""The prompt of `infobus pub` without arguments: ask for subject, type and attributes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from rich.console import Console

from infobus import Bus, Type, UsageError
from infobus.cli.lines import short
from infobus.cli.publication import PatientPublisher
from infobus.cli.terminal import console
from infobus.cli.types import type_on_bus
from infobus.cli.values import make_object, split_item, value_from_text
from infobus.errors import BadValue
from infobus.objects.kinds import ANY, BYTES, Maybe, Misfit
from infobus.objects.members import Parameter
from infobus.printable import printable
from infobus.subjects import check_subject

Answer = TypeVar("Answer")


def prompt_until_end(bus: Bus, publisher: PatientPublisher) -> None:
    """Ask for objects and publish them, one after the other, until end of file (Ctrl-D)."""
    import readline  # noqa: F401  gives the prompt its history and line editing

    out = console()
    out.print("Publish objects one by one. Ctrl-D ends, Enter takes the default.", style="dim")
    try:
        while True:
            _publish_one(bus, publisher, out)
    except EOFError:
        out.print()


def _publish_one(bus: Bus, publisher: PatientPublisher, out: Console) -> None:
    subject = ask(out, "subject", _checked_subject)
    type_ = _ask_type(bus, out)
    try:
        obj = _ask_untyped(out) if type_ is None else _ask_object(out, type_)
        publisher.publish(subject, obj)
    except UsageError as error:
        _complain(out, error)
        return
    if publisher.unwanted:
        publisher.tell_unwanted()
        publisher.unwanted.clear()
    else:
        out.print(f"published under {subject}", style="green")


def _checked_subject(text: str) -> str:
    check_subject(text)
    return text


def _ask_type(bus: Bus, out: Console) -> Type | None:
    names = [printable(t.name) for t in bus.types() if t.supertypes or t.attributes]
    out.print(f"types on the bus: {', '.join(names)}", style="dim")
    return ask(out, "type [untyped]", lambda name: type_on_bus(bus, name) if name else None)


def _ask_untyped(out: Console) -> dict[str, Any]:
    values: dict[str, Any] = {}
    question = "attribute (key=text, key:=json, Enter ends)"
    while item := ask(out, question, lambda item: split_item(item) if item else None):
        values[item[0]] = item[1]
    return values


def _ask_object(out: Console, type_: Type) -> Any:
    asked = {each.name: ask_value(out, each) for each in type_.attributes}
    return make_object(type_, asked)


def ask_value(out: Console, attribute: Parameter) -> Any:
    """A value for an attribute or a parameter; asks again until it fits."""
    if attribute.doc:
        out.print(f"  {printable(attribute.doc)}", style="italic dim")
    kind = attribute.kind
    question = f"  {attribute.name}: {attribute.type}"
    if (kind.is_container or kind.is_deep) and kind != ANY:
        question += " as JSON"
    elif kind in (BYTES, Maybe(BYTES)):
        question += " as base64"
    if attribute.has_default:
        question += f" [{short(attribute.default)}]"

    def read(text: str) -> Any:
        if not text and attribute.has_default:
            return attribute.fresh_default()
        try:
            return kind.check(value_from_text(kind, text))
        except Misfit as misfit:
            raise BadValue(f"{attribute.name}{misfit.path}: {misfit.problem}") from None

    return ask(out, question, read)


def ask(out: Console, question: str, read: Callable[[str], Answer]) -> Answer:
    """The answer as `read` converts it; asks again as long as `read` raises `UsageError`."""
    while True:
        try:
            # Not rich's input: readline overwrites a prompt that it does not know.
            return read(input(f"{question}> ").strip())
        except UsageError as error:
            _complain(out, error)


def _complain(out: Console, error: UsageError) -> None:
    out.print(printable(str(error)), style="red")
