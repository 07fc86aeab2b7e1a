"""`infobus keys`: from nothing to members, and what they may do."""

import io
import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from infobus.cli.main import main


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run `infobus keys ...` in this process, in a home; returns exit code, output and errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("INFOBUS_BUS", raising=False)

    def run(*arguments, home="home", stdin=""):
        monkeypatch.setenv("INFOBUS_HOME", str(tmp_path / home))
        monkeypatch.setattr(sys, "argv", ["infobus", "keys", *arguments])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, *capsys.readouterr()

    return run


@pytest.fixture
def plant(run):
    """A bus with a member alice, who is an admin, in the home of the authority."""
    assert run("init", "plant")[0] == 0
    assert run("issue", "alice", "--role", "admin")[0] == 0
    assert run("install", "alice.infobus")[0] == 0
    return run


def test_from_nothing_to_a_member_in_three_commands(plant):
    code, out, _ = plant("whoami", "--json")
    told = json.loads(out)
    assert (code, told["principal"], told["roles"], told["policy"]) == (0, "alice", ["admin"], 1)
    assert told["may"]["publish"] == [">"]


def test_nobody_else_can_read_what_is_written(plant, tmp_path):
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 4
    assert not [path for path in files if path.stat().st_mode & 0o077]
    assert not [path for path in (tmp_path / "home").rglob("*/") if path.stat().st_mode & 0o077]


def test_a_credential_that_others_can_read_is_refused(plant, tmp_path):
    Path("alice.infobus").chmod(0o640)
    code, _, err = plant("install", "alice.infobus")
    assert code == 2
    assert "alice.infobus holds a secret that other users can reach (mode 640)" in err


def test_a_key_may_stay_where_it_is_used(plant):
    assert plant("request", "bob", "--bus", "plant", home="bobs")[0] == 0
    assert plant("sign", "bob.request", "--role", "member")[0] == 0
    assert "PRIVATE" not in Path("bob.infobus").read_text()
    code, _, err = plant("install", "bob.infobus", home="carols")
    assert code == 2
    assert "comes without its key" in err
    assert plant("install", "bob.infobus", home="bobs")[0] == 0
    assert "bob (roles: member)" in plant("whoami", "--bus", "plant", home="bobs")[1]


def test_can_says_yes_or_no_and_by_which_rule(plant):
    assert plant("can", "alice", "publish", "orders.new") == (
        0,
        "yes, by admin: publish > (policy 1)\n",
        "",
    )
    code, out, _ = plant("can", "bob", "manage", "orders.new", "--role", "member")
    assert (code, out) == (
        1,
        "no: bob (roles: member) may not manage orders.new: no rule of policy 1 allows it; "
        "bob may manage: nothing\n",
    )
    assert plant("can", "alice", "publish", "a..b")[0] == 2
    assert plant("can", "alice", "fly", "a.b")[0] == 2
    assert plant("can", "zoe", "publish", "a.b")[0] == 2


def test_a_policy_is_shown_changed_compared_and_published(plant):
    text = plant("policy", "show")[1]
    changed = text.replace('[roles.admin]\npublish   = [">"]', '[roles.admin]\npublish = ["b.>"]')
    Path("plant.toml").write_text(changed)
    code, out, _ = plant("policy", "diff", "plant.toml")
    assert (code, '+publish = ["b.>"]' in out) == (1, True)
    assert plant("policy", "publish", "plant.toml")[0] == 0
    assert plant("can", "alice", "publish", "b.x", "--json")[1] == (
        '{"allowed":true,"rule":"admin: publish b.>","policy":2}\n'
    )
    assert plant("can", "alice", "publish", "orders.new")[0] == 1


def test_what_is_wrong_with_a_policy_is_said(plant):
    Path("bad.toml").write_text('bus = "plant"\nversion = 1\n[roles.a]\npublsh = []\n')
    for command in ("check", "publish"):
        code, _, err = plant("policy", command, "bad.toml")
        assert code == 2
        assert "roles.a.publsh is not known; known are publish" in err
    assert plant("can", "alice", "publish", "x")[1].endswith("(policy 1)\n")


def test_a_policy_that_was_signed_elsewhere_is_handed_on_by_any_member(plant, tmp_path):
    plant("issue", "bob")
    shutil.copytree(tmp_path / "home", tmp_path / "copy")  # of the authority, and of no member
    (tmp_path / "copy/keys/plant/identity.infobus").unlink()
    plant("install", "bob.infobus", home="bobs")
    plant("revoke", "bob", "--why", "left", home="copy")
    signed = str(next(Path().glob("*.signed")))
    code, _, err = plant("policy", "publish", signed, home="bobs")
    assert (code, "bob was revoked: left" in err) == (0, True)  # so it can tell nobody itself
    assert plant("can", "bob", "publish", "x", home="bobs")[1] == "no: bob is revoked\n"


def test_who_was_revoked_comes_back_only_with_a_new_key(plant):
    plant("issue", "bob")
    plant("revoke", "bob", "--why", "left")
    states = {one["principal"]: one["state"] for one in map(json.loads, listed(plant))}
    assert states == {"alice": "", "bob": "revoked"}
    assert plant("install", "bob.infobus")[0] == 2
    assert plant("renew", "bob", "--out", "2.infobus")[0] == 2
    assert plant("renew", "bob", "--new-key", "--out", "2.infobus")[0] == 0
    assert plant("install", "2.infobus", home="bobs")[0] == 0


def listed(run):
    return run("list", "--json")[1].splitlines()


def test_an_authority_is_replaced_while_both_count(plant):
    plant("issue", "bob")
    assert plant("rotate-authority")[0] == 0
    assert plant("rotate-authority")[0] == 2
    assert plant("install", "bob.infobus", home="bobs")[0] == 0  # the old one still counts
    assert plant("renew", "alice", "--out", "new.infobus")[0] == 0
    assert plant("install", "new.infobus")[0] == 0
    assert plant("rotate-authority", "--finish")[0] == 0
    assert plant("rotate-authority", "--finish")[0] == 2
    code, _, err = plant("install", "bob.infobus")
    assert code == 2
    assert "of no authority" in err or "bob" in err
    assert plant("renew", "alice", "--out", "newer.infobus")[0] == 0
    assert plant("install", "newer.infobus")[0] == 0


def test_nothing_that_is_there_is_overwritten(plant):
    assert plant("init", "plant")[0] == 2
    assert plant("issue", "alice")[0] == 2
    Path("bob.infobus").write_text("precious")
    assert plant("issue", "bob")[0] == 2
    assert Path("bob.infobus").read_text() == "precious"
    os.remove("bob.infobus")
    plant("issue", "bob")
    assert plant("install", "bob.infobus")[0] == 2  # this home is alice
    assert plant("install", "bob.infobus", "--force")[0] == 0


def test_where_there_are_no_keys_the_error_says_how_to_begin(run):
    for command in (["issue", "alice"], ["whoami"], ["list"], ["can", "a", "publish", "x"]):
        code, _, err = run(*command)
        assert (code, "infobus keys init BUS" in err) == (2, True)
