"""The prompt of a bare `infobus pub`: asks for subject, type and attributes, until end of file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from rich.console import Console

from infobus import Bus, Type, UsageError
from infobus.cli.lines import printable, short
from infobus.cli.options import type_on_bus
from infobus.cli.publication import Publisher
from infobus.cli.values import make_object, split_item, value_from_text
from infobus.errors import BadValue
from infobus.objects.kinds import ANY, Misfit
from infobus.objects.members import Parameter
from infobus.subjects import check_subject

Answer = TypeVar("Answer")


def prompt_until_end(bus: Bus, publisher: Publisher) -> None:
    """Ask for one object after the other and publish it; end of file (Ctrl-D) ends it."""
    import readline  # noqa: F401  gives the prompt its history and line editing

    console = Console(highlight=False)
    console.print("Publish objects one by one. Ctrl-D ends, Enter takes the default.", style="dim")
    try:
        while True:
            _publish_one(bus, publisher, console)
    except EOFError:
        console.print()


def _publish_one(bus: Bus, publisher: Publisher, console: Console) -> None:
    subject = ask(console, "subject", _checked_subject)
    type_ = _ask_type(bus, console)
    try:
        obj = _ask_untyped(console) if type_ is None else _ask_object(console, type_)
        publisher.publish(subject, obj)
    except UsageError as error:
        _complain(console, error)
        return
    if publisher.unwanted:
        publisher.tell_unwanted()
        publisher.unwanted.clear()
    else:
        console.print(f"published under {subject}", style="green", markup=False)


def _checked_subject(text: str) -> str:
    check_subject(text)
    return text


def _ask_type(bus: Bus, console: Console) -> Type | None:
    names = [printable(t.name) for t in bus.types() if t.supertypes or t.attributes]
    console.print(f"types on the bus: {', '.join(names)}", style="dim", markup=False)
    return ask(console, "type [untyped]", lambda name: type_on_bus(bus, name) if name else None)


def _ask_untyped(console: Console) -> dict[str, Any]:
    values: dict[str, Any] = {}
    question = "attribute (key=text, key:=json, Enter ends)"
    while item := ask(console, question, lambda item: split_item(item) if item else None):
        values[item[0]] = item[1]
    return values


def _ask_object(console: Console, type_: Type) -> Any:
    asked = {each.name: ask_value(console, each) for each in type_.attributes}
    return make_object(type_, asked)


def ask_value(console: Console, attribute: Parameter) -> Any:
    """A value for an attribute or a parameter; asks again until it fits."""
    if attribute.doc:
        console.print(f"  {printable(attribute.doc)}", style="italic dim", markup=False)
    kind = attribute.kind
    question = f"  {attribute.name}: {attribute.type}"
    if (kind.is_container or kind.is_deep) and kind != ANY:
        question += " as JSON"
    if attribute.has_default:
        question += f" [{short(attribute.default)}]"

    def read(text: str) -> Any:
        if not text and attribute.has_default:
            return attribute.fresh_default()
        try:
            return kind.check(value_from_text(kind, text))
        except Misfit as misfit:
            raise BadValue(f"{attribute.name}{misfit.path}: {misfit.problem}") from None

    return ask(console, question, read)


def ask(console: Console, question: str, read: Callable[[str], Answer]) -> Answer:
    """What `read` makes of the answer; asks again for as long as it raises `UsageError`."""
    while True:
        try:
            # Not rich's input: readline must know the prompt, or it overwrites it.
            return read(input(f"{question}> ").strip())
        except UsageError as error:
            _complain(console, error)


def _complain(console: Console, error: UsageError) -> None:
    console.print(printable(str(error)), style="red", markup=False)
