"""The eras of a passage: whatever they take in turn, and however often they are killed."""

from hypothesis import given
from hypothesis import strategies as st

from infobus.router.eras import Spans


@given(
    starts=st.lists(st.integers(1, 12), min_size=1, max_size=4, unique=True),
    steps=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4), st.booleans()), max_size=40),
)
def test_what_any_era_is_owed_is_kept_once(
    starts: list[int], steps: list[tuple[int, int, bool]]
) -> None:
    """Each era takes what follows its start; later eras start earlier."""
    starts, end = sorted(starts, reverse=True), 14
    places = list(starts)
    reached: dict[str, int] = {}  # on disk
    spans = Spans("~router.north")
    kept: list[int] = []

    def take(era: int, count: int) -> None:
        for number in range(places[era], min(places[era] + count, end)):
            stream = spans.stream(era, "ledger1")
            if spans.is_new(era, "ledger1", number) and number > reached.get(stream, 0):
                news = spans.keep(era, "ledger1", number) | {stream: number}
                for name, value in news.items():
                    reached[name] = max(value, reached.get(name, 0))
                kept.append(number)
        places[era] = min(places[era] + count, end)

    for era, count, is_killed in steps:
        if era < len(starts):
            take(era, count)
            if is_killed:  # before it could settle what it has just kept
                places[era] = max(places[era] - 2, starts[era])
                spans = Spans("~router.north")
                spans.load(reached)
    for era in range(len(starts)):
        take(era, end)
    assert sorted(kept) == list(range(starts[-1], end))
