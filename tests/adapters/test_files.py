"""The file monitor: it watches what somebody subscribed to, and tells every change of it once."""

import contextlib
import os
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

import infobus
from infobus import UsageError
from infobus.adapters import files
from infobus.adapters.file_targets import OPERATORS, Targets, Tree, look, targets
from infobus.adapters.files import FileChanged, FileMonitor
from infobus.filters import compile
from infobus.filters.algebra.wants import Wants
from tests.bus.helpers import wait_until as wait_so_long_until


@pytest.fixture
def buses():
    """A producer's node, and a subscriber's."""
    name = f"test-{uuid.uuid4().hex}"
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(infobus.connect(name, engine="memory")) for _ in range(2)]


@pytest.fixture
def subscriber(buses):
    return buses[1]


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "watched"
    folder.mkdir()
    return folder


@pytest.fixture
def put(tmp_path):
    """Make a file of that size appear at once; one that is written in place is seen half done."""

    def put(path, size):
        (tmp_path / "hidden").write_bytes(bytes(size))
        (tmp_path / "hidden").rename(path)

    return put


@pytest.fixture
def monitor(buses, folder):
    with FileMonitor(buses[0], folder) as monitor:
        yield monitor


def wait_until(is_so):
    wait_so_long_until(is_so, 60)


def wait_for(monitor, *paths):
    wait_until(lambda: monitor.watching == {str(path) for path in paths})


def told(subscription):
    data = subscription.receive(60).data
    assert isinstance(data, FileChanged)
    assert os.path.join(data.directory, data.filename) == data.path
    return data.change, data.filename, data.size


def where(**attributes):
    return " && ".join(f'{name} == "{value}"' for name, value in attributes.items())


class TestWhatIsWatched:
    def test_nothing_as_long_as_nobody_subscribes(self, monitor, subscriber, folder, put):
        elsewhere = subscriber.subscribe("news.>")
        put(folder / "a", 1)
        assert monitor.watching == frozenset()
        elsewhere.close()

    def test_one_file_of_ten_thousand(self, monitor, subscriber, folder, put):
        for number in range(10_000):
            os.close(os.open(folder / f"{number}.log", os.O_CREAT | os.O_WRONLY))
        subscription = subscriber.subscribe("files.*", where=where(path=folder / "17.log"))
        wait_for(monitor, folder / "17.log")
        put(folder / "18.log", 1)
        put(folder / "17.log", 2)
        assert told(subscription) == ("modified", "17.log", 2)

    def test_only_for_as_long_as_somebody_is_subscribed(self, monitor, subscriber, folder):
        for name in "ab":
            (folder / name).touch()
        one = subscriber.subscribe("files.changed", where=where(path=folder / "a"))
        wait_for(monitor, folder / "a")
        other = subscriber.subscribe("files.changed", where=where(path=folder / "b"))
        wait_for(monitor, folder / "a", folder / "b")
        one.close()
        wait_for(monitor, folder / "b")
        other.close()
        wait_for(monitor)

    def test_a_directory_without_those_below_it(self, monitor, subscriber, folder, put):
        (folder / "inner").mkdir()
        subscription = subscriber.subscribe("files.changed", where=where(directory=folder))
        wait_for(monitor, folder)
        put(folder / "inner" / "a", 1)
        put(folder / "b", 2)
        assert told(subscription) == ("created", "b", 2)

    def test_everything_below_if_no_file_is_named(self, monitor, subscriber, folder, put):
        (folder / "inner").mkdir()
        subscription = subscriber.subscribe("files.changed", where="size > 1")
        wait_for(monitor, folder, folder / "inner")
        put(folder / "inner" / "a", 1)
        put(folder / "inner" / "b", 2)
        assert told(subscription) == ("created", "b", 2)

    def test_below_a_prefix_only_what_can_begin_so(self, monitor, subscriber, folder, put):
        for name in ("log", "log/sys", "log/app", "other"):
            (folder / name).mkdir()
        prefix = f'begins-with(path, "{folder}/log/s")'
        subscription = subscriber.subscribe("files.changed", where=prefix)
        wait_for(monitor, folder / "log", folder / "log" / "sys")
        put(folder / "log" / "app" / "x", 1)
        put(folder / "log" / "sys" / "y", 2)
        assert told(subscription) == ("created", "y", 2)

    def test_directories_that_come_later(self, monitor, subscriber, folder, put):
        subscription = subscriber.subscribe("files.changed", where=where(filename="core"))
        wait_for(monitor, folder)
        inner = folder / "a" / "b"
        inner.mkdir(parents=True)
        put(inner / "core", 1)
        assert told(subscription) == ("created", "core", 1)
        wait_for(monitor, folder, folder / "a", inner)

    def test_a_file_in_a_directory_that_is_not_there_yet(self, monitor, subscriber, folder, put):
        path = folder / "a" / "b" / "late"
        subscription = subscriber.subscribe("files.changed", where=where(path=path))
        wait_for(monitor, folder)
        path.parent.mkdir(parents=True)
        wait_for(monitor, path.parent)
        put(path, 1)
        assert told(subscription) == ("created", "late", 1)
        wait_for(monitor, path)

    def test_nothing_outside_of_the_folder(self, monitor, subscriber, folder, tmp_path, put):
        (tmp_path / "outside").mkdir()
        (tmp_path / "outside" / "a").touch()
        (folder / "link").symlink_to(tmp_path / "outside")
        (folder / "alias").symlink_to(tmp_path / "outside" / "a")
        wheres = [
            where(path=tmp_path / "outside" / "a"),
            where(path=f"{folder}/../outside/a"),
            where(directory=tmp_path / "outside"),
            where(directory=tmp_path),
            f'begins-with(path, "{tmp_path}/outside")',
            where(path=folder / "b"),
        ]
        for each in wheres:
            subscriber.subscribe("files.changed", where=each)
        wait_for(monitor, folder)
        subscriber.subscribe("files.changed", where=where(path=folder / "link" / "a"))
        subscriber.subscribe("files.changed", where=where(path=folder / "alias"))
        (folder / "inner").mkdir()
        everything = subscriber.subscribe("files.changed")
        wait_for(monitor, folder, folder / "inner")
        put(tmp_path / "outside" / "a", 1)
        put(folder / "c", 2)
        assert told(everything) == ("created", "c", 2)

    def test_what_is_watched_is_told_to_who_asks(self, buses, folder):
        said = []
        with FileMonitor(buses[0], folder, subject="disk.news", on_watching=said.append):
            with buses[1].subscribe("disk.*"):
                wait_until(lambda: said == [{str(folder)}])
            wait_until(lambda: said[1:] == [frozenset()])


