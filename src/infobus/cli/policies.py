"""`infobus keys policy` and `infobus keys can`: what the members of a bus may do."""

from __future__ import annotations

import difflib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from infobus import BadPolicy, UsageError
from infobus.cli.key_home import KeyHome, spread
from infobus.cli.options import AsJson, WhichHome, grouped
from infobus.cli.terminal import write, write_json
from infobus.printable import printable, printable_lines

if TYPE_CHECKING:
    from infobus.security.certificates import Certificate

app = typer.Typer(rich_markup_mode="rich", no_args_is_help=True)

PolicyFile = Annotated[Path, typer.Argument(metavar="FILE", help="A policy in TOML.")]


@app.callback()
def group() -> None:
    """Show, check and publish the policy of a bus.

    \b
    Begin with the one that counts   infobus keys policy show > plant.toml
    See what you have changed        infobus keys policy diff plant.toml
    Let it count everywhere          infobus keys policy publish plant.toml
    """


@app.command()
@grouped
def show(which: WhichHome) -> None:
    """Print the newest policy that this home knows."""
    write(printable_lines(KeyHome.of(which).policy().text.rstrip("\n")))


@app.command()
def check(file: PolicyFile) -> None:
    """Say whether a file is a policy, or what is wrong with it and where."""
    from infobus.security.policy import read_policy

    read = read_policy(_text(file))
    print(
        f"{file} is a policy of the bus {printable(read.bus)}: {', '.join(read.roles) or 'no role'}"
    )


@app.command()
@grouped
def diff(which: WhichHome, file: PolicyFile) -> None:
    """Show how a file differs from the newest policy that this home knows. Exit code: 1 if so."""
    at = KeyHome.of(which)
    before, after = at.policy().text.splitlines(), _text(file).splitlines()
    lines = list(
        difflib.unified_diff(
            before, after, f"policy {at.policy().version}", str(file), lineterm="", n=2
        )
    )
    for line in lines:
        write(printable(line))
    if lines:
        raise typer.Exit(1)


@app.command()
@grouped
def publish(
    which: WhichHome,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A policy in TOML, or one signed already.")
    ],
) -> None:
    """Sign a policy as the next version, and let it count on the whole bus, at once.

    The version in the file does not matter. A file that another host has signed can be published
    by any member.
    """
    from infobus.security.signed_policy import read_signed_policy, verified

    at = KeyHome.of(which)
    try:
        signed = read_signed_policy(file.read_bytes())
    except BadPolicy:
        with at.folder.changing_authority() as held:
            held[0] = held[0].published(_text(file))
        spread(at, held[0].signed, "published")
        return
    own = at.folder.identity()
    if own is None:
        raise UsageError(f"this home is no member of the bus {at.bus}")
    verified(signed, own.authorities, bus=at.bus, now_s=time.time())
    at.folder.keep_policy(signed)
    spread(at, signed, "handed on")


@grouped
def can(
    which: WhichHome,
    principal: Annotated[str, typer.Argument(metavar="NAME", help="A member, such as alice.")],
    action: Annotated[
        str, typer.Argument(metavar="ACTION", help="Such as publish, subscribe, serve or call.")
    ],
    subject: Annotated[
        str, typer.Argument(metavar="SUBJECT", help="Or a pattern; svc.pay/transfer for a call.")
    ],
    role: Annotated[
        list[str] | None,
        typer.Option("--role", metavar="ROLE", help="As if it had this role. May be repeated."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say whether somebody may do something, and by which rule. Exit code: 0 for yes, 1 for no."""
    from infobus.security.policy import ACTIONS, split_operation
    from infobus.security.rights import Rights, Verdict
    from infobus.subjects import check_pattern

    at = KeyHome.of(which)
    if action not in ACTIONS:
        raise UsageError(f"action {printable(action)!r}: expected one of {', '.join(ACTIONS)}")
    check_pattern(split_operation(subject)[0] if action == "call" else subject)
    certificate = None if role else _certificate(at, principal)
    rights = Rights(at.policy(), principal, role or (certificate.roles if certificate else ()))
    verdict = rights.may(action, subject)
    refusal = "" if verdict.is_allowed else str(rights.refusal(action, subject))
    if certificate is not None and at.is_revoked(certificate):
        verdict, refusal = Verdict(False, "", verdict.policy), f"{principal} is revoked"
    if as_json:
        answer = {"allowed": verdict.is_allowed, "rule": verdict.rule, "policy": verdict.policy}
        write_json(answer)
    else:
        reason = f"yes, by {verdict.rule} (policy {verdict.policy})"
        print(reason if verdict.is_allowed else f"no: {refusal}")
    if not verdict.is_allowed:
        raise typer.Exit(1)


def _certificate(at: KeyHome, principal: str) -> Certificate:
    known = list(at.folder.issued()) if at.folder.has_authority() else []
    own = at.folder.identity()
    if own is not None:
        known.append(own.certificate)
    for certificate in known:
        if certificate.principal == principal:
            return certificate
    raise UsageError(
        f"which roles has {printable(principal)!r}? It is not known here: run this where the "
        "authority is, or give --role"
    )


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise BadPolicy(f"{file} is not text: {error}") from None
