"""Methods that come with a type from elsewhere: off by default, and confined when permitted."""

import msgspec
import pytest
from msgspec.structs import replace

from infobus import UsageError, type_of
from infobus.errors import BadFrame, BadValue, TdlError, TdlLimit
from infobus.objects import classes, codec, descriptors, registry
from infobus.objects.descriptors import Description, TravellingCode
from infobus.objects.members import Attribute, Operation, Parameter
from infobus.objects.spelling import parse_kind
from infobus.tdl import Interpreter, ProgramLimits, forbid, permit
from infobus.tdl.interpreter import METHODS
from infobus.tdl.signatures import sign
from tests.tdl.programs import fresh

KEY = b"a key of those who trust each other"
INT = parse_kind("int")
TOTAL = "(defmethod total ((o {name}) count) (* count (slot-value o 'price)))"


@pytest.fixture(autouse=True)
def _nothing_stays_permitted():
    yield
    forbid()


def received(source, *, name=None, key=None, above=()):
    """An object of a type that came from elsewhere, with methods."""
    name = name or fresh("Item")
    source = source.format(name=name)
    description = Description(
        name,
        tuple((s.name, s.fingerprint) for s in above),
        () if above else (Attribute("price", INT),),
        () if above else (Operation("total", (Parameter("count", INT, True, 1),), INT),),
        "",
    )
    signature = b""
    if key is not None:
        signature = sign(key, METHODS, name, description.fingerprint, source)
    code = TravellingCode(source, signature) if source else None
    description = replace(description, code=code)
    fingerprint = classes.learn(description.write())
    made = classes.class_for(fingerprint)(price=5)
    return codec.decode(*codec.encode(made))


def test_methods_do_not_run_unless_they_are_permitted():
    item = received(TOTAL)
    assert not hasattr(item, "total")
    with pytest.raises(AttributeError, match=r"methods in TDL came with it, see tdl\.permit"):
        item.total(3)


def test_permitted_methods_carry_out_operations():
    item = received(TOTAL)
    permit("tdl_test.>")
    assert (item.total(3), item.total(), item.total(count=2)) == (15, 5, 10)
    with pytest.raises(BadValue):
        item.total("three")
    forbid()
    assert not hasattr(item, "total")


def test_only_the_named_types_are_permitted():
    item = received(TOTAL)
    permit("plant.>", "tdl_test.Other")
    assert not hasattr(item, "total")
    permit(type_of(item).name)
    assert item.total(1) == 5


def test_a_key_admits_what_is_signed_with_it_alone():
    unsigned, signed = received(TOTAL), received(TOTAL, key=KEY)
    forged = received(TOTAL, key=b"another key, of somebody else")
    permit(">", key=KEY)
    assert signed.total(2) == 10
    assert not hasattr(unsigned, "total")
    assert not hasattr(forged, "total")


def test_a_subtype_without_methods_uses_those_of_its_supertype():
    above = type_of(received(TOTAL, name=fresh("Base")))
    item = received("", above=[above])
    permit("tdl_test.>")
    assert item.total(2) == 10


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("(defmethod total ((o {name}) count) (loop))", TdlLimit),
        ("(defmethod total ((o {name}) count) (total o count))", TdlLimit),
        ("(defmethod total ((o {name}) count) (publish \"a\" o))", TdlError),
        ("(defmethod total ((o {name}) count) (print o))", TdlError),
        ("(defclass tdl_other.Story () ())", TdlError),
        ("(loop)", TdlLimit),
        ("(((", TdlError),
    ],
)  # fmt: skip
def test_permitted_methods_are_confined(source, error):
    item = received(source)
    permit("tdl_test.>", limits=ProgramLimits(fuel=10_000))
    with pytest.raises(error):
        item.total(1)
    assert item.price == 5
    assert registry.find_type("tdl_other.Story") is None


def test_types_do_not_share_functions():
    one = received("(defun f () 1) (defmethod total ((o {name}) count) (f))")
    other = received("(defun f () 2) (defmethod total ((o {name}) count) (f))")
    permit("tdl_test.>")
    assert (one.total(), other.total(), one.total()) == (1, 2, 1)


def test_an_operation_for_which_no_method_came_says_so():
    item = received("(defun other () 1)")
    permit("tdl_test.>")
    name = type_of(item).name
    with pytest.raises(TdlError, match=rf"^{name}\.total: nobody has written a method for this"):
        item.total(3)


def test_parameters_of_received_operations_may_have_any_name():
    name = fresh("Named")
    parameters = tuple(Parameter(one, INT) for one in ("obj", "operation", "author", "permission"))
    source = f"(defmethod total ((o {name}) a b c d) (+ a b c d))"
    operation = Operation("total", parameters, INT)
    description = Description(name, (), (), (operation,), "", TravellingCode(source))
    item = classes.class_for(classes.learn(description.write()))()
    permit("tdl_test.>")
    assert item.total(obj=1, operation=2, author=3, permission=4) == 10