class TestWhatIsTold:
    def test_the_life_of_a_file(self, monitor, subscriber, folder, put):
        path = folder / "a"
        subscription = subscriber.subscribe("files.changed", where=where(path=path))
        wait_for(monitor, folder)
        put(path, 1)
        assert told(subscription) == ("created", "a", 1)
        wait_for(monitor, path)
        put(path, 2)
        assert told(subscription) == ("modified", "a", 2)
        with path.open("ab") as file:
            file.write(b"3")
        assert told(subscription) == ("modified", "a", 3)
        path.unlink()
        assert told(subscription) == ("deleted", "a", None)

    def test_what_a_subscription_does_not_want_is_not_sent(self, monitor, subscriber, folder, put):
        condition = f"{where(directory=folder)} && change == 'deleted'"
        subscription = subscriber.subscribe("files.changed", where=condition)
        wait_for(monitor, folder)
        put(folder / "a", 1)
        wait_until(lambda: str(folder / "a") in monitor._seen)
        (folder / "a").unlink()
        assert told(subscription) == ("deleted", "a", None)

    def test_nothing_is_missed_or_told_twice_while_others_come_and_go(
        self, monitor, subscriber, folder, put
    ):
        path = folder / "a"
        path.touch()
        subscription = subscriber.subscribe("files.changed", where=where(path=path))
        wait_for(monitor, path)
        for size in range(1, 20):
            with subscriber.subscribe("files.changed", where=where(path=folder / f"other{size}")):
                put(path, size)
                assert told(subscription) == ("modified", "a", size)

    def test_what_was_there_before_somebody_asked_is_not_news(
        self, monitor, subscriber, folder, put
    ):
        put(folder / "old", 1)
        subscription = subscriber.subscribe("files.changed")
        wait_for(monitor, folder)
        put(folder / "new", 1)
        assert told(subscription) == ("created", "new", 1)

    def test_a_file_that_goes_with_its_renamed_directory(self, buses, subscriber, folder):
        path = folder / "inner" / "a"
        path.parent.mkdir()
        path.touch()
        with FileMonitor(buses[0], folder, look_again_s=0.05) as monitor:
            subscription = subscriber.subscribe("files.changed", where=where(path=path))
            wait_for(monitor, path)
            path.parent.rename(folder / "moved")
            assert told(subscription) == ("deleted", "a", None)
            wait_for(monitor, folder)

    def test_where_watching_is_impossible_it_looks_now_and_then(
        self, monkeypatch, buses, subscriber, folder, caplog, put
    ):
        def refuse(*_):
            raise OSError("OS file watch limit reached")

        monkeypatch.setattr(files, "RustNotify", refuse)
        (folder / "a").touch()
        with FileMonitor(buses[0], folder, look_again_s=0.05) as monitor:
            subscription = subscriber.subscribe("files.changed", where=where(path=folder / "a"))
            wait_until(lambda: "watch limit" in caplog.text)
            assert monitor.watching == frozenset()
            wait_until(lambda: str(folder / "a") in monitor._seen)
            put(folder / "a", 1)
            assert told(subscription) == ("modified", "a", 1)

    def test_the_time_is_that_of_the_file(self, monitor, subscriber, folder):
        subscription = subscriber.subscribe("files.changed")
        wait_for(monitor, folder)
        (folder / "a").touch()
        data = subscription.receive(60).data
        assert abs(data.mtime.timestamp() - (folder / "a").stat().st_mtime) < 1e-3


