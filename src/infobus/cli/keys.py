"""`infobus keys`: who belongs to a bus, and what they may do."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from infobus import UsageError
from infobus.bus.settings import check_bus_name, keys_folder, load_settings
from infobus.cli import event_keys, policies
from infobus.cli.key_home import KeyHome, spread
from infobus.cli.options import AsJson, WhichHome, grouped
from infobus.cli.terminal import console, note, table, warn, write_json
from infobus.printable import printable

if TYPE_CHECKING:
    from infobus.security.authority_record import AuthorityRecord
    from infobus.security.certificates import Certificate
    from infobus.security.credential import Credential

# `cryptography` is an extra, and loading it takes longer than many a command: all of `security` is
# imported where it is used.

app = typer.Typer(rich_markup_mode="rich", no_args_is_help=True)
app.add_typer(policies.app, name="policy")
app.command("can")(policies.can)
app.command("event")(event_keys.command)

_DAY_S = 86_400.0
_SOON_S = 30 * _DAY_S

Principal = Annotated[
    str, typer.Argument(metavar="NAME", help="A person or program, such as alice or billing.")
]
Roles = Annotated[
    list[str] | None,
    typer.Option("--role", metavar="ROLE", help="May be repeated; by default: member."),
]
Days = Annotated[
    int, typer.Option("--days", min=1, max=3650, help="How long the certificate is good for.")
]
Out = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Where to write it.")]


@app.callback()
def group() -> None:
    """Make a bus a secured one: its members have keys, and its policy says what they may do.

    \b
    On one host, once            infobus keys init plant
    For each member              infobus keys issue alice --role operator
    Where alice works            infobus keys install alice.infobus
    What may she do?             infobus keys can alice publish orders.new
    She has left                 infobus keys revoke alice --why "left"
    """


@app.command()
def init(
    bus: Annotated[str, typer.Argument(metavar="BUS", help="The name of the bus.")],
    home: Annotated[
        str | None, typer.Option("--home", envvar="INFOBUS_HOME", metavar="FOLDER")
    ] = None,
) -> None:
    """Make the authority of a bus, and a first policy with the roles member and admin."""
    from infobus.security.authority import Authority
    from infobus.security.authority_record import AuthorityRecord
    from infobus.stores.key_folder import KeyFolder

    check_bus_name(bus)
    folder = KeyFolder(keys_folder(load_settings(home=home).home, bus))
    made = Authority.made(bus, os.urandom(32), os.urandom(32), time.time())
    folder.make_authority(AuthorityRecord.first(made))
    print(f"the bus {bus} has an authority, in {folder.folder / 'authority'}")
    print("Whoever has this folder decides who is a member: keep a copy where nobody else comes.")
    print("Next, for each member:  infobus keys issue NAME --role member|admin")


@app.command()
@grouped
def issue(
    which: WhichHome,
    principal: Principal,
    role: Roles = None,
    days: Days = 365,
    out: Out = None,
) -> None:
    """Write the credential of a new member: one file, with its key. Give it to nobody else."""
    from infobus.security.signatures import public_key_of

    at, key = KeyHome.of(which), os.urandom(32)
    record = at.folder.authority()
    for known in at.folder.issued():
        if known.principal == principal and not record.is_revoked(known):
            raise UsageError(
                f"{principal} has a certificate until {_day(known.not_after_s)} already; for a new "
                f"one: infobus keys renew {principal}"
            )
    _grant(at, record, principal, public_key_of(key), role or ["member"], days, key, out)


@app.command()
@grouped
def request(which: WhichHome, principal: Principal, out: Out = None) -> None:
    """Ask for a certificate for a key that never leaves this host."""
    from infobus.security.certificates import check_principal
    from infobus.security.certificates import request as asked
    from infobus.stores.key_folder import KeyFolder

    check_principal(principal)
    settings, key, path = which.settings(), os.urandom(32), out or Path(f"{principal}.request")
    KeyFolder(keys_folder(settings.home, settings.bus)).keep_pending(principal, key)
    path.write_text(asked(key, principal))
    print(f"{path} asks for a certificate for {principal} on the bus {settings.bus}")
    print(f"Where the authority is:  infobus keys sign {path} --role member")


@app.command()
@grouped
def sign(
    which: WhichHome,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `request` has written.")],
    role: Roles = None,
    days: Days = 365,
    out: Out = None,
) -> None:
    """Answer a request: write a credential without a key."""
    from infobus.security.certificates import read_request

    at = KeyHome.of(which)
    asked = read_request(file.read_text(errors="replace"))
    record = at.folder.authority()
    _grant(at, record, asked.principal, asked.public_key, role or ["member"], days, b"", out)


@app.command()
@grouped
def install(
    which: WhichHome,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A credential: NAME.infobus.")],
    force: Annotated[
        bool, typer.Option("--force", help="Also if this home is somebody else on that bus.")
    ] = False,
) -> None:
    """Make a credential the identity of this home on its bus."""
    from infobus.stores.key_folder import KeyFolder, read_credential

    given = read_credential(file)
    folder = KeyFolder(keys_folder(which.settings().home, given.bus))
    folder.check(given, time.time())
    present = folder.identity() if not force else None
    if present is not None and present.principal != given.principal:
        raise UsageError(
            f"this home is {present.principal} on the bus {given.bus}; --force replaces that"
        )
    installed = folder.install(given)
    print(f"this home is {_whole(installed)} on the bus {installed.bus}")
    note(f"{file} is a copy of it now: remove it")


@app.command("list")
@grouped
def list_(which: WhichHome, as_json: AsJson = False) -> None:
    """List the members of the bus, where its authority is."""
    at = KeyHome.of(which)
    record = at.folder.authority()
    members = [_record(one, record) for one in at.folder.issued()]
    if as_json:
        write_json(*members)
        return
    drawn = table("principal", "roles", "issued", "until", "")
    drawn.columns[0].style = "bold cyan"
    for one in members:
        drawn.add_row(
            one["principal"],
            ", ".join(one["roles"]),
            _day(one["issued"]),
            _day(one["until"]),
            one["state"],
        )
    console().print(drawn)


@app.command()
@grouped
def show(which: WhichHome, principal: Principal, as_json: AsJson = False) -> None:
    """Show a member, and all that it may do, where the authority is."""
    at = KeyHome.of(which)
    record = at.folder.authority()
    known = _issued_to(at, principal)
    _present(_record(known, record), record.policy, as_json)


@app.command()
@grouped
def whoami(which: WhichHome, as_json: AsJson = False) -> None:
    """Show who this home is on the bus, and all that it may do."""
    at = KeyHome.of(which)
    own = at.folder.identity()
    if own is None:
        raise UsageError(
            f"this home is nobody on the bus {at.bus}: infobus keys install NAME.infobus"
        )
    _present(_record(own.certificate, None), at.policy(), as_json)
    if own.certificate.not_after_s - time.time() < _SOON_S:
        warn(f"the certificate ends on {_day(own.certificate.not_after_s)}: have it renewed")


@app.command()
@grouped
def renew(
    which: WhichHome,
    principal: Principal,
    new_key: Annotated[
        bool, typer.Option("--new-key", help="With another key; the file holds it, then.")
    ] = False,
    role: Annotated[
        list[str] | None,
        typer.Option("--role", metavar="ROLE", help="Other roles. May be repeated."),
    ] = None,
    days: Days = 365,
    out: Out = None,
) -> None:
    """Write a new certificate for a member; install it there, and running programs take it up."""
    from infobus.security.signatures import public_key_of

    at = KeyHome.of(which)
    record, known = at.folder.authority(), _issued_to(at, principal)
    if record.is_revoked(known) and not new_key:
        raise UsageError(f"{principal} was revoked: give --new-key if it is to come back")
    key = os.urandom(32) if new_key else b""
    public_key = public_key_of(key) if new_key else known.public_key
    _grant(at, record, principal, public_key, role or list(known.roles), days, key, out)


@app.command()
@grouped
def revoke(
    which: WhichHome,
    principal: Principal,
    why: Annotated[str, typer.Option("--why", help="Is told to everyone.")] = "",
) -> None:
    """Shut a member out, everywhere and at once: all that was issued to it counts no more."""
    from infobus.security.certificates import check_principal

    at = KeyHome.of(which)
    check_principal(principal)
    if all(one.principal != principal for one in at.folder.issued()):
        warn(f"{principal} is no member that is known here; it is revoked all the same")
    with at.folder.changing_authority() as held:
        held[0] = held[0].revoked(principal, why, time.time())
    spread(at, held[0].signed, f"{principal} is revoked")


@app.command()
@grouped
def rotate_authority(
    which: WhichHome,
    finish: Annotated[
        bool, typer.Option("--finish", help="End it: the old authority counts no more.")
    ] = False,
) -> None:
    """Replace the keys of the authority. Old and new count side by side until --finish."""
    from infobus.security.authority import Authority

    at = KeyHome.of(which)
    with at.folder.changing_authority() as held:
        if finish:
            held[0] = held[0].alone()
        else:
            made = Authority.made(at.bus, os.urandom(32), os.urandom(32), time.time())
            held[0] = held[0].followed_by(made)
    if finish:
        spread(at, held[0].signed, "the old authority counts no more")
    else:
        spread(at, held[0].signed, "the bus has a new authority, and the old one still counts")
        note(
            "renew and install every member (infobus keys renew NAME), then run this with --finish"
        )


@app.command()
@grouped
def password(which: WhichHome, principal: Principal) -> None:
    """Set a member's password for the console."""
    from infobus.security.passwords import PASSWORD_BYTES_MIN, SALT_BYTES, hashed

    at = KeyHome.of(which)
    _issued_to(at, principal)
    given = typer.prompt("password", hide_input=True, confirmation_prompt=True, err=True)
    if len(given.encode()) < PASSWORD_BYTES_MIN:
        raise UsageError(f"a password has at least {PASSWORD_BYTES_MIN} bytes")
    at.folder.keep_password(principal, hashed(given, os.urandom(SALT_BYTES)))
    print(f"{principal} has a new password")


