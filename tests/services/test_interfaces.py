"""What a service can be asked to do, as data."""

import json
import re
from collections.abc import AsyncIterator, Iterator
from enum import Enum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infobus import BadType, DataObject, Service, define_type, idempotent, tdl
from infobus.errors import BadFrame
from infobus.objects import type_of
from infobus.services import DynamicService, Interface
from infobus.services.failures import read_error, write_error, write_raised
from infobus.services.interface import read_interface


class Part(DataObject, name="services.Part"):
    number: int

    def doubled(self, times: int = 2) -> int:
        """Times two, or more."""
        return self.number * times


class Colour(Enum):
    RED = 1


class Secretive(Exception):
    def __init__(self, secret):
        super().__init__()
        self._secret = secret

    def __str__(self):
        return f"the secret is {self._secret}"


class Workshop(Service):
    """Makes parts."""

    def make(self, name: "str", parts: list[Part] = [], limit: int | None = None) -> Part:  # noqa: B006
        """Make one."""
        raise NotImplementedError

    @idempotent
    def count(self) -> int:
        return 1

    def stream(self) -> "Iterator[Part]":
        yield Part(number=1)

    async def async_stream(self) -> AsyncIterator[dict[str, int]]:
        yield {}

    def _private(self, x: int) -> int:
        return x

    def unannotated(self, x) -> int:
        return 1

    def with_lambda(self, f: type) -> int:
        return 1


class Bigger(Workshop):
    def count(self, more: int = 0) -> int:
        return 2


def test_signatures_say_all():
    assert [operation.signature for operation in Workshop._interface.operations] == [
        "make(name: str, parts: list[services.Part] = [], limit: int | None = None) "
        "-> services.Part",
        "count() -> int",
        "stream() -> stream of services.Part",
        "async_stream() -> stream of dict[str, int]",
    ]


def test_operations_are_printed_as_signatures():
    assert str(Bigger._interface.operations[1:2]) == "(count(more: int = 0) -> int,)"


def test_a_service_without_a_doc_has_none(bus, other):
    class Silent(Service):
        def speak(self) -> None: ...

    class Quiet:
        def speak(self) -> None: ...

    class Loud(Workshop):
        pass

    assert (Silent._interface.doc, Interface.of_class(Quiet).doc) == ("", "")
    assert Loud._interface.doc == "Makes parts."


def test_serving_names_annotated_methods_that_cannot_be_operations(bus, caplog):
    class Odd(Service):
        def fine(self) -> int:
            return 1

        def sets(self) -> set[int]:
            return set()

        def many(self, *numbers: int) -> int:
            return 1

        def colour(self, colour: Colour) -> int:
            return 1

        def no_result(self, x: int):
            return x

        def bad_default(self, x: int = "a") -> int:
            return 1

        def untyped(self, x):
            return x

        def _private(self, x: set[int]) -> int:
            return 1

    bus.serve("svc.odd", Odd())
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 5
    for message, says in zip(
        told,
        [
            r"of Odd cannot be called over the bus: sets: .*set\[int\] can be an attribute",
            r"many: parameter \*numbers: int cannot be given by name",
            r"colour: parameter colour: .*Colour.* can be an attribute, but no parameter",
            "no_result: its result is not annotated",
            "bad_default: the default of x: expected int, got str 'a'",
        ],
        strict=True,
    ):
        assert re.search(says, message), message


def test_serving_names_operations_that_a_client_hides(bus, other, caplog):
    class Shop(Service):
        def options(self) -> list[str]:
            return ["red"]

        def subject(self) -> str:
            return "x"

        def buy(self) -> None: ...

    bus.serve("svc.shop", Shop())
    (record,) = caplog.records
    assert "options, subject; call them as service['options'](...)" in record.getMessage()
    assert other.service("svc.shop")["options"]() == ["red"]


def test_a_subclass_inherits_and_overrides():
    names = Bigger._interface.operations.names
    assert names == ("make", "count", "stream", "async_stream")
    assert Bigger._interface.operations["count"].signature == "count(more: int = 0) -> int"


def test_an_interface_survives_the_wire():
    told = read_interface(Workshop._interface.encode())
    assert (told.name, told.doc) == ("Workshop", "Makes parts.")
    for ours, theirs in zip(Workshop._interface.operations, told.operations, strict=True):
        assert theirs.signature == ours.signature
        flags = (theirs.doc, theirs.is_stream, theirs.is_idempotent)
        assert flags == (ours.doc, ours.is_stream, ours.is_idempotent)


