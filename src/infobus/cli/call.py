"""`infobus call`: call an operation of a service; without arguments, ask for everything."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

import infobus
from infobus import Bus, DataObject, UsageError
from infobus.cli.lines import to_json
from infobus.cli.options import AsJson, HeaderItems, WhichBus, grouped
from infobus.cli.prompt import ask, ask_value
from infobus.cli.services import PATIENCE_S, operation_of, operations_of
from infobus.cli.terminal import complete_words, console, suggestion, warn, write, write_json
from infobus.cli.values import headers_from_items, values_from_items
from infobus.objects.kinds import BYTES, Maybe
from infobus.printable import printable, printable_lines

if TYPE_CHECKING:
    from infobus.objects.members import Members
    from infobus.services import ServiceOperation
    from infobus.services.client import RemoteOperation

DELIMITERS = " \t\n"  # of the words that Tab completes


@grouped
def command(
    which: WhichBus,
    subject: Annotated[
        str | None, typer.Argument(metavar="SUBJECT", help="The service's subject.")
    ] = None,
    operation: Annotated[
        str | None, typer.Argument(metavar="OPERATION", help="The operation to call.")
    ] = None,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ARGUMENT",
            help="name=text, name:=json, or all of them as one JSON object; bytes as base64.",
        ),
    ] = None,
    timeout_s: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            metavar="SECONDS",
            help="How long to wait, first for a server and then for the result. Default: 1 and 10.",
        ),
    ] = None,
    policy: Annotated[
        str, typer.Option("--policy", help="Which servers to ask: first, least_loaded, or all.")
    ] = "first",
    exactly_once: Annotated[
        bool,
        typer.Option(
            "--exactly-once",
            help="Run the operation once, even if the call is repeated after a crash.",
        ),
    ] = False,
    headers: HeaderItems = None,
    as_json: AsJson = False,
) -> None:
    """Show the signature of an operation of a service, and call it.

    \b
    With all arguments   infobus call svc.keywords keywords_in '{"text": "GM up"}'
    or one by one        infobus call svc.keywords keywords_in text="GM up"
    Step by step         infobus call
    """
    options = {
        "timeout_s": timeout_s,
        "policy": policy,
        "exactly_once": exactly_once,
        "headers": headers_from_items(headers or []),
    }
    find_s = PATIENCE_S if timeout_s is None else timeout_s
    with which.join() as node:
        if subject is None or operation is None:
            operations = None if subject is None else operations_of(node, subject, find_s)
            _walk_through(node, subject, operations, options)
            return
        chosen = operation_of(node, subject, operation, find_s)
        if not as_json:
            warn(chosen.signature)
        _call(node, node.service(subject, **options)[operation], chosen, arguments or [], as_json)


def _call(
    node: Bus,
    operation: RemoteOperation,
    described: ServiceOperation,
    arguments: Sequence[str],
    as_json: bool,
) -> None:
    _learn_types(node, [described])
    values = arguments_of(described, arguments)
    try:
        show(operation(**values), as_json)
    except infobus.BusError:
        raise
    except Exception as error:  # the service raised a type that is known here
        raise infobus.RemoteError(type(error).__name__, str(error)) from error


def arguments_of(operation: ServiceOperation, items: Sequence[str]) -> dict[str, Any]:
    """The arguments that were typed, each converted to its parameter's kind."""
    kinds = {parameter.name: parameter.kind for parameter in operation.parameters}
    is_json = len(items) == 1 and items[0].lstrip().startswith("{")
    for item in () if is_json else items:
        name, equals, _ = item.partition("=")
        name = name.removesuffix(":")
        if not equals or name not in kinds:
            raise UsageError(
                f"{item!r} is not an argument of {operation.signature}: write name=text, "
                f"name:=json, or one JSON object{suggestion(name, kinds)}"
            )
    values = values_from_items(items, kinds)
    for name, value in values.items():
        if isinstance(value, str) and kinds.get(name) in (BYTES, Maybe(BYTES)):
            raise UsageError(f"{name}: bytes are given as base64, and {value!r} is not")
    return values


