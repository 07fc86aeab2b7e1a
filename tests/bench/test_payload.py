"""The objects that are sent."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infobus.bench.pubsub.payload import (
    FIRST_NUMBER,
    HELLO_NUMBER,
    PeerQuote,
    encoded_bytes,
    make_quote,
    subject_names,
    venue_for,
)


@given(st.integers(64, 70_000))
def test_an_object_has_the_size_asked_for_but_for_a_length_prefix(size):
    assert size - 2 <= encoded_bytes(venue_for(size)) <= size


@pytest.mark.parametrize("size", [256, 1024, 4096, 16_384, 65_536])
def test_the_sizes_of_the_figures_are_met_exactly(size):
    assert encoded_bytes(venue_for(size)) == size


def test_the_smallest_object_is_not_padded_and_larger_than_16_bytes():
    assert venue_for(16) == "XNYS"
    assert 16 < encoded_bytes(venue_for(16)) < 64


@given(st.integers(HELLO_NUMBER, FIRST_NUMBER + 10_000_000))
def test_all_objects_of_a_run_are_of_one_size_whatever_their_number(number):
    assert len(msgspec.msgpack.encode(make_quote(PeerQuote, "XNYS", number))) == encoded_bytes(
        "XNYS"
    )


def test_subjects_are_distinct():
    assert len(set(subject_names(10_000))) == 10_000