@given(st.binary(max_size=80))
def test_bytes_that_are_no_interface_are_refused(junk):
    with pytest.raises(BadFrame):
        read_interface(b"\x93" + junk)


def test_one_that_is_too_large_is_not_served(bus):
    class Verbose(Service):
        def speak(self) -> None: ...

        speak.__doc__ = "x" * 300_000

    with pytest.raises(BadType, match="262144 are allowed"):
        bus.serve("svc.verbose", Verbose())


def test_a_service_can_be_made_at_run_time(bus, other):
    asked = []

    def perform(operation, arguments):
        asked.append((operation, arguments))
        return 7

    interface = Interface.of_type(type_of(Part(number=1)))
    bus.serve("svc.dynamic", DynamicService(interface, perform))
    client = other.service("svc.dynamic")
    assert client.doubled() == 7
    assert client.operations["doubled"].doc == "Times two, or more."
    assert asked == [("doubled", {"times": 2})]


def test_a_type_that_was_made_at_run_time_travels(bus, other):
    Made = define_type("services.Made", attributes={"size": int})

    class Factory(Service):
        def make(self) -> DataObject:
            return Made(size=3)

    bus.serve("svc.factory", Factory())
    assert other.service("svc.factory").make().size == 3


def test_an_object_whose_class_was_made_in_tdl_is_served(bus, other):
    machine = tdl.Interpreter()
    machine.run("""
      (defclass services.Pen () ((price :type float)) (:operations (total ((count int 1)) float)))
      (defmethod total ((pen services.Pen) count) (* count (slot-value pen 'price)))""")
    bus.serve("svc.pen", machine.classes["services.Pen"](price=1.5))
    pen = other.service("svc.pen")
    assert (pen.total(), pen.total(count=10)) == (1.5, 15.0)
    assert pen.operations["total"].signature == "total(count: int = 1) -> float"


class TestErrors:
    @pytest.mark.parametrize(
        "error",
        [
            UnicodeDecodeError("utf-8", b"a\xff", 1, 2, "invalid start byte"),
            UnicodeEncodeError("ascii", "a\xff", 1, 2, "ordinal not in range"),
            SyntaxError("invalid syntax", ("f.py", 3, 4, "x =", 3, 5)),
            SyntaxError("plain"),
            FileNotFoundError(2, "No such file or directory", "missing.txt"),
            PermissionError(13, "Permission denied", "x.txt", None, "y.txt"),
            OSError("something else"),
            KeyError("nope"),
            ValueError("bad", 7),
            ZeroDivisionError("division by zero"),
            json.JSONDecodeError("Expecting value", "doc", 2),
        ],
        ids=lambda error: type(error).__name__,
    )
    def test_an_exception_keeps_its_class_and_its_message(self, error):
        read = read_error(write_error(error, with_traceback=False))
        assert (type(read), str(read)) == (type(error), str(error))

    def test_facts_come_along(self):
        missing = FileNotFoundError(2, "No such file or directory", "missing.txt")
        read = read_error(write_error(missing, with_traceback=False))
        assert (read.errno, read.filename) == (2, "missing.txt")

    def test_one_that_cannot_be_made_to_say_the_same_still_says_it(self):
        read = read_error(write_error(Secretive(7), with_traceback=False))
        assert (type(read).__name__, str(read)) == ("RemoteError", "Secretive: the secret is 7")

    def test_an_object_in_an_exception_comes_with_its_type(self):
        error = ValueError("bad part")
        error.part = Part(number=3)
        types = write_raised(error, with_traceback=False)[1]
        assert type_of(Part).fingerprint in types

    @given(st.binary(max_size=60))
    def test_bytes_that_are_no_error_give_one_that_says_so(self, junk):
        assert isinstance(read_error(junk), Exception)

    def test_what_cannot_be_sent_of_an_error_is_left_out(self):
        error = ValueError("bad", object())
        assert "ValueError: ('bad'" in str(read_error(write_error(error, with_traceback=False)))

    @pytest.mark.parametrize("module", ["os", "infobus.errors", "builtins", "not.there"])
    @pytest.mark.parametrize(
        "name", ["system", "SystemExit", "KeyboardInterrupt", "x.y", "", "open"]
    )
    def test_a_name_from_a_stranger_is_never_more_than_an_exception(self, module, name):
        from infobus.objects import codec

        told = {"module": module, "type": name, "message": "m", "args": ["ls"], "state": {}}
        error = read_error(codec.encode(told)[1])
        assert type(error).__name__ == "RemoteError"