def _grant(
    at: KeyHome,
    record: AuthorityRecord,
    principal: str,
    public_key: bytes,
    roles: Iterable[str],
    days: int,
    key: bytes,
    out: Path | None,
) -> None:
    from infobus.stores.key_folder import write_secret

    path = out or Path(f"{principal}.infobus")
    if path.exists():
        raise UsageError(f"{path} exists already; name another file with --out, or remove it")
    roles, known = list(roles), record.policy.roles
    for role in roles:
        if role not in known:
            warn(f"the policy knows no role {role}, so it gives nothing; known: {', '.join(known)}")
    made = record.authority.issue(principal, public_key, roles, time.time(), days * _DAY_S)
    credential = record.credential(made, key)
    write_secret(path, credential.to_text())
    at.folder.note_issued(made)
    print(f"{path} makes its owner {_whole(credential)} on the bus {at.bus}")
    print(f"Where {principal} works:  infobus keys install {path.name}")


def _issued_to(at: KeyHome, principal: str) -> Certificate:
    at.folder.authority()  # otherwise nothing can be known here
    for known in at.folder.issued():
        if known.principal == principal:
            return known
    names = ", ".join(one.principal for one in at.folder.issued()) or "nobody yet"
    raise UsageError(f"{printable(principal)!r} is no member of the bus {at.bus}; known: {names}")


