"""What goes into a journal comes out again: typed, in order, as columns and as objects."""

import itertools
import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from infobus import DataObject, UsageError, define_type, id_of
from infobus.errors import BadFilter, StoreCorrupt, StoreError
from infobus.objects import codec
from infobus.stores.journal.journal import Journal, JournalWriter
from infobus.stores.journal.ranges import Numbers
from infobus.stores.journal.typed_maps import attributes_in, entries_of, read_entries
from tests.stores.journals import DAY, NOW_S, Agency, Source, Story, Wire, event, offsets, write


class Tree(DataObject, name="journals.Tree"):
    name: str
    below: list["Tree"] = []  # noqa: RUF012


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.datetimes(timezones=st.just(UTC)),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)
UNTYPED = st.dictionaries(st.text(max_size=4), VALUES, max_size=4)


class TestObjects:
    @given(UNTYPED)
    def test_typed_maps_hold_any_value_whole(self, attributes):
        assert attributes_in(read_entries(entries_of(attributes))) == attributes

    @settings(
        max_examples=25,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )
    @given(st.lists(UNTYPED, min_size=1, max_size=5))
    def test_untyped_events_come_back_as_they_were(self, new_folder, many):
        journal = write(new_folder(), [event(n, data) for n, data in enumerate(many)])
        assert [one.data for one in journal.select().events()] == many

    def test_objects_come_back_with_everything_inside(self, tmp_path):
        made = [
            Story(headline="plain"),
            Wire(
                headline="full",
                n=-(2**63),
                price=float("inf"),
                topics=["oil", ""],
                prices={"GMC": 41.5},
                source=Agency(name="Reuters", staff=3),
                value={"a": [1, Source(name="inner"), b"x"], "": None},
                when=datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=-5))),
                places=["usa"],
            ),
            {"raw": True},
            Tree(name="root", below=[Tree(name="leaf", below=[Tree(name="deeper")])]),
        ]
        journal = write(tmp_path, [event(n, data) for n, data in enumerate(made)])
        back = list(journal.select().events())
        assert [one.data for one in back] == made
        assert [type(one.data) for one in back] == [Story, Wire, dict, Tree]
        assert isinstance(back[1].data.source, Agency)

    def test_an_event_keeps_its_envelope(self, tmp_path):
        story = Story(headline="x")
        codec.encode_event(story, "first", 5)
        written = event(7, story, "news.a", priority="emergency", test=True)
        (back,) = write(tmp_path, [written]).select().events()
        assert (back.offset, back.subject, back.id, back.sender) == (
            0,
            "news.a",
            "sender:7",
            "sender",
        )
        assert (back.number, back.priority, back.test) == (7, "emergency", True)
        assert back.time == pytest.approx(NOW_S + 7)
        assert (back.object_id, id_of(back.data)) == ("first:5", "first:5")

    def test_a_process_that_never_heard_of_the_types_reads_them_all_the_same(self, tmp_path):
        write(tmp_path, [event(1, Wire(headline="h", source=Agency(name="R", staff=3)))])
        code = (
            "import sys; from infobus import type_of\n"
            "from infobus.stores.journal.journal import Journal\n"
            "(one,) = Journal.open(sys.argv[1]).select('journals.Story').events()\n"
            "print(type_of(one.data).name, one.data.source.staff, one.data.places)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=60
        )
        assert done.stdout.split() == ["journals.Wire", "3", "[]"], done.stderr

    def test_attributes_beyond_the_type_are_kept(self, tmp_path):
        one = codec.decode(
            Source.__bus_type__.fingerprint, codec.encode({"name": 5, "city": "x", "more": [1]})[1]
        )
        journal = write(tmp_path, [event(1, one), event(2, Source(name="n"))])
        table = journal.select("journals.Source").table()
        assert table["name"].to_pylist() == [None, "n"]
        assert {key for key, _ in table["_attributes"][0].as_py()} == {"name", "more", "more[0]"}
        assert next(journal.select().events()).data.more == [1]
        assert offsets(journal.select("journals.Source", where="name == 5")) == [0]

    def test_what_does_not_fit_its_column_after_all_is_kept_beside_the_columns(self, tmp_path):
        flat = define_type("journals.Flat", [], {"topics": "list[str]", "n": int})
        one = flat(topics=["a"], n=3)
        one.topics.append(5)  # behind the back of the type
        journal = write(tmp_path, [event(1, one)])
        assert journal.select("journals.Flat").table()["topics"].to_pylist() == [None]
        assert offsets(journal.select("journals.Flat", where="5 in topics && n == 3")) == [0]
        assert next(journal.select().events()).data.n == 3

    def test_an_object_of_a_type_that_nobody_described_is_kept(self, tmp_path):
        unknown = codec.decode(0x1234, codec.encode({"a": 1})[1])
        journal = write(tmp_path, [event(1, unknown)])
        (row,) = journal.select().table().to_pylist()
        assert row["_type"] == "unknown_0000000000001234"
        assert dict(row["_attributes"])["a"]["int"] == 1

    def test_a_clock_that_says_anything_does_no_harm(self, tmp_path):
        times = [float("nan"), float("inf"), -1e300, 0.0]
        events = [structs.replace(event(n, {}), time=time) for n, time in enumerate(times)]
        assert [one.time for one in write(tmp_path, events).select().events()] == [None] * 3 + [0.0]


