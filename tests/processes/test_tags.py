"""Tags in real processes: creators that race while the leader of the daemons is killed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tests.bus.helpers import wait_until
from tests.processes.conftest import Start
from tests.processes.programs.node import Node

NAMES = ["ash", "elm", "oak"]
COUNT = 60

DAEMON = """
import pathlib
infobus.tags_role = bus.tags.hold()
infobus.member = infobus.MembershipRole(
    bus, heartbeat_s=0.3, state=pathlib.Path(STATE), name=NAME, founders=FOUNDERS,
    table=infobus.tags_role.table,
)
infobus.tags_role.begin(lambda: infobus.member.id, infobus.member.propose)
"""
MEMBERS = "answer = [m.partition('#')[0] for m in infobus.member.members]"
TABLE = "answer = sorted([row.name, row.creator] for row in infobus.tags_role.table.table)"
SNAPSHOT = "answer = infobus.tags_role.table.snapshot().hex()"
CREATE = """
import random, time
created, refused, waited = [], {}, []
numbers = list(range(COUNT))
random.shuffle(numbers)
for number in numbers:
    begun = time.perf_counter()
    try:
        bus.tags.create(f"race.t{number}", timeout_s=60)
        created.append(f"race.t{number}")
    except infobus.TagExists as error:
        refused[f"race.t{number}"] = error.creator
    waited.append(time.perf_counter() - begun)
answer = [created, refused, sorted(waited)[len(waited) // 2]]
"""


def site(start: Start, folder: Path) -> dict[str, Node]:
    """Daemons that have found each other."""
    daemons = {}
    for name in NAMES:
        daemons[name] = start()
        code = DAEMON.replace("STATE", repr(str(folder / name)))
        daemons[name]("exec", code.replace("NAME", repr(name)).replace("FOUNDERS", repr(NAMES)))
    wait_until(lambda: all(one("exec", MEMBERS) == NAMES for one in daemons.values()))
    return daemons


def race(creators: dict[str, Node]) -> None:
    for node in creators.values():
        node.begin("exec", CREATE.replace("COUNT", str(COUNT)))


def check(daemons: dict[str, Node], told: dict[str, Any]) -> None:
    """Each name was created once; all tables are equal, and are what the creators were told."""
    owners = {name: who for who, (created, _, _) in told.items() for name in created}
    assert len(owners) == COUNT
    assert sum(len(created) for created, _, _ in told.values()) == COUNT, "one was created twice"
    for _, refused, _ in told.values():
        assert all(owners[name] == creator for name, creator in refused.items())
    wait_until(lambda: len({one("exec", SNAPSHOT) for one in daemons.values()}) == 1)
    for one in daemons.values():
        assert one("exec", TABLE) == sorted(map(list, owners.items()))


def test_each_name_is_created_once_although_the_leader_is_killed(start, tmp_path):
    daemons = site(start, tmp_path)
    creators = {name: start(name=name) for name in ("oven", "press")}
    race(creators)
    time.sleep(0.3)  # a moment in the middle; the test holds at any other
    daemons.pop(NAMES[0]).kill()
    told = {name: node.answer() for name, node in creators.items()}
    check(daemons, told)
    # A joiner has the table of its slot, and programs hold what there is.
    again = start()
    code = DAEMON.replace("STATE", repr(str(tmp_path / NAMES[0])))
    again("exec", code.replace("NAME", repr(NAMES[0])).replace("FOUNDERS", repr(NAMES)))
    wait_until(lambda: sorted(again("exec", MEMBERS)) == NAMES)
    check(daemons | {NAMES[0]: again}, told)
    creators["oven"]("exec", "bus.publish('race.t1', {})")
    late = start(name="late")
    assert late("exec", "answer = len(list(bus.tags))") == COUNT


def test_creating_waits_for_a_majority_and_publishing_does_not(start, tmp_path):
    daemons = site(start, tmp_path)
    oven = start(name="oven")
    oven("exec", "bus.tags.create('plant.oven', publish=['oven'])")
    # Two of three have decided it. The third can tell of it once it has heard.
    wait_until(lambda: daemons[NAMES[2]]("exec", TABLE) == [["plant.oven", "oven"]])
    for name in NAMES[:2]:
        daemons.pop(name).kill()
    create = """
try:
    bus.tags.create('plant.door', timeout_s=0.5)
    answer = "created"
except infobus.NoTags as error:
    answer = str(error)
"""
    assert "may still come" in oven("exec", create)
    assert oven("exec", "bus.publish('plant.oven', {}); answer = 'published'") == "published"
    refused = """
try:
    bus.publish('plant.oven', {})
    answer = "published"
except infobus.NoRight as error:
    answer = str(error)
"""
    press = start(name="press")
    # Joining waits for the tags, but for a second only; on a busy machine they come later.
    names = "answer = [tag.name for tag in bus.tags]"
    wait_until(lambda: press("exec", names) == ["plant.oven"])
    assert "press may not publish" in press("exec", refused)


def test_a_daemon_has_the_table_again_when_it_is_started_again(start, tmp_path):
    begin = f"""
from infobus.daemon.host import HostDaemon
infobus.daemon_here = HostDaemon(bus.name, homes=[{str(tmp_path)!r}], heartbeat_s=0.3)
infobus.daemon_here.open()
"""
    first = start()
    first("exec", begin)
    oven = start(name="oven")
    oven("exec", "bus.tags.create('plant.oven', publish=['oven'])")
    first.kill()
    start()("exec", begin)
    names = "answer = [tag.name for tag in bus.tags]"
    assert start(name="press")("exec", names) == ["plant.oven"]
    assert oven("exec", "answer = bus.tags.create('plant.door').creator") == "oven"
