"""A damaged ledger is refused or ends at an earlier commit; what it serves is what was written."""

import random
import shutil
import struct

import pytest

from infobus.errors import StoreCorrupt, StoreError
from infobus.stores.ledger import folder as shelf
from infobus.stores.ledger import inspection
from infobus.stores.ledger.ledger import Ledger
from infobus.stores.ledger.repair import repair
from infobus.stores.sqlite import database
from infobus.stores.sqlite.wal_check import FRAME_HEADER, LOG_HEADER, PAGE_BYTES
from infobus.testing.conformance.stores import PLENTY, record

FRAME_BYTES = FRAME_HEADER + PAGE_BYTES
DESCRIPTOR = b"a descriptor, such as it is" * 10


def batch(first, count):
    """Small records, and now and then one that fills pages of its own."""
    sizes = {0: 9_000, 5: 700}
    return [
        record(number, size=sizes.get(number % 10, 60)) for number in range(first, first + count)
    ]


def write(ledger, commits):
    """Append so many times; return the number of the last record after each commit."""
    ends = []
    for index in range(commits):
        first = ledger.append(batch(ledger.next, 1 + index % 4), {index % 3: DESCRIPTOR})
        assert first == (ends[-1] if ends else first - 1) + 1
        ends.append(ledger.next - 1)
    return ends


@pytest.fixture(scope="module")
def crashed(new_folder):
    """A ledger of a process that died: most of it in the main file, the end in the log."""
    folder = new_folder()
    ledger = Ledger.open(folder, None)
    write(ledger, 30)
    ledger.settle("billing", 11, 1.0)
    ledger.raise_sources({"far": 11})
    ledger.prune(10.0, keep_s=0.0, keep_bytes=PLENTY)
    ledger.close()
    ledger = Ledger.open(folder, ledger.id)
    write(ledger, 1)  # the first commit copies what is in the log
    ends = [ledger.next - 1, *write(ledger, 20)]
    aside = new_folder()
    shutil.copytree(folder, aside, dirs_exist_ok=True)
    ledger.close()
    return aside, ledger.id, ends


class Patient:
    """A copy of the crashed ledger, to be damaged."""

    def __init__(self, crashed, folder):
        source, self.id, self.ends = crashed
        self.folder = folder
        shutil.copytree(source, folder, dirs_exist_ok=True)
        self.path = folder / f"{self.id}.db"
        self.log, _ = database.companions(self.path)

    def outcome(self):
        """The last number that can be read, or None if the ledger was refused."""
        try:
            with Ledger.open(self.folder, self.id) as ledger:
                kept = ledger.read(0, 10_000, PLENTY)
                assert kept[0][0] == ledger.gone_up_to + 1
                numbers = [number for number, _ in kept]
                assert numbers == [*range(numbers[0], ledger.next)]
                for number, one in kept:
                    assert one == batch(number, 1)[0]
                for fingerprint in range(3):
                    assert ledger.descriptor(fingerprint) == DESCRIPTOR
                assert ledger.positions().keys() == {"billing"}
                return numbers[-1]
        except StoreCorrupt as error:
            assert str(self.path) in str(error)
            assert f"infobus ledger repair {self.id}" in str(error)
            return None
        except StoreError:  # a damaged header may look like a newer format or a read-only file
            return None


@pytest.fixture(scope="module")
def closed(new_folder):
    """A ledger that was closed: all of it is in the main file."""
    folder = new_folder()
    with Ledger.open(folder) as ledger:
        ends = write(ledger, 50)
        ledger.settle("billing", 11, 1.0)
    return folder, ledger.id, ends


@pytest.fixture
def patients(crashed, tmp_path):
    """Makes fresh patients; few at a time lie on the disk."""

    def make():
        shutil.rmtree(tmp_path / "patient", ignore_errors=True)
        return Patient(crashed, tmp_path / "patient")

    return make


def flip(path, bit):
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def test_the_undamaged_one_is_whole(patients):
    patient = patients()
    assert patient.outcome() == patient.ends[-1]


def test_a_bit_flipped_in_any_page_of_the_main_file(patients):
    """Beginnings of pages hold their structure, so they get most of the flips."""
    chance = random.Random(1)
    size = (patient := patients()).path.stat().st_size
    outcomes = []
    for page in range(0, size, PAGE_BYTES):
        places = [chance.randrange(12), chance.randrange(12, PAGE_BYTES), chance.randrange(200)]
        for place in places:
            patient = patients()
            flip(patient.path, (page + place) * 8 + chance.randrange(8))
            outcomes.append(patient.outcome())
    assert set(outcomes) <= {None, patient.ends[-1]}  # some bits are in no use
    assert outcomes.count(None) > len(outcomes) / 3