def test_to_permit_nothing_in_particular_is_a_mistake():
    with pytest.raises(UsageError, match="say which types"):
        permit()
    with pytest.raises(UsageError, match="at least 16"):
        permit(">", key=b"short")


class TestSending:
    def test_what_a_method_needs_travels_with_it(self):
        tdl = Interpreter(key=KEY)
        name, base = fresh("Sale"), fresh("Base")
        tdl.run(f"""
        (defvar *rate* 2) (defvar *unused* 3)
        (defun rate () *rate*)
        (defun unused () 1)
        (defclass {base} () ((price :type int :accessor price)) (:operations (total () int)))
        (defclass {name} ({base}) () (:travels t))
        (defmethod total ((o {base})) (* (rate) (price o)))
        (defmethod total :around ((o {name})) (1+ (call-next-method)))
        (defmethod other ((o string)) o)""")
        code = type_of(tdl.classes[name]).code
        assert type_of(tdl.classes[base]).code is None
        for part in ("*rate*", "(defun rate", "defmethod price", "total :around", f"o {base}"):
            assert part in code.source
        assert "unused" not in code.source
        assert "other" not in code.source
        elsewhere = Interpreter()
        elsewhere.run(code.source)
        obj = tdl.classes[name](price=20)
        assert elsewhere.call("total", obj) == 41 == obj.total()

    def test_every_method_of_a_generic_function_travels(self):
        tdl = Interpreter()
        name = fresh("Sale")
        tdl.run(f"""
        (defclass {name} () () (:operations (f ((n int)) str)) (:travels t))
        (defgeneric f (o n) (:method ((o {name}) (n integer)) "any"))
        (defmethod f ((o {name}) (n (eql 1))) "one")
        (defmethod f ((o {name}) (n (eql 2))) "zwei")
        (defmethod f ((o {name}) (n (eql 2))) "two")""")
        source = type_of(tdl.classes[name]).code.source
        assert "zwei" not in source
        elsewhere = Interpreter()
        elsewhere.run(source)
        obj = tdl.classes[name]()
        assert [elsewhere.call("f", obj, n) for n in (1, 2, 3)] == ["one", "two", "any"]

    def test_methods_do_not_change_what_a_type_is(self):
        tdl = Interpreter()
        name = fresh("Plain")
        tdl.run(f"(defclass {name} () ((a :type int)) (:operations (f () int)) (:travels t))")
        before = type_of(tdl.classes[name])
        tdl.run(f"(defmethod f ((o {name})) 1)")
        after = type_of(tdl.classes[name])
        assert before == after
        assert before.fingerprint == after.fingerprint
        assert after.code.source == f"(defmethod f ((o {name})) 1)"
        assert descriptors.read(after.descriptor).code == after.code
        assert registry.find_type(name) is after
        tdl.run(f"(defmethod f ((o {name})) 2)")
        assert type_of(tdl.classes[name]).code.source == f"(defmethod f ((o {name})) 2)"

    def test_methods_that_are_too_long_to_travel_are_refused(self):
        tdl = Interpreter()
        name = fresh("Long")
        tdl.run(f"(defclass {name} () () (:operations (f () str)) (:travels t))")
        tdl.run(f'(defmethod f ((o {name})) "{"x" * 40_000}")')
        with pytest.raises(TdlError, match="too large"):
            tdl.run(f'(defmethod f :before ((o {name})) "{"x" * 40_000}")')

    def test_classes_that_do_not_ask_for_it_have_no_code(self):
        tdl = Interpreter()
        name = fresh("Stays")
        tdl.run(f"(defclass {name} () () (:operations (f () int))) (defmethod f ((o {name})) 1)")
        assert b"code" not in type_of(tdl.classes[name]).descriptor


def test_code_that_comes_later_is_taken_once():
    name = fresh("Late")
    bare = Description(name, (), (), (Operation("f", (), INT),), "")
    first = Description(name, (), (), bare.operations, "", TravellingCode("(defmethod f (o) 1)"))
    second = Description(name, (), (), bare.operations, "", TravellingCode("(defmethod f (o) 2)"))
    fingerprints = {classes.learn(one.write()) for one in (bare, first, second)}
    assert len(fingerprints) == 1
    assert registry.types[fingerprints.pop()].code.source == "(defmethod f (o) 1)"


@pytest.mark.parametrize("code", [5, {"source": 5}, {}, {"source": "x", "signature": "text"}, []])
def test_code_that_is_none_makes_a_bad_descriptor(code):
    fields = {"name": "tdl_test.Hostile", "code": code}
    with pytest.raises(BadFrame):
        descriptors.read(msgspec.msgpack.encode(fields))
