"""What the tests of guaranteed delivery share: a server with ledgers, and how it is asked."""

import msgspec

from infobus.protocols.effects import ToPeer
from infobus.protocols.frames.guaranteed import Durable, Entry, Fetch, Kept, NameRefused
from infobus.protocols.guaranteed.server import LedgerServer, ServerTerms
from infobus.stores.ledger.record import Record
from infobus.testing.memory_stores import MemoryDisk


def event(subject="orders.new", time=0.0, expires=None, test=False, **attributes):
    body = msgspec.msgpack.encode(attributes)
    return Record(subject, time, 0, body, expires=expires, test=test)


def entry(number, subject="orders.new", body=b"\x80", expires=None):
    return Entry(number, subject, 0.0, 0, body, expires=expires)


class Serving:
    """A server, its ledgers, and the effects of the last call."""

    def __init__(self, **terms):
        self.server = LedgerServer(
            name="server",
            decode=lambda record: msgspec.msgpack.decode(record.body),
            describe=lambda types: [b"type %d" % number for number in types],
            terms=ServerTerms(**terms),
        )
        self.ledgers = {}
        self.effects = []

    def open(self, id="L", *events, positions=()):
        ledger = self.ledgers[id] = MemoryDisk().open_ledger()
        if events:
            ledger.append(events)
        self.effects = self.server.opened(id, ledger, ledger.next - 1, dict(positions), 0.0)
        return ledger

    def append(self, *events, id="L", now_s=0.0):
        self.ledgers[id].append(events)
        self.effects = self.server.committed(id, self.ledgers[id].next - 1, now_s)
        return self.answers()

    def announce(self, *patterns, name="billing", node="consumer", session=1, now_s=0.0, **more):
        told = Durable(node, name, session, list(patterns), **more)
        self.effects = self.server.take(told, now_s)
        return self.answers()

    def fetch(self, after, settled=None, *, id="L", name="billing", node="consumer", **more):
        asked = {"session": 1, "credit_count": 100, "credit_bytes": 10**6, "now_s": 0.0, **more}
        now_s = asked.pop("now_s")
        settled = after if settled is None else settled
        fetch = Fetch(sender=node, name=name, ledger=id, after=after, settled=settled, **asked)
        self.effects = self.server.take(fetch, now_s)
        return self.answers()

    def answers(self):
        sent = [effect.message for effect in self.effects if isinstance(effect, ToPeer)]
        return [message for message in sent if isinstance(message, Kept | NameRefused)]


def noted(ledger):
    """How far the ledger believes its consumers to be."""
    return {name: one.position for name, one in ledger.positions().items()}


def numbers(kept):
    return [entry.number for entry in kept.entries]
