"""Passwords are kept so that the right one is recognised, and nothing else is."""

import pytest

from infobus.security.passwords import hashed, is_right


def test_only_the_right_password_is_right():
    kept = hashed("correct horse", b"0123456789abcdef")
    assert is_right("correct horse", kept)
    assert not is_right("correct horsf", kept)
    assert "horse" not in kept
    assert hashed("correct horse", b"another salt 123") != kept


@pytest.mark.parametrize(
    "kept", ["", "scrypt", "plain 1 1 1 00 00", "scrypt 3 8 1 zz 00", f"scrypt {2**40} 8 1 00 00"]
)
def test_what_was_not_kept_by_us_is_no_password(kept):
    assert not is_right("anything", kept)
