"""`infobus ledger`: what a home keeps, whether it is whole, and forgetting a consumer."""

import io
import json
import sys

import pytest

from infobus.bus.settings import consumers_folder, ledgers_folder
from infobus.cli.main import main
from infobus.errors import StoreError
from infobus.stores.ledger.consumer_store import ConsumerStore, consumer_names, consumer_path
from infobus.stores.ledger.folder import glance, ledger_ids
from infobus.stores.ledger.ledger import Ledger
from infobus.stores.ledger.record import Record


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run `infobus ...` in this process; returns exit code, standard output and error."""
    monkeypatch.setenv("INFOBUS_HOME", str(tmp_path))
    monkeypatch.setenv("INFOBUS_BUS", "trial")
    monkeypatch.setenv("COLUMNS", "100")

    def run(*arguments, stdin=""):
        monkeypatch.setattr(sys, "argv", ["infobus", *arguments])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, *capsys.readouterr()

    return run


@pytest.fixture
def ledgers(tmp_path):
    return ledgers_folder(tmp_path, "trial")


@pytest.fixture
def consumers(tmp_path):
    return consumers_folder(tmp_path, "trial")


@pytest.fixture
def kept(ledgers):
    """The id of a ledger with 40 events, of which `billing` has settled 30."""
    with Ledger.open(ledgers) as ledger:
        ledger.append([Record("orders.new", 1.0 + n, 7, bytes(400)) for n in range(40)])
        ledger.settle("billing", 30, 100.0)
        return ledger.id


def register(consumers, name="billing"):
    return ConsumerStore.open(consumers, name, ["orders.>"], "count > 1", now_s=5.0)


def damage(path):
    content = bytearray(path.read_bytes())
    place = content.rindex(b"orders.new")
    content[place] ^= 1
    path.write_bytes(content)


class TestList:
    def test_an_empty_home(self, run):
        assert run("ledger") == (0, "nothing is kept here\n", "")

    def test_ledgers_their_consumers_and_those_of_this_home(self, run, kept, consumers):
        with register(consumers) as store:
            store.note(kept, 30)
        code, out, err = run("ledger", "--json")
        assert (code, err) == (0, "")
        found = json.loads(out)
        (ledger,) = found["ledgers"]
        known = {name: ledger[name] for name in ("id", "owned", "first", "last", "count")}
        assert known == {"id": kept, "owned": False, "first": 1, "last": 40, "count": 40}
        assert ledger["consumers"] == [
            {"name": "billing", "position": 30, "behind": 10, "seen_at": 100.0}
        ]
        assert found["consumers"] == [
            {
                "name": "billing",
                "problem": "",
                "in_use": False,
                "patterns": ["orders.>"],
                "where": "count > 1",
                "registered_at": 5.0,
                "positions": {kept: 30},
            }
        ]

    def test_tables_for_people(self, run, kept, consumers):
        register(consumers).close()
        code, out, _ = run("ledger")
        assert code == 0
        rows = [line.split() for line in out.splitlines()]
        assert [kept, "none", "1", "to", "40"] in [row[:5] for row in rows]
        assert [kept, "billing", "30", "10"] in [row[:4] for row in rows]
        assert ["billing", "no", "orders.>"] in [row[:3] for row in rows]

    def test_who_is_alive(self, run, kept, ledgers, consumers):
        with Ledger.open(ledgers, kept), register(consumers):
            found = json.loads(run("ledger", "--json")[1])
        assert found["ledgers"][0]["owned"]
        assert found["consumers"][0]["in_use"]

    def test_a_file_that_cannot_be_read_hides_no_other(self, run, kept, ledgers):
        (ledgers / "torn.db").write_bytes(b"no ledger")
        code, out, _ = run("ledger")
        assert code == 0
        assert "infobus ledger repair torn" in out
        assert kept in out


class TestVerifyAndRepair:
    def test_all_is_whole(self, run, kept, consumers):
        register(consumers).close()
        said = f"ledger {kept} is whole\ndurable consumer billing is whole\n"
        assert run("ledger", "verify") == (0, said, "")

    def test_a_ledger_is_verified_while_it_is_in_use(self, run, kept, ledgers):
        with Ledger.open(ledgers, kept):
            assert run("ledger", "verify", kept) == (0, f"ledger {kept} is whole\n", "")

    def test_damage_is_told_and_salvaged_by_the_command_that_is_named(self, run, kept, ledgers):
        damage(ledgers / f"{kept}.db")
        code, out, _ = run("ledger", "verify")
        assert code == 1
        assert "checksum" in out
        command = out.rstrip().partition("with: infobus ")[2]
        assert command == f"ledger repair {kept}"
        problems = json.loads(run("ledger", "verify", "--json")[1])["ledgers"][kept]
        assert len(problems) == 1
        code, out, _ = run(*command.split())
        assert code == 0
        assert "39 events saved" in out
        assert run("ledger", "verify", kept)[0] == 0
        assert "takes no more" in run("ledger")[1]

    def test_a_sound_ledger_stays_as_it_is(self, run, kept):
        code, out, _ = run("ledger", "repair", kept, "--json")
        assert code == 0
        assert json.loads(out) == {"id": kept, "count": 40, "lost": [], "aside": None}

    def test_a_durable_consumer_is_repaired_by_name(self, run, consumers):
        with register(consumers) as store:
            store.note("somewhere", 7)
        path = consumer_path(consumers, "billing")
        content = bytearray(path.read_bytes())
        content[content.index(b"progress/somewhere")] ^= 1
        path.write_bytes(content)
        code, out, _ = run("ledger", "verify")
        command = out.rstrip().partition("with: infobus ")[2]
        assert (code, command) == (1, "ledger repair --consumer billing")
        code, out, _ = run(*command.split())
        assert code == 0
        assert "billing.damaged-1" in out
        assert run("ledger", "verify")[0] == 0

    @pytest.mark.parametrize(
        ("arguments", "code", "said"),
        [
            (["repair"], 2, "say what to repair"),
            (["repair", "x", "--consumer", "y"], 2, "say what to repair"),
            (["repair", "x"], 1, "there is no ledger x"),
            (["repair", "../x"], 2, "is not the id of a ledger"),
            (["repair", "--consumer", "x"], 1, "there is no durable consumer"),
            (["drop", "x"], 2, "no ledger and no file of this home knows"),
            (["--json", "verify"], 2, "--json belongs after the command"),
        ],
    )
    def test_a_wrong_call_is_told_in_one_line(self, run, arguments, code, said):
        found, out, err = run("ledger", *arguments)
        assert (found, out) == (code, "")
        assert said in err
        assert err.count("\n") == 1

    def test_a_ledger_in_use_is_not_repaired(self, run, kept, ledgers):
        with Ledger.open(ledgers, kept):
            code, _, err = run("ledger", "repair", kept)
        assert code == 1
        assert "stop the programs that use this home first" in err


class TestDrop:
    def test_it_goes_from_all_ledgers_and_from_the_home(self, run, kept, ledgers, consumers):
        register(consumers).close()
        with Ledger.open(ledgers) as other:
            other.append([Record("orders.new", 1.0, 7, b"")])
            other.settle("billing", 0, 1.0)
            other.settle("stock", 1, 1.0)
        assert run("ledger", "drop", "billing", "--yes")[0] == 0
        left = [set(glance(ledgers, id).positions) for id in ledger_ids(ledgers)]
        assert sorted(left, key=len) == [set(), {"stock"}]
        assert consumer_names(consumers) == []

    @pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1), ("", 1)])
    def test_it_asks_first(self, run, kept, ledgers, answer, code):
        found, _, err = run("ledger", "drop", "billing", stdin=answer)
        assert found == code
        assert "up to 10 events wait for it" in err
        assert bool(glance(ledgers, kept).positions) == bool(code)

    def test_not_while_a_ledger_is_owned(self, run, kept, ledgers, consumers):
        register(consumers).close()
        with Ledger.open(ledgers, kept):
            code, _, err = run("ledger", "drop", "billing", "--yes")
        assert code == 1
        assert "stop the programs that use this home first" in err
        assert consumer_names(consumers) == ["billing"]

    def test_not_while_it_is_in_use(self, run, kept, ledgers, consumers):
        with register(consumers):
            code, _, err = run("ledger", "drop", "billing", "--yes")
        assert code == 2
        assert "in use" in err
        assert "billing" in glance(ledgers, kept).positions


def test_a_sealed_ledger_serves_what_it_has_and_takes_no_more(run, ledgers, kept):
    code, out, _ = run("ledger", "seal", kept)
    assert (code, out) == (0, f"ledger {kept}: sealed, with 40 events\n")
    with Ledger.open(ledgers, kept) as ledger:
        assert len(ledger.read(0, 100, 10**6)) == 40
        with pytest.raises(StoreError, match="takes no more records: it was sealed"):
            ledger.append([Record("orders.new", 1.0, 7, b"")])