def _present(record: dict[str, Any], policy: Any, as_json: bool) -> None:
    from infobus.security.policy import ACTIONS
    from infobus.security.rights import Rights

    rights = Rights(policy, record["principal"], record["roles"])
    may = {action: [str(one) for one in rights.given(action)] for action in ACTIONS}
    if as_json:
        write_json({**record, "policy": policy.version, "may": may})
        return
    print(f"{record['principal']} (roles: {', '.join(record['roles']) or 'none'})")
    print(f"  bus        {record['bus']}, policy {policy.version}")
    print(f"  until      {_day(record['until'])}  {record['state']}".rstrip())
    print(f"  key        {record['key']}")
    for action, rules in may.items():
        print(f"  {action:<10} {', '.join(rules) or '-'}")


def _record(certificate: Certificate, record: AuthorityRecord | None) -> dict[str, Any]:
    now_s = time.time()
    state = ""
    if record is not None and record.is_revoked(certificate):
        state = "revoked"
    elif now_s >= certificate.not_after_s:
        state = "expired"
    elif certificate.not_after_s - now_s < _SOON_S:
        state = "ends soon"
    return {
        "principal": certificate.principal,
        "roles": list(certificate.roles),
        "bus": certificate.bus,
        "key": certificate.public_key.hex(),
        "issued": certificate.issued_ms / 1000,
        "until": certificate.not_after_s,
        "state": state,
    }


def _whole(credential: Credential) -> str:
    roles = ", ".join(credential.roles) or "none"
    return (
        f"{credential.principal} (roles: {roles}) until {_day(credential.certificate.not_after_s)}"
    )


def _day(at_s: float) -> str:
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d}"