class TestColumns:
    def test_each_attribute_has_a_column_of_its_type(self, tmp_path):
        schema = write(tmp_path, [event(1, Story(headline="x"))]).select("journals.Story").schema
        types = {field.name: str(field.type) for field in schema if field.name[0] != "_"}
        assert types["headline"] == "string"
        assert types["n"] == "int64"
        assert types["price"] == "double"
        assert types["topics"] == "list<item: string>"
        assert types["prices"] == "map<string, double>"
        assert types["when"] == "timestamp[us, tz=UTC]"
        assert schema.field("source").type.field("city").type == pa.string()

    def test_a_supertype_is_read_with_its_subtypes_also_those_that_come_later(self, tmp_path):
        write(tmp_path, [event(1, Story(headline="a")), event(2, Wire(headline="b"))])
        later = define_type("journals.Later", [Wire], {"extra": (int, 7)})
        journal = write(tmp_path, [event(3, later(headline="c", places=["x"])), event(4, {})])
        table = journal.select("journals.Story").table()
        assert table["headline"].to_pylist() == ["a", "b", "c"]
        assert "places" not in table.column_names
        wide = journal.select("journals.Story", subtypes=True).table()
        assert wide["places"].to_pylist() == [None, [], ["x"]]
        assert wide["extra"].to_pylist() == [None, None, 7]
        assert offsets(journal.select("journals.Wire")) == [1, 2]

    def test_an_attribute_that_changed_its_type_loses_nothing(self, tmp_path):
        versions = [
            define_type("journals.Moody", [], {"x": int, "gone": (str, "g")}),
            define_type("journals.Moody", [], {"x": str}),
            define_type("journals.Moody", [], {"x": int}),
            define_type("journals.Moody", [], {"x": float, "new": ("list[int]", [])}),
        ]
        values = [2, "two", 4, 4.5]
        made = [version(x=value) for version, value in zip(versions, values, strict=True)]
        journal = write(tmp_path, *([event(n, one)] for n, one in enumerate(made)))
        table = journal.select("journals.Moody").table()
        assert table["x"].to_pylist() == [2.0, None, 4.0, 4.5]
        assert table["x__str"].to_pylist() == [None, "two", None, None]
        assert table["gone"].to_pylist() == ["g", None, None, None]
        assert table["new"].to_pylist() == [None, None, None, []]
        assert offsets(journal.select("journals.Moody", where='x == "two" || x == 2')) == [0, 1]
        assert [one.data.x for one in journal.select().events()] == values

    def test_names_that_differ_in_capitals_alone_have_columns_of_their_own(self, tmp_path):
        shouting = define_type("journals.Case", [], {"price": int, "Price": str, "PRICE": float})
        journal = write(tmp_path, [event(1, shouting(price=1, Price="b", PRICE=2.5))])
        table = journal.select("journals.Case").table()
        assert (
            table.to_pylist()[0] | {"price": 1, "Price__2": "b", "PRICE__3": 2.5}
            == (table.to_pylist()[0])
        )
        assert offsets(journal.select("journals.Case", where='Price == "b" && PRICE > 2')) == [0]
        assert next(journal.select().events()).data.Price == "b"

    def test_only_the_columns_that_were_asked_for_are_there(self, tmp_path):
        journal = write(tmp_path, [event(1, Story(headline="x", n=3))])
        assert journal.select(
            "journals.Story", where="n == 3", columns=["headline", "_subject"]
        ).table().to_pylist() == [{"headline": "x", "_subject": "news.a"}]
        with pytest.raises(UsageError, match="no column 'headlin'; did you mean headline"):
            journal.select("journals.Story", columns=["headlin"])

    @pytest.mark.parametrize("columns", [["headline"], ["headline", "n"], ["n", "headline"]])
    def test_a_text_that_is_the_same_in_all_rows_is_read_as_it_was_written(self, tmp_path, columns):
        journal = write(tmp_path, [event(n, Story(headline="x", n=n)) for n in range(3)])
        rows = [{"headline": "x", "n": n} for n in range(3)]
        table = journal.select("journals.Story", columns=columns).table()
        assert table.to_pylist() == [{name: row[name] for name in columns} for row in rows]
        some = journal.select("journals.Story", where='headline == "x" && n > 1', columns=columns)
        assert some.table().to_pylist() == [{name: rows[2][name] for name in columns}]

    def test_what_nobody_knows_is_refused_by_name(self, tmp_path):
        journal = write(tmp_path, [event(1, Story(headline="x"))])
        with pytest.raises(UsageError, match=r"no type 'journals.Stori'; did you mean"):
            journal.select("journals.Stori")
        with pytest.raises(BadFilter):
            journal.select(where="n >")
        with pytest.raises(UsageError, match="no time zone"):
            journal.select(since=datetime(2026, 1, 1))