def test_a_bit_flipped_anywhere_in_a_closed_ledger(closed, tmp_path):
    chance = random.Random(3)
    outcomes = []
    for _ in range(300):
        shutil.rmtree(tmp_path / "patient", ignore_errors=True)
        patient = Patient(closed, tmp_path / "patient")
        flip(patient.path, chance.randrange(patient.path.stat().st_size * 8))
        outcomes.append(patient.outcome())
    assert set(outcomes) == {None, patient.ends[-1]}


def test_the_main_file_cut_short_anywhere(patients):
    size = (patient := patients()).path.stat().st_size
    for end in [*range(0, size, PAGE_BYTES), 1, 99, 5_000, size - 1]:
        patient = patients()
        with patient.path.open("r+b") as file:
            file.truncate(end)
        assert patient.outcome() in (None, patient.ends[-1])


def test_a_main_file_without_its_log_is_refused(patients):
    patient = patients()
    patient.log.unlink()
    assert patient.outcome() is None


def test_a_bit_flipped_in_any_frame_of_the_log(patients):
    """Only damage to the end of the log can be taken for a crash in the middle of a commit."""
    chance = random.Random(2)
    frames = frames_of(patients().log)
    *_, surely, _, _ = [number for number, is_commit in enumerate(frames) if is_commit]
    for number in range(len(frames)):
        for place in (chance.randrange(FRAME_HEADER), chance.randrange(FRAME_HEADER, FRAME_BYTES)):
            patient = patients()
            flip(patient.log, (LOG_HEADER + number * FRAME_BYTES + place) * 8)
            allowed = {None} if number <= surely else {None, *patient.ends[-3:-1]}
            assert patient.outcome() in allowed, (number, place)


def test_a_bit_flipped_in_the_head_of_the_log(patients):
    for byte in range(LOG_HEADER):
        patient = patients()
        flip(patient.log, byte * 8)
        assert patient.outcome() is None, byte


HEADS = {
    "the head is zeroed": lambda log: bytes(LOG_HEADER) + log[LOG_HEADER:],
    "the first salt, too": lambda log: bytes(48) + log[48:],
    "a sector is zeroed": lambda log: bytes(512) + log[512:],
    "a page is zeroed": lambda log: bytes(PAGE_BYTES) + log[PAGE_BYTES:],
    "a page is another": lambda log: log[2 * PAGE_BYTES : 3 * PAGE_BYTES] + log[PAGE_BYTES:],
}


@pytest.mark.parametrize("damage", HEADS.values(), ids=HEADS)
def test_a_log_without_its_head_is_refused_left_alone_and_salvaged(patients, damage):
    """SQLite takes it for an empty one, and would write over it."""
    patient = patients()
    damaged = damage(patient.log.read_bytes())
    patient.log.write_bytes(damaged)
    assert patient.outcome() is None
    with pytest.raises(StoreCorrupt, match="the head of its log is damaged"):
        inspection.check_ledger(patient.folder, patient.id)
    assert shelf.orphans(patient.folder) == {patient.id: None}
    with shelf.open_free(patient.folder) as other:
        assert other.id != patient.id
    assert patient.log.read_bytes() == damaged
    assert repair(patient.folder, patient.id).lost == ()
    assert patient.outcome() == patient.ends[-1]


def test_a_log_of_nothing_but_zeros_is_refused(patients):
    patient = patients()
    patient.log.write_bytes(bytes(patient.log.stat().st_size))
    assert patient.outcome() is None


def test_an_empty_log_is_refused_because_the_main_file_says_that_it_was_begun(patients):
    patient = patients()
    patient.log.write_bytes(b"")
    assert patient.outcome() is None


@pytest.mark.parametrize("content", [bytes(7), bytes(LOG_HEADER), b"torn" * 8])
def test_a_log_that_was_never_begun_holds_nothing(patients, content):
    """The power failed before its head was synced, so before any commit was."""
    patient = patients()
    patient.log.write_bytes(content)
    assert patient.outcome() == patient.ends[0]