def _learn_types(bus: Bus, operations: Iterable[ServiceOperation]) -> None:
    """Fetch the types of objects that may be given as JSON."""
    if any(p.kind.is_deep for one in operations for p in one.parameters):
        bus.types()


def show(result: Any, as_json: bool) -> None:
    """Print a result; the items of a stream are printed as they arrive."""
    from infobus.services import Answer, Stream

    if isinstance(result, Stream):
        for item in result:
            show(item, as_json)
    elif isinstance(result, list) and result and isinstance(result[0], Answer):
        for answer in result:
            said = answer.value if answer.error is None else f"raised {answer.error}"
            if as_json:
                error = None if answer.error is None else str(answer.error)
                write_json({"node": answer.server.node, "value": answer.value, "error": error})
            else:
                write(f"{answer.server.node}:")
                show(said, as_json)
    elif as_json:
        write_json(result)
    elif isinstance(result, DataObject):
        infobus.describe(result)
    elif isinstance(result, str):
        write(printable_lines(result))
    elif isinstance(result, list):
        for item in result:
            show(item, as_json)
    elif result is not None:
        write(to_json(result) if isinstance(result, dict) else printable(repr(result)))


def _walk_through(
    bus: Bus,
    subject: str | None,
    operations: Members[ServiceOperation] | None,
    options: dict[str, Any],
) -> None:
    """Ask for a service, then for operations and their arguments, and call them until Ctrl-D."""
    out = console()
    if sys.stdin.isatty():
        out.print(
            "Call services step by step. Tab completes, Enter takes the default, Ctrl-C gives up a "
            "call, Ctrl-D ends.",
            style="dim",
        )
    try:
        chosen = subject or _ask_subject(bus, out)
        service = bus.service(chosen, **options)
        operations = operations or service.operations
        _learn_types(bus, operations)
        _list(out, operations)
        while True:
            operation = _ask_operation(out, operations)
            try:
                values = {p.name: ask_value(out, p) for p in operation.parameters}
                show(service[operation.name](**values), as_json=False)
            except KeyboardInterrupt:
                out.print("\ngiven up", style="dim")
            except EOFError:
                raise
            except Exception as error:  # the service may raise anything
                text = f"{type(error).__name__}: {printable(str(error))}"
                out.print(text, style="red")
    except EOFError:
        out.print()


def _ask_subject(bus: Bus, out: Console) -> str:
    found = sorted({one.subject for one in bus.who_is_out_there(">", PATIENCE_S)})
    if not found:
        raise UsageError(f"nobody on the bus {bus.name!r} serves anything")
    out.print(f"services: {', '.join(map(printable, found))}", style="dim")

    def read(text: str) -> str:
        if not text and len(found) == 1:
            return found[0]
        if text not in found:
            raise UsageError(f"{text!r} is not served; choose one of {', '.join(found)}")
        return text

    complete_words(lambda: found, DELIMITERS)
    return ask(out, f"service [{found[0]}]" if len(found) == 1 else "service", read)


def _ask_operation(out: Console, operations: Members[ServiceOperation]) -> ServiceOperation:
    def read(text: str) -> ServiceOperation | None:
        if not text:
            return None
        if text not in operations.names:
            raise UsageError(f"there is no {text!r}; choose one of {', '.join(operations.names)}")
        return operations[text]

    complete_words(lambda: operations.names, DELIMITERS)
    while (found := ask(out, "operation (Enter lists them)", read)) is None:
        _list(out, operations)
    complete_words(tuple, DELIMITERS)
    return found


def _list(out: Console, operations: Members[ServiceOperation]) -> None:
    for one in operations:
        doc = one.doc.partition("\n")[0]
        out.print(f"  {one.signature}", style="bold")
        if doc:
            out.print(f"      {printable(doc)}", style="italic dim")
