"""Whatever crosses in one call: each subscription gets just what it asked for, once, in order."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from infobus import Event
from infobus.bus.border.border import Border
from infobus.filters import compile
from infobus.protocols.frames import transactions
from infobus.protocols.frames.transactions import Group
from infobus.protocols.frames.wire import Item, Items, Origin
from infobus.subjects import matches
from tests.bus.borders import sites
from tests.bus.helpers import take

SUBJECTS = ["q.x", "q.y", "r.x", "s.x"]
PATTERNS = ["q.x", "q.*", "*.x", ">", "r.x"]
CLASSES = ["", "business"]

wishes = st.lists(
    st.tuples(st.sampled_from(PATTERNS), st.sampled_from(["", "n > 5", "n < 3"]), st.booleans()),
    min_size=1,
    max_size=4,
)
events = st.tuples(st.sampled_from(SUBJECTS), st.integers(0, 9))
runs = st.lists(
    st.tuples(st.lists(events, min_size=1, max_size=12), st.sampled_from(CLASSES), st.booleans()),
    min_size=1,
    max_size=6,
)


def item(number: int, subject: str, n: int) -> Item:
    body = msgspec.msgpack.encode({"n": n})
    return Item(subject, number, 1.5, 0, body, origin=Origin(f"p{number % 3}", "a"))


def one_group(items: list[Item]) -> Item:
    inside = Items.of([msgspec.structs.replace(one, origin=None) for one in items])
    group = Group(items[0].number, items[0].number, 1, inside, len(items))
    whole = transactions.item(items[0].subject, 1.5, group)
    return msgspec.structs.replace(whole, origin=items[0].origin)


def lane_of_one(event: Event) -> tuple[str, str]:
    """Events with equal ones keep their order; transactions have one of their own."""
    is_group = not isinstance(event.data, dict)
    return event.priority, "transactions" if is_group else event.subject.partition(".")[0]


@settings(max_examples=25)
@given(wishes, runs)
def test_what_crosses_reaches_whoever_asked_for_it(wishes, runs):
    # The last ones are wanted whatever the filter, and so show what came twice before them.
    last = [(subject, n) for subject in SUBJECTS for n in (0, 9)]
    with sites() as two:
        b, other = two.join("b"), two.join("b")
        border = Border(b, take=print, on_loss=print, on_wanted=list)
        subscriptions = [
            (b if is_here else other).subscribe(pattern, where=where or None)
            for pattern, where, is_here in wishes
        ]
        accounts: list[dict[tuple[str, str], list[list[tuple[str, int]]]]] = [{} for _ in wishes]
        number = 0
        for content, class_, is_group in [*runs, *((last, class_, False) for class_ in CLASSES)]:
            items = [item(number + at, *one) for at, one in enumerate(content)]
            number += len(items)
            border.send(Items.of([one_group(items)] if is_group else items), class_)
            for account, (pattern, where, _) in zip(accounts, wishes, strict=True):
                fits = compile(where or "n >= 0").matches
                asked = [one for one in content if matches(pattern, one[0]) and fits({"n": one[1]})]
                for together in [asked] if is_group else [[one] for one in asked]:
                    if together:
                        channel = "transactions" if is_group else together[0][0].partition(".")[0]
                        account.setdefault((class_ or "regular", channel), []).append(together)
        for subscription, account in zip(subscriptions, accounts, strict=True):
            found: dict[tuple[str, str], list[list[tuple[str, int]]]] = {}
            for event in take(subscription, sum(map(len, account.values()))):
                together = [event] if isinstance(event.data, dict) else event.data.events
                content = [(one.subject, one.data["n"]) for one in together]
                found.setdefault(lane_of_one(event), []).append(content)
            assert found == account
        border.close()
