"""`infobus call`: call an operation of a service; a bare `infobus call` asks for everything."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

import infobus
from infobus import Bus, DataObject, UsageError
from infobus.cli.lines import printable, to_json
from infobus.cli.options import BusName, Connect, Home, Listen, join
from infobus.cli.prompt import ask, ask_value
from infobus.cli.services import PATIENCE_S, operation_of
from infobus.cli.values import read_json, value_from_json, value_from_text

if TYPE_CHECKING:
    from infobus.objects.members import Catalog
    from infobus.services import ServiceOperation


def command(
    subject: Annotated[str | None, typer.Argument(help="The service's subject.")] = None,
    operation: Annotated[str | None, typer.Argument(help="What to call.")] = None,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(help="name=text, name:=json, or all of them as one JSON object."),
    ] = None,
    timeout_s: Annotated[float, typer.Option("--timeout", help="Seconds to wait.")] = 10.0,
    policy: Annotated[
        str, typer.Option("--policy", help="first, least_loaded, or all servers.")
    ] = "first",
    exactly_once: Annotated[
        bool, typer.Option("--exactly-once", help="Safe to try again, also after a crash.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    bus: BusName = None,
    home: Home = None,
    connect: Connect = None,
    listen: Listen = None,
) -> None:
    """Call an operation of a service, after showing its signature.

    \b
    With all arguments   infobus call svc.keywords keywords_in '{"text": "GM up"}'
    or one by one        infobus call svc.keywords keywords_in text="GM up"
    Step by step         infobus call
    """
    options = {"timeout_s": timeout_s, "policy": policy, "exactly_once": exactly_once}
    with join(bus, home, connect, listen) as node:
        if subject is None or operation is None:
            _walk_through(node, subject, options)
            return
        chosen = operation_of(node, subject, operation)
        if not as_json:
            typer.echo(chosen.signature, err=True)
        _learn_types(node, [chosen])
        values = arguments_of(chosen, arguments or [])
        try:
            show(node.service(subject, **options)[operation](**values), as_json)
        except infobus.BusError:
            raise
        except Exception as error:  # raised by the service, and known here
            raise infobus.RemoteError(type(error).__name__, str(error)) from error


def arguments_of(operation: ServiceOperation, items: Sequence[str]) -> dict[str, Any]:
    """The arguments that people have typed, each as its parameter's kind says."""
    kinds = {parameter.name: parameter.kind for parameter in operation.parameters}
    if len(items) == 1 and items[0].lstrip().startswith("{"):
        given = read_json(items[0], "the arguments")
        return {
            name: value_from_json(kinds[name], value) if name in kinds else value
            for name, value in given.items()
        }
    values: dict[str, Any] = {}
    for item in items:
        name, equals, text = item.partition("=")
        is_json, name = name.endswith(":"), name.removesuffix(":")
        if not equals or name not in kinds:
            close = difflib.get_close_matches(name, kinds, 1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise UsageError(
                f"{item!r} is not an argument of {operation.signature}: write name=text, "
                f"name:=json, or one JSON object{hint}"
            )
        if name in values:
            raise UsageError(f"{name!r} is given twice")
        if is_json:
            values[name] = value_from_json(kinds[name], read_json(text, f"the value of {name}"))
        else:
            values[name] = value_from_text(kinds[name], text)
    return values


def _learn_types(bus: Bus, operations: Iterable[ServiceOperation]) -> None:
    """Have the types at hand of objects that may be typed as JSON."""
    if any(p.kind.is_deep for one in operations for p in one.parameters):
        bus.types()


def show(result: Any, as_json: bool) -> None:
    """Print a result; of a stream, item after item, as they come."""
    from infobus.services import Answer, Stream

    if isinstance(result, Stream):
        for item in result:
            show(item, as_json)
            sys.stdout.flush()
    elif isinstance(result, list) and result and isinstance(result[0], Answer):
        for answer in result:
            said = answer.value if answer.error is None else f"raised {answer.error}"
            if as_json:
                error = None if answer.error is None else str(answer.error)
                record = {"node": answer.server.node, "value": answer.value, "error": error}
                print(to_json(record))
            else:
                typer.echo(f"{answer.server.node}:")
                show(said, as_json)
    elif as_json:
        print(to_json(result))
    elif isinstance(result, DataObject):
        infobus.describe(result)
    elif isinstance(result, str):
        print("\n".join(map(printable, result.split("\n"))))
    elif isinstance(result, list):
        for item in result:
            show(item, as_json)
    elif result is not None:
        print(printable(repr(result)) if not isinstance(result, dict) else to_json(result))


def _walk_through(bus: Bus, subject: str | None, options: dict[str, Any]) -> None:
    """Ask for a service, an operation and its arguments, call it, and ask again until the end."""
    console = Console(highlight=False)
    console.print(
        "Call services step by step. Tab completes, Enter takes the default, Ctrl-C gives up a "
        "call, Ctrl-D ends.",
        style="dim",
    )
    try:
        chosen = subject or _ask_subject(bus, console)
        service = bus.service(chosen, **options)
        operations = service.operations
        _learn_types(bus, operations)
        _list(console, operations)
        while True:
            operation = _ask_operation(console, operations)
            try:
                values = {p.name: ask_value(console, p) for p in operation.parameters}
                show(service[operation.name](**values), as_json=False)
            except KeyboardInterrupt:
                console.print("\ngiven up", style="dim")
            except EOFError:
                raise
            except Exception as error:  # whatever the service raises
                text = f"{type(error).__name__}: {printable(str(error))}"
                console.print(text, style="red", markup=False)
    except EOFError:
        console.print()


def _ask_subject(bus: Bus, console: Console) -> str:
    found = sorted({one.subject for one in bus.who_is_out_there(">", PATIENCE_S)})
    if not found:
        raise UsageError(f"nobody on the bus {bus.name!r} serves anything")
    console.print(f"services: {', '.join(map(printable, found))}", style="dim", markup=False)

    def read(text: str) -> str:
        if not text and len(found) == 1:
            return found[0]
        if text not in found:
            raise UsageError(f"{text!r} is not served; choose one of {', '.join(found)}")
        return text

    _complete(found)
    return ask(console, f"service [{found[0]}]" if len(found) == 1 else "service", read)


def _ask_operation(console: Console, operations: Catalog[ServiceOperation]) -> ServiceOperation:
    def read(text: str) -> ServiceOperation | None:
        if not text:
            return None
        if text not in operations.names:
            raise UsageError(f"there is no {text!r}; choose one of {', '.join(operations.names)}")
        return operations[text]

    _complete(operations.names)
    while (found := ask(console, "operation (Enter lists them)", read)) is None:
        _list(console, operations)
    _complete(())
    return found


def _list(console: Console, operations: Catalog[ServiceOperation]) -> None:
    for one in operations:
        doc = one.doc.partition("\n")[0]
        console.print(f"  {one.signature}", style="bold", markup=False)
        if doc:
            console.print(f"      {printable(doc)}", style="italic dim", markup=False)


def _complete(words: Sequence[str]) -> None:
    """Let Tab complete these words; importing readline also gives the prompt its history."""
    import readline

    found: list[str] = []

    def complete(begun: str, index: int) -> str | None:
        if index == 0:
            found[:] = [word for word in words if word.startswith(begun)]
        return found[index] if index < len(found) else None

    readline.set_completer(complete)
    readline.set_completer_delims(" \t\n")
    readline.parse_and_bind("tab: complete")
