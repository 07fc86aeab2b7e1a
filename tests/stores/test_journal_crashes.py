"""A writer that dies at any step, by itself or by kill -9, leaves a whole journal behind."""

import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from infobus.errors import StoreFull
from infobus.stores.journal.journal import Journal, JournalWriter
from infobus.stores.journal.upkeep import Upkeep, compact, retain, sweep, verify
from tests.stores.journals import NOW_S, event, offsets, stories, write

ROUNDS = int(os.environ.get("INFOBUS_KILL_ROUNDS", "20"))


class Crash(BaseException):
    """The process is gone."""


STEPS = {
    "append": lambda writer: writer.append(
        [*stories(range(18, 20)), event(20, {})], now_s=NOW_S, positions={"c": {"l": [(1, 21)]}}
    ),
    "compact": lambda writer: compact(writer, NOW_S),
    "retain": lambda writer: retain(writer, NOW_S + 1, Upkeep(keep_bytes=0)),
    "sweep": lambda writer: (compact(writer, NOW_S), sweep(writer, NOW_S + 9, 1)),
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("call", ["fsync", "replace", "unlink"])
def test_dying_at_any_step_leaves_the_state_before_or_after_it(tmp_path, monkeypatch, step, call):
    original = {"fsync": os.fsync, "replace": Path.replace, "unlink": Path.unlink}[call]
    owner = os if call == "fsync" else Path
    reached = 0
    template = tmp_path / "template"
    write(
        template, *(stories(range(n, n + 1)) for n in range(18)), positions={"c": {"l": [(1, 18)]}}
    )
    for deadly in range(1, 30):
        folder = tmp_path / f"{deadly}"
        shutil.copytree(template, folder)
        before = offsets(Journal.open(folder).select())
        calls = 0

        def die(*arguments, deadly=deadly, **options):
            nonlocal calls
            calls += 1
            if calls == deadly:
                raise Crash
            return original(*arguments, **options)

        writer = JournalWriter.open(folder)
        with monkeypatch.context() as patch:
            patch.setattr(owner, call, die)
            try:
                STEPS[step](writer)
            except Crash:
                reached += 1
        writer.close()
        journal = write(folder)  # the next writer clears up
        assert verify(folder) == {}
        found = offsets(journal.select())
        after = {"append": [*before, 18, 19, 20], "retain": []}.get(step, before)
        assert found in (before, after)
        # The position moves with the events, or neither does.
        assert journal.manifest.positions["c"]["l"] == [(1, 21 if 20 in found else 18)]
        listed = {one.path for one in journal.manifest.segments}
        retired = {one.path for one in journal.manifest.retired}
        on_disk = {str(path.relative_to(folder)) for path in folder.rglob("*.parquet")}
        assert listed <= on_disk <= listed | retired
        if calls < deadly:
            break
    else:
        raise AssertionError("the step never came to its end")
    assert reached or call == "unlink"


def test_without_room_nothing_is_added_and_later_everything_goes_on(tmp_path, monkeypatch):
    before = write(tmp_path, stories(range(3)))
    writer = JournalWriter.open(tmp_path)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StoreFull, match="No space left on device"):
            writer.append([*stories(range(3, 5)), event(5, {})], now_s=NOW_S)
    assert sorted(tmp_path.rglob("*.parquet")) == sorted(before.files())
    assert writer.append(stories(range(3, 5)), now_s=NOW_S) == range(3, 5)
    writer.close()
    assert offsets(Journal.open(tmp_path).select()) == [0, 1, 2, 3, 4]


WRITER = """
import sys
from infobus import Event
from infobus.stores.journal.journal import JournalWriter
from infobus.stores.journal.upkeep import Upkeep, tend
with JournalWriter.open(sys.argv[1]) as writer:
    number = writer.manifest.next_offset
    while True:
        events = [Event("a.b", {"n": number + i}, "s", 1, 1.0, number + i) for i in range(7)]
        number += 7
        writer.append(events, now_s=1.0, positions={"c": {"l": [(1, number)]}})
        tend(writer, float(number), Upkeep(grace_s=50.0))
        print(number, flush=True)
"""


@pytest.mark.slow
@pytest.mark.timeout(60 + 10 * ROUNDS)
def test_killed_at_any_moment_it_holds_what_was_accepted_once_and_whole(tmp_path):
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    accepted = 0
    for _ in range(max(ROUNDS // 4, 3)):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        accepted = int(process.stdout.readline())
        time.sleep(draw.uniform(0.0, 0.4))
        process.send_signal(signal.SIGKILL)
        accepted = int(([str(accepted), *process.stdout.read().split("\n")[:-1]])[-1])
        process.stdout.close()
        process.wait()
        journal = Journal.open(tmp_path)
        assert journal.next_offset >= accepted
        assert journal.manifest.positions == {"c": {"l": [(1, journal.next_offset)]}}
        assert [one.data["n"] for one in journal.select().events()] == list(
            range(journal.next_offset)
        )
        assert verify(tmp_path) == {}
