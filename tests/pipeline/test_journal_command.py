"""`infobus journal`: as a user runs it."""

import json

import pytest

from tests.cli.running import Shell
from tests.stores.journals import event, stories, write


@pytest.fixture
def shell(tmp_path):
    shell = Shell(tmp_path)
    yield shell
    shell.close()


def test_what_is_published_is_kept_until_ctrl_c(shell, tmp_path):
    recorder = shell.start("journal", "news.>", "raw.*", "--to", "j", "--count", "2")
    assert recorder.stderr.readline() == f"keeping news.>, raw.* in j (bus {shell.bus})\n"
    assert shell.run("pub", "news.a", "headline=GM up", "price:=41.5", "--wait", "40")[0] == 0
    assert shell.run("pub", "raw.b", "n:=1", "--wait", "40")[0] == 0
    _, err = recorder.communicate(timeout=60)
    assert "2 events kept, 0 of them guaranteed" in err
    code, out, _ = shell.run("journal", "show", "j", "--json")
    shown = json.loads(out)
    assert (code, shown["next_offset"], shown["types"][""]["events"]) == (0, 2, 2)


def test_showing_checking_mending_and_merging(shell, tmp_path):
    journal = write(tmp_path / "j", *([*stories(range(n, n + 1)), event(n, {})] for n in range(3)))
    code, out, _ = shell.run("journal", "show", "j")
    assert code == 0 and "journals.Story       3      3" in out and "offsets 0 to 6" in out
    assert shell.run("journal", "verify", "j")[:2] == (0, "the journal in j is whole\n")
    bad = tmp_path / "j" / journal.manifest.segments[0].path
    bad.write_bytes(b"PAR1")
    code, out, _ = shell.run("journal", "verify", "j")
    assert code == 1 and "it has 4 of" in out
    code, out, _ = shell.run("journal", "repair", "j")
    assert code == 0 and out.startswith("1 events of journals.Story lost; kept: types/")
    _, out, _ = shell.run("journal", "compact", "j")
    assert out.startswith("3 files fewer, 2 left\n5 replaced files stay for their readers")
    assert shell.run("journal", "compact", "j", "--grace-s", "0")[1] == (
        "0 files fewer, 2 left\n5 replaced files removed\n"
    )
    assert len([*(tmp_path / "j").rglob("*.parquet")]) == 2
    assert shell.run("journal", "verify", "j")[0] == 0


def test_mistakes_are_told_in_a_line(shell, tmp_path):
    for command in ("show", "repair", "compact"):
        code, _, err = shell.run("journal", command, "nowhere")
        assert code == 1 and "a journal is a folder with a manifest.json" in err
    assert not (tmp_path / "nowhere").exists()
    code, _, err = shell.run("journal", "news.a", "--to", "j", "--keep-mb", "1")
    assert code == 2 and "the least that makes sense is 135" in err
    code, _, err = shell.run("journal", "news..a", "--to", "j")
    assert code == 2 and "empty" in err
