"""`infobus members`, against members in this process."""

import json
import time

import infobus
from infobus import MembershipRole


def test_without_a_daemon_it_says_so(run):
    code, out, err = run("members")
    assert (code, out) == (1, "")
    assert "no daemon" in err and "infobus daemon run" in err


def test_members_and_programs_are_shown(run, bus, tmp_path):
    with MembershipRole(bus, heartbeat_s=0.3, state=tmp_path / "state", name="oak") as role:
        bus.members.stable(30)
        with bus.primary("svc.ledger") as primary:
            while not primary.is_primary:
                time.sleep(0.01)
            code, out, err = run("members")
            assert (code, err) == (0, "")
            assert role.id in out and "stable" in out and "leads" in out and "svc.ledger" in out
        code, out, _ = run("members", "--json")
        shown = json.loads(out)
        assert (code, shown["members"], shown["stable"]) == (0, [role.id], True)


def test_a_view_is_forced_where_most_members_are_gone(run, bus, tmp_path):
    with infobus.connect(bus.name, home=tmp_path / "b") as second:
        senior = MembershipRole(second, heartbeat_s=0.3, state=tmp_path / "elm", name="elm")
        second.members.stable(30)
        with MembershipRole(bus, heartbeat_s=0.3, state=tmp_path / "oak", name="oak") as role:
            deadline_s = time.monotonic() + 60
            while len(role.members) < 2:
                assert time.monotonic() < deadline_s
                time.sleep(0.05)
            senior.abandon()  # as if it were killed
            while role.is_stable or "no quorum" not in role.why_unstable:
                assert time.monotonic() < deadline_s, role.why_unstable
                time.sleep(0.05)
            code, _, err = run("members", "--force", "nobody")
            assert code == 2 and "oak#" in err
            assert run("members", "--force", "oak")[0] == 0
            while not role.is_stable:
                assert time.monotonic() < deadline_s, role.why_unstable
                time.sleep(0.05)
            assert role.members == (role.id,)
