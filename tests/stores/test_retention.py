"""What is old enough to go, whatever the clock on the wall does."""

from hypothesis import given
from hypothesis import strategies as st

from infobus.stores.ledger.ledger import Ledger
from infobus.stores.ledger.record import Record
from infobus.stores.ledger.retention import KEEP_BYTES, KEEP_S, PatientClock

START_S = 1_000_000_000.0


def test_a_clock_that_jumps_ahead_and_back_takes_nothing_away(tmp_path):
    clock = PatientClock(wall_s=START_S, now_s=0.0)
    with Ledger.open(tmp_path) as ledger:

        def prune(wall_s, now_s):
            old_s = clock.read(wall_s=wall_s, now_s=now_s)
            return ledger.prune(old_s, keep_s=KEEP_S, keep_bytes=KEEP_BYTES)

        ledger.append([Record("orders.new", START_S, 7, b"")] * 3)
        assert prune(START_S + 100 * KEEP_S, now_s=30.0) == 0
        assert prune(START_S + 60.0, now_s=60.0) == 0
        assert prune(START_S - 100 * KEEP_S, now_s=90.0) == 0
        assert prune(START_S + KEEP_S + 120.0, now_s=KEEP_S + 120.0) == 3


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(-1e9, 1e9)), max_size=20))
def test_it_is_never_ahead_of_the_wall_nor_of_the_time_that_has_passed(steps):
    clock, now_s = PatientClock(wall_s=START_S, now_s=0.0), 0.0
    for pause_s, jump_s in steps:
        now_s += pause_s
        wall_s = START_S + now_s + jump_s
        assert clock.read(wall_s=wall_s, now_s=now_s) == min(wall_s, START_S + now_s)
