import zenoh
from hypothesis import given
from hypothesis import strategies as st

from infobus.keys import keys_intersect

keys = st.lists(st.sampled_from(["a", "b", "*", "**"]), min_size=1, max_size=6).map("/".join)


@given(keys, keys)
def test_keys_meet_exactly_when_zenoh_says_so(one: str, other: str) -> None:
    expected = zenoh.KeyExpr.autocanonize(one).intersects(zenoh.KeyExpr.autocanonize(other))
    assert keys_intersect(one, other) == keys_intersect(other, one) == expected
