"""Headers of calls: beside the arguments, read by the operation that runs."""

from collections.abc import Iterator

import msgspec
import pytest

from infobus import BadFrame, BadValue, Service, UsageError, current_call
from infobus.headers import NO_HEADERS
from infobus.protocols.frames import invocation as wire


class Echo(Service):
    def said(self) -> dict[str, str]:
        return {name: repr(value) for name, value in current_call().headers.items()}

    def each(self, count: int) -> Iterator[str]:
        for _ in range(count):
            yield str(current_call().headers["trace"])

    async def later(self) -> str:
        return str(current_call().headers["trace"])

    def are_none(self) -> bool:
        return current_call().headers is NO_HEADERS


@pytest.fixture
def client(bus, other):
    bus.serve("svc.echo", Echo())
    return other.service("svc.echo", headers={"trace": "4bf92f", "attempt": 2})


def test_an_operation_reads_what_its_caller_says(client):
    assert client.said() == {"trace": "'4bf92f'", "attempt": "2"}
    assert list(client.each(3)) == ["4bf92f"] * 3
    assert client.later() == "4bf92f"
    assert client.options(exactly_once=True).said() == {"trace": "'4bf92f'", "attempt": "2"}


def test_options_replace_them(client):
    assert client.options(headers={"n": b"x"}).said() == {"n": "b'x'"}
    assert client.options(headers=None).are_none() is True


def test_headers_that_cannot_be_sent_are_refused_before_any_call(other):
    with pytest.raises(BadValue, match="header 'trace' is a NoneType"):
        other.service("svc.echo", headers={"trace": None})
    with pytest.raises(UsageError, match="header"):
        other.service("svc.echo", header={"trace": "a"})


def test_a_call_of_the_version_before_has_none_and_a_bad_one_is_refused(bus, client):
    old = msgspec.msgpack.encode([32, "stranger", 1, 1, "are_none", b"\x80"])
    call = wire.decode(old)
    assert isinstance(call, wire.Call)
    assert call.headers == b""
    with pytest.raises(BadFrame):
        wire.decode(msgspec.msgpack.encode(wire.Call("a", 1, 1, "x", b"\x80", headers=b"x" * 9000)))
    assert client.said()
