"""Files beside the ledgers whose log has lost its head: what they hold is not taken for nothing."""

import shutil

import pytest

from infobus.errors import StoreCorrupt
from infobus.stores.ledger.consumer_store import ConsumerStore, repair_consumer
from infobus.stores.ledger.reply_store import Replies
from infobus.stores.sqlite import database
from infobus.stores.sqlite.wal_check import LOG_HEADER


def crash_and_zero_the_head(path, folder):
    """Copy an open file as a crash leaves it, without the head of its log; return the log."""
    folder.mkdir()
    log, _ = database.companions(path)
    shutil.copy(path, folder)
    content = log.read_bytes()
    assert len(content) > LOG_HEADER
    copied = folder / log.name
    copied.write_bytes(bytes(LOG_HEADER) + content[LOG_HEADER:])
    return copied


def test_a_durable_consumer_is_refused_and_repaired(tmp_path):
    after = tmp_path / "after"
    with ConsumerStore.open(tmp_path / "home", "billing", [">"], now_s=5.0) as store:
        store.note("l1", 3)
        store.flush()
        log = crash_and_zero_the_head(store.path, after)
    damaged = log.read_bytes()
    with pytest.raises(StoreCorrupt, match="the head of its log is damaged"):
        ConsumerStore.open(after, "billing", [">"], now_s=9.0)
    assert log.read_bytes() == damaged
    repair_consumer(after, "billing")
    with ConsumerStore.open(after, "billing", [">"], now_s=9.0) as saved:
        assert (saved.registered_at, saved.position("l1")) == (5.0, 3)


def test_a_store_of_replies_is_refused(tmp_path):
    """Else a call that has run would run again."""
    after = tmp_path / "after"
    store = Replies.open(tmp_path / "home")
    store.claim("call", "owner")
    log = crash_and_zero_the_head(store.path, after)
    store.close()
    damaged = log.read_bytes()
    with pytest.raises(StoreCorrupt, match="the head of its log is damaged"):
        Replies.open(after)
    assert log.read_bytes() == damaged