def test_the_log_cut_short_anywhere_ends_at_a_commit(patients):
    frames = frames_of(patients().log)
    for number in range(len(frames)):
        for place in (0, 7, FRAME_BYTES // 2):
            patient = patients()
            with patient.log.open("r+b") as file:
                file.truncate(LOG_HEADER + number * FRAME_BYTES + place)
            assert patient.outcome() == patient.ends[sum(frames[:number])]


def test_damage_after_a_crash_between_copying_the_log_and_writing_it_anew(tmp_path):
    """Then older pages of the log lie over newer ones of the main file."""
    ledger = Ledger.open(tmp_path / "home", checkpoint_bytes=1 << 30)
    ledger._writer._unmarked_bytes = 0
    write(ledger, 20)
    ledger._writer._unmarked_bytes = 1 << 31
    ends = [ledger.next - 1, *write(ledger, 1)]
    shutil.copytree(tmp_path / "home", tmp_path / "crashed")
    ledger.close()
    crashed = (tmp_path / "crashed", ledger.id, ends)
    frames = frames_of(database.companions(tmp_path / "crashed" / ledger.path.name)[0])
    assert len(frames) > 20
    for number in range(len(frames)):
        shutil.rmtree(tmp_path / "patient", ignore_errors=True)
        patient = Patient(crashed, tmp_path / "patient")
        flip(patient.log, (LOG_HEADER + number * FRAME_BYTES + 30) * 8)
        try:
            with Ledger.open(patient.folder, patient.id) as opened:
                assert opened.next - 1 in ends
        except StoreCorrupt:
            pass


def frames_of(log):
    """For each frame of the last round of writing the log, whether it ends a commit."""
    content = log.read_bytes()
    return [
        struct.unpack_from(">I", content, at + 4)[0] > 0
        for at in range(LOG_HEADER, len(content) - FRAME_BYTES + 1, FRAME_BYTES)
        if content[at + 8 : at + 16] == content[16:24]
    ]


@pytest.fixture
def patient(closed, tmp_path):
    return Patient(closed, tmp_path / "patient")


class TestRepair:
    def test_a_sound_ledger_stays_as_it_is(self, patients):
        patient = patients()
        report = repair(patient.folder, patient.id)
        assert (report.aside, report.lost) == (None, ())
        assert patient.outcome() == patient.ends[-1]

    @pytest.mark.parametrize("seed", range(25))
    def test_what_is_whole_is_saved_and_the_rest_reported(self, patients, seed):
        chance = random.Random(seed)
        patient = patients()
        size = patient.path.stat().st_size
        for _ in range(1 + seed % 3):
            flip(patient.path, chance.randrange(size * 8) // PAGE_BYTES // 8 * PAGE_BYTES * 8 + 24)
        for _ in range(seed % 2):
            flip(patient.log, chance.randrange(LOG_HEADER * 8, patient.log.stat().st_size * 8))
        report = repair(patient.folder, patient.id)
        with Ledger.open(patient.folder, patient.id) as ledger:
            kept = dict(ledger.read(0, 10_000, PLENTY))
            assert all(one == batch(number, 1)[0] for number, one in kept.items())
            lost = {n for first, last in report.lost for n in range(first, last + 1)}
            expected = {*range(ledger.gone_up_to + 1, ledger.next)}
            assert kept.keys() | lost == expected
            assert not kept.keys() & lost
            assert ledger.verify() == []
            if report.aside:
                assert report.aside.exists()
                with pytest.raises(StoreError, match="takes no more records"):
                    ledger.append([record(1)])

    def test_even_a_ledger_whose_head_is_gone(self, patient):
        content = bytearray(patient.path.read_bytes())
        content[:PAGE_BYTES] = bytes(PAGE_BYTES)
        patient.path.write_bytes(content)
        assert patient.outcome() is None
        report = repair(patient.folder, patient.id)
        assert report.lost == ()
        assert repair(patient.folder, patient.id).aside is None
        assert patient.outcome() == patient.ends[-1]

    def test_a_sealed_ledger_is_served_but_not_taken_for_new_events(self, patient):
        flip(patient.path, 8 * 100)
        repair(patient.folder, patient.id)
        assert list(shelf.orphans(patient.folder)) == [patient.id]
        with shelf.open_free(patient.folder) as other:
            assert other.id != patient.id

    def test_a_damaged_ledger_does_not_keep_others_from_publishing(self, patient, caplog):
        flip(patient.path, 8 * 100)
        with shelf.open_free(patient.folder) as other:
            assert other.id != patient.id
        assert f"infobus ledger repair {patient.id}" in caplog.text
        assert patient.id in shelf.orphans(patient.folder)

    def test_damaged_text_that_sqlite_quotes_does_not_either(self, patient, caplog):
        flip(patient.path, (patient.path.read_bytes().index(b"CREATE TABLE records") + 6) * 8 + 7)
        with shelf.open_free(patient.folder) as other:
            assert other.id != patient.id
        assert f"infobus ledger repair {patient.id}" in caplog.text
        with pytest.raises(StoreCorrupt, match="malformed database schema"):
            inspection.check_ledger(patient.folder, patient.id)
        assert repair(patient.folder, patient.id).lost == ()
        assert patient.outcome() == patient.ends[-1]

    def test_a_ledger_with_lost_records_can_be_pruned(self, patient):
        flip(patient.path, (4 * PAGE_BYTES) * 8)
        report = repair(patient.folder, patient.id)
        assert report.lost
        with Ledger.open(patient.folder, patient.id) as ledger:
            ledger.drop("billing")
            ledger.prune(1e9, keep_s=0.0, keep_bytes=0)
            assert ledger.read(0, 10, PLENTY) == []
            assert ledger.verify() == []
        with Ledger.open(patient.folder, patient.id) as ledger:
            assert ledger.extent.count == 0