class TestItsEnd:
    def test_a_folder_that_is_not_there_is_refused(self, buses, folder):
        with pytest.raises(UsageError, match="there is no directory"):
            FileMonitor(buses[0], folder / "nowhere")

    def test_it_ends_with_the_bus(self, buses, subscriber, monitor, folder):
        subscriber.subscribe("files.changed")
        wait_for(monitor, folder)
        buses[0].close()
        wait_for(monitor)
        monitor.close()
        monitor.close()

    def test_closing_ends_the_watching(self, buses, subscriber, folder):
        subscriber.subscribe("files.changed")
        with FileMonitor(buses[0], folder) as monitor:
            wait_for(monitor, folder)
        assert monitor.watching == frozenset()


PATHS = ["/r/a", "/r/ab", "/r/d/a", "/r/d/e/ab", "/r/de/x", "/q/a", "/a"]
DIRECTORIES = ["/", "/r", "/r/d", "/r/d/e", "/r/de", "/q"]
ATOMS = (
    [f'path == "{path}"' for path in PATHS]
    + [f'directory == "{directory}"' for directory in DIRECTORIES]
    + [f'filename == "{name}"' for name in ("a", "ab", "x", "", "d/a")]
    + [f'begins-with(path, "{text}")' for text in ("", "/", "/r/d", "/r/d/", "/r/a", "/q")]
    + [f'begins-with(directory, "{text}", "/r/de")' for text in ("/r/d", "/r/", "/q")]
    + ['path in ["/r/a", "/r/d/a"]', 'regex(path, "a$")', "size > 1", "exists(path)", "path == 5"]
)


def conditions():
    return st.recursive(
        st.sampled_from(ATOMS),
        lambda inner: st.one_of(
            st.tuples(inner, st.sampled_from(["&&", "||"]), inner).map(
                lambda t: f"({' '.join(t)})"
            ),
            inner.map("!({})".format),
        ),
        max_leaves=5,
    )


class TestTargets:
    @given(st.lists(conditions(), max_size=3), st.sampled_from(PATHS), st.integers(0, 2))
    def test_whatever_a_subscription_wants_below_the_root_is_a_target(self, texts, path, size):
        wants = Wants()
        for number, text in enumerate(texts):
            wants.add(number, compile(text))
        found = targets(wants.values("directory", "filename", "path", operators=OPERATORS), "/r")
        directory, filename = os.path.split(path)
        event = {"path": path, "directory": directory, "filename": filename, "size": size}
        is_wanted = any(compile(text).matches(event) for text in texts)
        if path.startswith("/r/"):
            assert found.have(path) or not is_wanted
        else:
            assert not found.have(path)

    def test_very_many_files_are_watched_by_their_directories(self):
        names = tuple(f"f{n}" for n in range(101))
        places = tuple(f"/r/{n}" for n in range(100))
        found = targets([[("directory", "in", places), ("filename", "in", names)]], "/r")
        assert found == Targets(directories=frozenset(places))

    def test_names_that_no_file_can_have_are_left_out(self):
        asked = [("path", "in", ("/r/a\0b", "/r/\ud800", "/r/../q", "/r/a/", "/r", "r/a"))]
        assert targets([asked], "/r") == Targets()

    def test_files_whose_names_are_not_text_are_left_out(self, folder):
        with contextlib.suppress(OSError):  # some file systems refuse such names
            os.close(os.open(os.fsencode(folder) + b"/\xff", os.O_CREAT))
        assert look(Targets(trees=frozenset([Tree(str(folder))])), str(folder)).files == {}
