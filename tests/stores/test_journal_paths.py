"""A manifest names only files of its own journal; values keep the type of their version."""

import zlib

import msgspec
import pytest

from infobus import define_type
from infobus.errors import StoreCorrupt, UsageError
from infobus.stores.journal import manifest
from infobus.stores.journal.journal import Journal, JournalWriter
from infobus.stores.journal.manifest import Retired
from tests.stores.journals import event, stories, write


@pytest.mark.parametrize(
    "path",
    ["../precious.parquet", "/etc/passwd", "manifest.json", "types/../../precious.parquet",
     "types/../precious.parquet", "untyped/../../p.parquet", ".lock", "types/x/.lock"],
)  # fmt: skip
@pytest.mark.parametrize("place", ["segments", "retired"])
def test_a_manifest_that_names_other_files_is_refused(tmp_path, path, place):
    precious = tmp_path / "precious.parquet"
    precious.write_text("mine")
    folder = tmp_path / "j"
    whole = write(folder, stories(range(2))).manifest
    if place == "retired":
        changed = msgspec.structs.replace(whole, retired=(Retired(path, 0.0),))
    else:
        (segment,) = whole.segments
        changed = msgspec.structs.replace(
            whole, segments=(msgspec.structs.replace(segment, path=path),)
        )
    body = msgspec.json.encode(changed)[1:]
    (folder / manifest.NAME).write_bytes(b'{"checksum":"%08x",' % zlib.crc32(body) + body)
    for open_it in (Journal.open, JournalWriter.open):
        with pytest.raises(StoreCorrupt, match="which is not a file of the journal"):
            open_it(folder)
    assert precious.read_text() == "mine"


def test_integers_of_a_middle_version_stay_integers(tmp_path):
    versions = [define_type("journals.Middle", [], {"x": kind}) for kind in (int, float, str)]
    values = [2**53 + 1, 1.5, "two"]
    events = [event(n, make(x=x)) for n, (make, x) in enumerate(zip(versions, values, strict=True))]
    journal = write(tmp_path, *([one] for one in events))
    table = journal.select("journals.Middle").table()
    assert table["x"].to_pylist() == [None, None, "two"]
    assert table["x__float"].to_pylist() == [None, 1.5, None]
    assert table["x__int"].to_pylist() == [2**53 + 1, None, None]


def test_a_file_address_is_the_folder_that_it_names(tmp_path):
    folder = tmp_path / "a b"
    write(folder, stories(range(2)))
    address = f"file://{tmp_path}/a%20b"
    assert Journal.open(address).folder == folder
    with JournalWriter.open(address.replace("file:///", "file:/")) as writer:
        assert writer.folder == folder


@pytest.mark.parametrize("address", ["s3a://b/news", "hdfs://h/news", "s3a:/b", "file://far/news"])
@pytest.mark.parametrize("open_it", [Journal.open, JournalWriter.open])
def test_an_address_elsewhere_is_refused_and_nothing_is_made(
    tmp_path, monkeypatch, address, open_it
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="expected a folder of this host"):
        open_it(address)
    assert [*tmp_path.iterdir()] == []