class TestOffsets:
    def test_they_grow_over_all_types_and_commits(self, tmp_path):
        mixed = [event(1, {"n": 1}), event(2, Story(headline="a")), event(3, {"n": 2})]
        with JournalWriter.open(tmp_path) as writer:
            assert writer.append(mixed, now_s=NOW_S) == range(3)
            assert writer.append([], now_s=NOW_S) == range(3, 3)
        with JournalWriter.open(tmp_path) as writer:
            assert writer.append(mixed, now_s=NOW_S) == range(3, 6)
        journal = Journal.open(tmp_path)
        assert [(one.offset, one.id) for one in journal.select().events()] == [
            (n, f"sender:{n % 3 + 1}") for n in range(6)
        ]
        assert offsets(journal.select(start=1, stop=5)) == [1, 2, 3, 4]

    def test_positions_are_kept_with_the_events(self, tmp_path):
        write(tmp_path, [event(1, {})], positions={"c": {"ledger": [(1, 5)], "other": [(1, 1)]}})
        journal = write(tmp_path, [event(2, {})], positions={"c": {"ledger": [(1, 6)]}})
        assert journal.manifest.positions == {"c": {"ledger": [(1, 6)], "other": [(1, 1)]}}


class TestFolder:
    def test_plain_pyarrow_reads_what_the_manifest_lists(self, tmp_path):
        write(tmp_path, [event(n, Story(headline=f"h{n}")) for n in range(3)], [event(3, {})])
        manifest = json.loads((tmp_path / "manifest.json").read_text())
        paths = [one["path"] for one in manifest["segments"] if one["type"] == "journals.Story"]
        table = pq.read_table([tmp_path / path for path in paths])
        assert table["headline"].to_pylist() == ["h0", "h1", "h2"]
        assert table["_offset"].to_pylist() == [0, 1, 2]

    def test_numbers_that_grow_and_ids_take_little_room(self, tmp_path):
        written = write(tmp_path, [event(n, Story(headline=f"{n}")) for n in range(2000)])
        group = pq.read_metadata(written.files("journals.Story")[0]).row_group(0)
        columns = [group.column(at) for at in range(group.num_columns)]
        room = {column.path_in_schema: column.total_uncompressed_size for column in columns}
        assert max(room["_offset"], room["_number"], room["_time"]) < 1000  # 16,000 as they are
        dictionaries = {one.path_in_schema for one in columns if one.has_dictionary_page}
        assert {"_subject", "_attributes.key_value.key"} <= dictionaries
        assert not {"_offset", "_number", "_time", "_object_id", "_event_id"} & dictionaries

    def test_one_writes_at_a_time(self, tmp_path):
        with JournalWriter.open(tmp_path), pytest.raises(StoreError, match="another process"):
            JournalWriter.open(tmp_path)
        JournalWriter.open(tmp_path).close()

    def test_a_folder_without_a_journal_is_refused(self, tmp_path):
        with pytest.raises(StoreError, match="a journal is a folder with a manifest"):
            Journal.open(tmp_path / "nothing")

    def test_names_that_make_no_folder_are_no_trouble(self, tmp_path):
        names = ["_hidden", "Größe", "a" * 255, "untyped", "types"]
        made = [define_type(name, [], {"n": (int, 0)})() for name in names]
        journal = write(tmp_path, [event(n, one) for n, one in enumerate(made)])
        assert [one.data for one in journal.select().events()] == made
        assert not [path for path in journal.files() if "_hidden" in str(path)]

    @pytest.mark.parametrize("damage", ["flip", "cut", "json"])
    def test_a_damaged_manifest_is_told(self, tmp_path, damage):
        write(tmp_path, [event(1, {})])
        path = tmp_path / "manifest.json"
        content = bytearray(path.read_bytes())
        if damage == "flip":
            content[len(content) // 2] ^= 1
        path.write_bytes({"flip": content, "cut": content[:-9], "json": b"{}"}[damage])
        with pytest.raises(StoreCorrupt, match="manifest"):
            Journal.open(tmp_path)

    def test_a_newer_format_is_told(self, tmp_path):
        import zlib

        body = b'"format":2}'
        (tmp_path / "manifest.json").write_bytes(b'{"checksum":"%08x",' % zlib.crc32(body) + body)
        with pytest.raises(StoreError, match="has format 2, this program knows 1"):
            Journal.open(tmp_path)


def test_times_choose_events(tmp_path):
    journal = write(tmp_path, *([event(n, {"n": n})] for n in range(5)))
    at = datetime.fromtimestamp(NOW_S, UTC)
    since, until = at + timedelta(seconds=1), at + timedelta(seconds=3)
    selection = journal.select(since=since, until=until)
    assert offsets(selection) == [1, 2]
    assert len(selection.segments) == 2
    assert offsets(journal.select(since=DAY + timedelta(days=3650))) == []


@given(st.lists(st.integers(0, 40), max_size=60))
def test_numbers_are_a_set(many):
    numbers = Numbers()
    for number in many:
        numbers.add(number)
    assert [number for number in range(42) if number in numbers] == sorted(set(many))
    ends = [(first, last + 1) for first, last in numbers.ranges]
    assert all(last < first for (_, last), (first, _) in itertools.pairwise(ends))
