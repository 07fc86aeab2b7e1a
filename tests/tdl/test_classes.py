"""Classes, generic functions and methods, and their use from Python and the reverse."""

import pytest

import infobus
from infobus import BadValue, DataObject
from infobus.errors import TdlError
from infobus.objects import codec
from infobus.tdl import Capabilities, Interpreter, operate
from tests.tdl.programs import fresh


class Machine(DataObject, name="tdl_test.Machine"):
    serial: str
    hours: float = 0.0
    tags: list[str] = []  # noqa: RUF012
    limits: dict[str, int] = {}  # noqa: RUF012
    is_on: bool = False
    note: str | None = None


class Oven(Machine, name="tdl_test.Oven"):
    celsius: float = 20.0

    def heat(self, by: float) -> float:
        self.celsius += by
        return self.celsius

    def secret(self):
        return "for Python alone"


@pytest.fixture
def tdl():
    return Interpreter()


def trace_of(tdl, setup, call):
    tdl.run("(defvar trace nil)" + setup)
    tdl.run(call)
    return tdl.run("(reverse trace)")


class TestClasses:
    def test_a_class_made_in_tdl_is_a_type_of_the_bus(self, tdl):
        name = fresh("Recipe")
        tdl.run(f"""
        (defclass {name} ()
          ((name :type str :documentation "what it is called")
           (steps :type (list-of str) :initform '("clean"))
           (weights :type (map-of float) :initform nil)
           (note :type (or str null) :initform nil)
           (anything)
           (opened-at :type "datetime | None" :initform nil))
          (:documentation "What to do with a wafer.")
          (:operations (run ((times int 1) (mode string)) (list-of str) "Runs it.")))""")
        known = infobus.type_of(tdl.classes[name])
        assert known.doc == "What to do with a wafer."
        assert [(a.name, a.type) for a in known.attributes] == [
            ("name", "str"),
            ("steps", "list[str]"),
            ("weights", "dict[str, float]"),
            ("note", "str | None"),
            ("anything", "any"),
            ("opened_at", "datetime | None"),
        ]
        assert known.attributes["steps"].default == ["clean"]
        assert known.attributes["name"].doc == "what it is called"
        signature = "run(times: int = 1, mode: str) -> list[str]"
        assert [o.signature for o in known.operations] == [signature]
        made = tdl.classes[name](name="etch", anything=1)
        assert codec.decode(*codec.encode(made)) == made

    def test_equal_classes_in_tdl_and_python_are_one_type(self, tdl):
        name = fresh("Same")
        infobus.define_type(name, [], {"x": int, "y": ("str", "a")})
        tdl.run(f'(defclass {name} () ((x :type int) (y :type str :initform "a")))')
        assert infobus.type_of(tdl.run(f"(make-instance '{name} :x 1)")) is infobus.type_of(
            tdl.classes[name]
        )

    def test_a_program_cannot_take_over_a_class_of_others(self, tdl):
        with pytest.raises(TdlError, match=r"another class tdl_test\.Machine"):
            tdl.run("(defclass tdl_test.Machine () ((evil :type str)))")
        assert Machine(serial="a").serial == "a"

    def test_a_program_can_change_its_own_class(self, tdl):
        name = fresh("Growing")
        tdl.run(f"(defclass {name} () ((a :type int :initform 1)))")
        old = tdl.run(f"(setf old (make-instance '{name}))")
        tdl.run(f"(defclass {name} () ((a :type int :initform 1) (b :type int :initform 2)))")
        tdl.run(f"""
        (defmethod sum ((x {name}))
          (reduce #'+ (mapcar (lambda (slot) (slot-value x slot)) (slot-names x))))""")
        assert tdl.run(f"(list (sum old) (sum (make-instance '{name})))") == [3, 3]
        assert old.b == 2

    def test_a_name_that_python_has_declared_since_stays_pythons(self, tdl):
        name = fresh("Taken")
        tdl.run(f"(defclass {name} () ((a :type int :initform 1)))")
        declared = infobus.define_type(name, [], {"b": (int, 2)})
        with pytest.raises(TdlError, match="this process has another class"):
            tdl.run(f"(defclass {name} () ((a :type int :initform 1) (c :initform 3)))")
        assert infobus.objects.find_type(name) is declared.__bus_type__
        with pytest.raises(TdlError, match="this process has another class"):
            Interpreter().run(f"(defclass {name} () ((c :initform 3)))")

    def test_a_subclass_of_that_name_cannot_be_made_anew_either(self, tdl):
        base, name = fresh("Base"), fresh("Taken")
        tdl.run(f"(defclass {base} () ()) (defclass {name} ({base}) ())")
        declared = infobus.define_type(name, [], {"b": (int, 2)})
        with pytest.raises(TdlError, match=r"another class .*, a subclass of yours"):
            tdl.run(f"(defclass {base} () ((a :initform 1)))")
        assert infobus.objects.find_type(name) is declared.__bus_type__
        assert not tdl.classes[base].__bus_type__.attributes

    def test_python_classes_can_be_extended_and_made(self, tdl):
        name = fresh("Kiln")
        tdl.run(f"(defclass {name} (tdl_test.Oven) ((bricks :type int :initform 7)))")
        kiln = tdl.run(f'(make-instance \'{name} :serial "k1" :celsius 900)')
        assert isinstance(kiln, Oven)
        assert (kiln.celsius, kiln.bricks, kiln.heat(1.5)) == (900.0, 7, 901.5)

    def test_several_superclasses_are_ordered_as_in_python(self, tdl):
        a, b, c, d = (fresh(n) for n in "abcd")
        tdl.run(f"""
        (defclass {a} () ()) (defclass {b} ({a}) ()) (defclass {c} ({a}) ())
        (defclass {d} ({b} {c}) ((x :type int :initform 1)))
        (defmethod who ((o {a})) '(a)) (defmethod who ((o {b})) (cons 'b (call-next-method)))
        (defmethod who ((o {c})) (cons 'c (call-next-method)))
        (defmethod who ((o {d})) (cons 'd (call-next-method)))""")
        assert tdl.run(f"(who (make-instance '{d}))") == ["d", "b", "c", "a"]
        found = [n for n in tdl.run(f"(class-precedence-list '{d})") if n in (a, b, c, d)]
        mro = [k.__bus_type__.name for k in tdl.classes[d].__mro__ if k in tdl.classes.values()]
        assert found == [d, b, c, a] == mro

    def test_superclasses_that_contradict_each_other_are_refused(self, tdl):
        a, b, c = (fresh(n) for n in "abc")
        tdl.run(f"(defclass {a} () ()) (defclass {b} () ())")
        tdl.run(f"(defclass {c}x ({a} {b}) ()) (defclass {c}y ({b} {a}) ())")
        with pytest.raises(TdlError, match="consistent method resolution order"):
            tdl.run(f"(defclass {c} ({c}x {c}y) ())")

    @pytest.mark.parametrize(
        ("form", "problem"),
        [
            ("(defclass Bad- () ())", "identifiers"),
            ("(defclass integer () ())", "part of the language"),
            ("(defclass tdl_test.Bad (no.Such) ())", "no class no.Such"),
            ("(defclass tdl_test.Bad () ((x :type frob[)))", "is left over"),
            ("(defclass tdl_test.Bad () ((x :frob 1)))", "expected one of :type"),
            ("(defclass tdl_test.Bad () ((x :type int :initform 'a)))", "default does not fit"),
            ("(defclass tdl_test.Bad () ((x :initarg y)))", "expected a keyword"),
            ("(defclass tdl_test.Bad () ((x :type int :type str)))", ":type of slot x is given tw"),
            ("(defclass tdl_test.Bad () ((x :type symbol)))", "use str"),
            ("(defclass tdl_test.Bad () () (:metaclass c))", "TDL has no :metaclass"),
            ("(defclass tdl_test.Bad () () (:frob))", "expected one of"),
            ("(defclass tdl_test.Bad () () (:operations (x)))", r"expected \(operation"),
            ("(defclass tdl_test.Bad () ((a) (a)))", "two members of one name"),
        ],
    )
    def test_a_class_that_cannot_be_is_refused_with_its_place(self, tdl, form, problem):
        with pytest.raises(TdlError, match=problem) as caught:
            tdl.run(f"\n{form}")
        assert caught.value.line == 2
        assert infobus.objects.find_type("tdl_test.Bad") is None


class TestRedefinition:
    """Objects and subclasses follow when their class is defined anew."""

    def test_objects_get_new_slots_and_lose_dropped_ones(self, tdl):
        name = fresh("Tank")
        tdl.run(f'(defclass {name} () ((level :type int) (note :type str :initform "n")))')
        old = tdl.run(f"(setf tank (make-instance '{name} :level 3))")
        tdl.run(f"(defclass {name} () ((level :type int) (tags :type (list-of str) :initform nil)"
                " (owner)))")  # fmt: skip
        before = infobus.type_of(old)
        assert before.attributes.names == ("level", "note")  # whole, until the program uses it
        assert codec.decode(*codec.encode(old)).note == "n"
        seen = tdl.run("(list (slot-value tank 'level) (slot-value tank 'tags) (slot-names tank)"
                       " (slot-boundp tank 'owner) (slot-exists-p tank 'note))")  # fmt: skip
        assert seen == [3, None, ["level", "tags", "owner"], None, None]
        assert isinstance(old, tdl.classes[name])
        assert infobus.type_of(old).attributes.names == ("level", "tags", "owner")
        tdl.run('(setf (slot-value tank \'owner) "me")')
        assert codec.decode(*codec.encode(old)) == old
        assert repr(old) == f"{name}(level=3, tags=[], owner='me')"

    def test_a_value_that_does_not_fit_the_new_type_leaves_the_slot_unbound(self, tdl):
        name = fresh("Tank")
        tdl.run(f"(defclass {name} () ((level :type str)))")
        old = tdl.run(f'(setf tank (make-instance \'{name} :level "high"))')
        tdl.run(f"(defclass {name} () ((level :type int :initform 7)))")
        assert tdl.run("(slot-boundp tank 'level)") is None
        with pytest.raises(TdlError, match=r"the slot level of .* is unbound"):
            tdl.run("(slot-value tank 'level)")
        with pytest.raises(BadValue, match=r"\.level: expected int, got no value"):
            codec.encode(old)
        assert repr(old) == f"{name}()"

    def test_subclasses_and_their_objects_follow(self, tdl):
        a, b, c = fresh("A"), fresh("B"), fresh("C")
        tdl.run(f"(defclass {a} () ()) (defclass {b} ({a}) ((y :initform 2)))")
        tdl.run(f"(defclass {c} ({b}) ((z :initform 3)))")
        old = tdl.run(f"(setf o (make-instance '{c}))")
        tdl.run(f"(defclass {a} () ((x :type int :initform 1)))")
        assert tdl.run(f"(slot-names '{c})") == ["x", "y", "z"]
        assert tdl.run("(list (slot-value o 'x) (slot-value o 'y) (slot-value o 'z))") == [1, 2, 3]
        assert isinstance(old, tdl.classes[a])
        assert infobus.type_of(old).is_subtype_of(a)

    def test_new_superclasses_count_for_methods(self, tdl):
        a, b = fresh("A"), fresh("B")
        tdl.run(f"""(defclass {a} () ((x :initform 1))) (defclass {b} () ())
        (defvar o (make-instance '{b})) (defmethod f (o) 'any) (defmethod f ((o {a})) 'a)""")
        assert tdl.run("(f o)") == "any"
        tdl.run(f"(defclass {b} ({a}) ())")
        assert tdl.run(f"(list (f o) (typep o '{a}) (slot-value o 'x))") == ["a", True, 1]

    def test_a_class_that_would_contradict_a_subclass_changes_nothing(self, tdl):
        a, b = fresh("A"), fresh("B")
        tdl.run(f"(defclass {a} () ((x :initform 1))) (defclass {b} ({a}) ((y :type int)))")
        tdl.run(f"(defvar o (make-instance '{b} :y 5))")
        with pytest.raises(TdlError, match="declared as int, but inherited from"):
            tdl.run(f"(defclass {a} () ((y :type str)))")
        assert tdl.run(f"(list (slot-names '{a}) (slot-names '{b}))") == [["x"], ["x", "y"]]
        assert infobus.objects.find_type(a).attributes.names == ("x",)
        with pytest.raises(TdlError, match="its own supertype"):
            tdl.run(f"(defclass {a} ({b}) ())")

    def test_a_shared_slot_keeps_its_value(self, tdl):
        name = fresh("Tank")
        tdl.run(f"(defclass {name} () ((n :allocation :class :initform 1)))")
        tdl.run(f"(defvar o (make-instance '{name} :n 5))")
        tdl.run(f"(defclass {name} () ((n :allocation :class :initform 2) (m :initform 3)))")
        assert tdl.run("(list (slot-value o 'n) (slot-value o 'm))") == [5, 3]

    def test_what_arrives_under_the_old_type_is_brought_up_to_date_too(self, tdl):
        name = fresh("Tank")
        tdl.run(f'(defclass {name} () ((a :type int) (b :type str :initform "b")))')
        sent = codec.encode(tdl.classes[name](a=1))
        tdl.run(f"(defclass {name} () ((a :type int) (c :type int :initform 3)))")
        received = codec.decode(*sent[:2])
        assert tdl.call("slot-value", received, "c") == 3
        assert (received.a, received.c) == (1, 3)

    def test_methods_go_on_travelling(self, tdl):
        name, base = fresh("Item"), fresh("Base")
        tdl.run(f"(defclass {base} () ()) (defclass {name} ({base}) () (:operations (f () int)) "
                f"(:travels t)) (defmethod f ((o {name})) 1)")  # fmt: skip
        tdl.run(f"(defclass {base} () ((x :type int :initform 1)))")
        assert "defmethod f" in infobus.type_of(tdl.classes[name]).code.source
        assert tdl.classes[name]().f() == 1


class TestSlots:
    def test_values_are_translated_by_the_slots_type(self, tdl):
        made = tdl.run("""
        (let ((h (make-hash-table)))
          (setf (gethash "a" h) 1 (gethash "b" h) 2)
          (make-instance 'tdl_test.Machine
            :serial "s" :hours 1 :tags '("x" "y") :limits h :is-on t))
        """)
        assert made == Machine(
            serial="s", hours=1.0, tags=["x", "y"], limits={"a": 1, "b": 2}, is_on=True
        )
        emptied = tdl.run("""
        (setf m (make-instance 'tdl_test.Machine :serial "s" :tags '("x")))
        (setf (slot-value m 'tags) nil (slot-value m 'limits) nil
              (slot-value m 'is-on) nil (slot-value m 'note) nil) m""")
        assert emptied == Machine(serial="s")

    def test_python_objects_are_read_and_changed_in_place(self, tdl):
        oven = Oven(serial="o", tags=["a", "b"], limits={"max": 5}, is_on=False)
        tdl.run("""
        (defun look (o) (list (slot-value o 'tags) (gethash "max" (slot-value o 'limits))
                              (slot-value o 'is_on) (type-of o) (typep o 'tdl_test.Machine)))
        (defun change (o) (setf (slot-value o 'celsius) 99) (push "c" (slot-value o 'tags)) o)""")
        assert tdl.call("look", oven) == [["a", "b"], 5, None, "tdl_test.Oven", True]
        assert tdl.call("change", oven) is oven
        assert (oven.celsius, oven.tags) == (99.0, ["c", "a", "b"])

    def test_a_value_of_another_type_is_refused(self, tdl):
        with pytest.raises(TdlError, match=r"tdl_test\.Oven\.celsius: expected float, got str"):
            tdl.run('(make-instance \'tdl_test.Oven :serial "o" :celsius "hot")')
        with pytest.raises(TdlError, match="has no attribute 'celcius'; did you mean 'celsius'"):
            tdl.run('(make-instance \'tdl_test.Oven :serial "o" :celcius 1)')
        with pytest.raises(TdlError, match="expected str, got no value"):
            tdl.run("(make-instance 'tdl_test.Oven)")

    def test_an_object_with_an_unbound_slot_does_not_leave_the_program(self):
        published = []
        able = Interpreter(
            capabilities=Capabilities(
                publish=lambda subject, data: published.append(data),
                call=lambda *called: published.append(called),
                operate=operate,
            )
        )
        able.run("(defvar o (make-instance 'tdl_test.Oven))")
        for use in (
            "o",
            "(list o)",
            '(publish "a.b" o)',
            '(call "a.b" \'f :x o)',
            "(operate o 'heat 5)",
        ):
            with pytest.raises(TdlError, match=r"Oven\.serial: expected str, got no value"):
                able.run(use)
        assert "celsius" in able.show("o")
        able.run('(setf (slot-value o \'serial) "s") (publish "a.b" o)')
        assert published == [Oven(serial="s")]

    def test_a_hash_table_in_a_slot_is_the_map_of_the_object(self, tdl):
        oven = Oven(serial="o", limits={"max": 5})
        tdl.run("""
        (defun grow (o) (incf (gethash "max" (slot-value o 'limits)))
          (setf (gethash "min" (slot-value o 'limits)) 1))""")
        tdl.call("grow", oven)
        assert oven.limits == {"max": 6, "min": 1}
        made = tdl.run("""
        (defvar h (make-hash-table)) (setf (gethash "a" h) 1)
        (defvar m (make-instance 'tdl_test.Machine :serial "s" :limits h))
        (setf (gethash "b" h) 2) m""")
        assert made.limits == {"a": 1, "b": 2}
        assert codec.decode(*codec.encode(made)) == made
        assert tdl.run("h") == made.limits

    def test_a_map_of_the_caller_is_not_the_programs(self, tdl):
        given = {"a": 1}
        tdl.run('(defun change (h) (setf (gethash "a" h) 2) h)')
        assert tdl.call("change", given) == {"a": 2}
        assert given == {"a": 1}

    def test_no_code_of_python_runs_when_an_object_is_made_or_changed(self, tdl):
        class Guarded(DataObject, name=fresh("Guarded")):
            x: int = 0

            def __init__(self, **values):
                raise AssertionError("Python was reached")

            def __setattr__(self, name, value):
                raise AssertionError("Python was reached")

        made = tdl.run(
            f"(setf g (make-instance '{Guarded.__bus_type__.name} :x 1)) (incf (slot-value g 'x)) g"
        )
        assert made.__dict__ == {"x": 2}

    def test_nothing_of_python_is_a_slot(self, tdl):
        for name in ("__class__", "__dict__", "__bus_type__", "heat", "__bus_tag__", "__init__"):
            with pytest.raises(TdlError, match="has no slot"):
                tdl.call("slot-value", Oven(serial="o"), name)
            with pytest.raises(TdlError, match="has no slot"):
                tdl.call("slot-boundp", Oven(serial="o"), name)
            with pytest.raises(TdlError, match="has no attribute"):
                tdl.run(f"(make-instance 'tdl_test.Oven :{name} 1)")
            with pytest.raises(TdlError, match="has no"):
                tdl.run(f"(with-slots ({name}) (make-instance 'tdl_test.Oven) (setf {name} 1))")
            assert tdl.call("slot-exists-p", Oven(serial="o"), name) is None
        with pytest.raises(TdlError):
            tdl.run("(setf (slot-value (make-instance 'tdl_test.Oven :serial \"o\") '_tag) 1)")

    def test_accessors_read_and_change(self, tdl):
        name = fresh("Tank")
        tdl.run(f"""
        (defclass {name} () ((level :type int :initform 1 :accessor level)
                             (name :type str :initform "t" :reader name-of :writer rename)))
        (setf tank (make-instance '{name}))
        (incf (level tank) 4) (rename "u" tank)""")
        assert tdl.run("(list (level tank) (name-of tank))") == [5, "u"]

    def test_unknown_attributes_of_received_objects_are_slots(self, tdl):
        fingerprint, body = codec.encode(Machine(serial="s"))[:2]
        unknown = codec.decode(fingerprint ^ 1, body)
        assert tdl.call("slot-value", unknown, "serial") == "s"


class TestMethods:
    def test_methods_are_chosen_by_all_arguments(self, tdl):
        tdl.run("""
        (defgeneric meet (a b))
        (defmethod meet (a b) 'any)
        (defmethod meet ((a tdl_test.Machine) (b integer)) 'machine-integer)
        (defmethod meet ((a tdl_test.Oven) (b number)) 'oven-number)
        (defmethod meet ((a string) b) 'string-any)
        (defmethod meet (a (b (eql 7))) 'seven)""")
        oven, machine = Oven(serial="o"), Machine(serial="m")
        met = [tdl.call("meet", *pair) for pair in [(oven, 1), (oven, 1.5), (machine, 1)]]
        assert met == ["oven-number", "oven-number", "machine-integer"]
        rest = [tdl.call("meet", *pair) for pair in [(machine, 1.5), ("s", 7), ("s", 1), (None, 7)]]
        assert rest == ["any", "string-any", "string-any", "seven"]

    def test_symbols_and_keywords_are_told_apart(self, tdl):
        tdl.run("(defmethod kind ((x symbol)) 'symbol) (defmethod kind ((x keyword)) 'keyword)")
        kinds = tdl.run("(list (kind 'x) (kind :x) (kind 'y) (kind nil))")
        assert kinds == ["symbol", "keyword", "symbol", "symbol"]

    def test_the_standard_method_combination(self, tdl):
        setup = """
        (defun note (x) (push x trace))
        (defmethod act ((o tdl_test.Machine)) (note 'machine) 1)
        (defmethod act ((o tdl_test.Oven)) (note 'oven) (+ 10 (call-next-method)))
        (defmethod act :before ((o tdl_test.Machine)) (note 'before-machine))
        (defmethod act :before ((o tdl_test.Oven)) (note 'before-oven))
        (defmethod act :after ((o tdl_test.Machine)) (note 'after-machine))
        (defmethod act :after ((o tdl_test.Oven)) (note 'after-oven))
        (defmethod act :around ((o tdl_test.Oven)) (note 'around) (* 2 (call-next-method)))
        (setf oven (make-instance 'tdl_test.Oven :serial "o"))"""
        trace = trace_of(tdl, setup, "(setf result (act oven))")
        assert trace == [
            *("around", "before-oven", "before-machine", "oven", "machine"),
            *("after-machine", "after-oven"),
        ]
        assert tdl.run("result") == 22

    def test_call_next_method_can_change_the_arguments(self, tdl):
        tdl.run("""
        (defmethod grow ((n number) by) (+ n by))
        (defmethod grow ((n integer) by)
          (list (next-method-p) (call-next-method) (call-next-method n 100)))""")
        assert tdl.run("(grow 1 2)") == [True, 3, 101]
        with pytest.raises(TdlError, match="no next method"):
            tdl.run("(defmethod alone (x) (call-next-method)) (alone 1)")

    def test_a_method_of_the_same_classes_replaces_the_one_before(self, tdl):
        tdl.run("(defmethod f ((x integer)) 1) (f 1) (defmethod f ((x integer)) 2)")
        assert tdl.run("(f 1)") == 2
        tdl.run("(defmethod f ((x (eql 1))) 3) (defmethod f ((x (eql 1))) 4)")
        assert tdl.run("(list (f 1) (f 2))") == [4, 2]

    def test_what_no_method_applies_to_is_an_error(self, tdl):
        tdl.run("(defmethod f ((x integer) (y string)) 1)")
        with pytest.raises(TdlError, match=r"no method of f applies to \(string, null\)"):
            tdl.run('(f "a" nil)')
        with pytest.raises(TdlError, match="take 2 required arguments, not 1"):
            tdl.run("(defmethod f (x) 1)")
        with pytest.raises(TdlError, match=r"no class no\.Such"):
            tdl.run("(defmethod f ((x no.Such) y) 1)")

    def test_methods_take_optional_and_keyword_arguments(self, tdl):
        tdl.run("(defmethod f ((x integer) &optional (y 2) &key (z 3)) (list x y z))")
        assert tdl.run("(list (f 1) (f 1 5 :z 6))") == [[1, 2, 3], [1, 5, 6]]

    def test_an_object_can_be_completed_when_it_is_made(self, tdl):
        name = fresh("Box")
        tdl.run(f"""
        (defclass {name} () ((a :type int) (area :type int :initform 0)))
        (defmethod initialize-instance :after ((o {name}) &key a)
          (setf (slot-value o 'area) (* a a)))""")
        assert tdl.run(f"(slot-value (make-instance '{name} :a 3) 'area)") == 9

    def test_setf_functions_can_be_written(self, tdl):
        tdl.run("""
        (defmethod fahrenheit ((o tdl_test.Oven)) (+ 32 (* 1.8 (slot-value o 'celsius))))
        (defmethod (setf fahrenheit) (f (o tdl_test.Oven))
          (setf (slot-value o 'celsius) (/ (- f 32) 1.8)))""")
        oven = Oven(serial="o")
        tdl.run("(defun to-212 (o) (setf (fahrenheit o) 212))")
        tdl.call("to-212", oven)
        assert round(oven.celsius, 6) == 100


class TestOperations:
    def test_python_calls_operations_that_tdl_implements(self, tdl):
        name = fresh("Counter")
        tdl.run(f"""
        (defclass {name} () ((count :type int :initform 0))
          (:operations (add-some ((by int 1) (tags (list-of str) nil)) int "Adds.")
                       (is-empty () bool) (forget () None)))
        (defmethod add-some ((c {name}) by tags)
          (incf (slot-value c 'count) (+ by (length tags))))
        (defmethod is-empty ((c {name})) (= 0 (slot-value c 'count)))
        (defmethod forget ((c {name})) (setf (slot-value c 'count) 0))""")
        counter = tdl.classes[name]()
        assert (counter.is_empty(), counter.add_some(), counter.add_some(2)) == (True, 1, 3)
        assert counter.add_some(by=1, tags=["a", "b"]) == 6
        assert counter.is_empty() is False
        assert counter.forget() is None
        assert counter.add_some.__doc__ == "Adds."
        for wrong in ({"by": "x"}, {"frob": 1}):
            with pytest.raises(BadValue):
                counter.add_some(**wrong)
        with pytest.raises(BadValue, match="does not take 3 arguments"):
            counter.add_some(1, [], 3)

    def test_a_result_of_another_kind_is_an_error(self, tdl):
        name = fresh("Liar")
        tdl.run(f"""(defclass {name} () () (:operations (tell () int)))
                    (defmethod tell ((l {name})) "three")""")
        with pytest.raises(TdlError, match=r"result does not fit: .*expected int, got str"):
            tdl.classes[name]().tell()

    def test_an_operation_without_a_method_says_so(self, tdl):
        name = fresh("Empty")
        tdl.run(f"(defclass {name} () () (:operations (act () int)))")
        with pytest.raises(TdlError, match="there is no function act") as caught:
            tdl.classes[name]().act()
        assert str(caught.value).startswith(f"{name}.act: nobody has written a method")

    def test_parameters_may_have_any_name(self, tdl):
        name = fresh("Names")
        tdl.run(f"""
        (defclass {name} ()  ()
          (:operations (f ((operation int) (obj int) (self int) (given int) (named int)) int)))
        (defmethod f ((o {name}) operation obj self given named)
          (+ operation obj self given named))""")
        named = {"operation": 1, "obj": 2, "self": 3, "given": 4, "named": 5}
        assert tdl.classes[name]().f(**named) == 15 == tdl.classes[name]().f(*named.values())

    def test_tdl_calls_operations_that_python_implements_if_it_may(self, tdl):
        oven = Oven(serial="o")
        with pytest.raises(TdlError, match="does not let this program operate"):
            tdl.call("operate", oven, "heat", 5)
        able = Interpreter(capabilities=Capabilities(operate=operate))
        able.run("(defun warm (o) (list (operate o 'heat 5) (operate o 'heat :by 1.5)))")
        assert able.call("warm", oven) == [25.0, 26.5]
        for name in ("__class__", "_no_such", "serial", "secret"):
            with pytest.raises(TdlError, match="has no operation"):
                able.call("operate", oven, name)
        with pytest.raises(TdlError, match="operate: TypeError"):
            able.call("operate", oven, "heat")


class TestConditions:
    def test_own_conditions_are_handled_by_type(self, tdl):
        hot, burning = fresh("Hot"), fresh("Burning")
        tdl.run(f"""
        (define-condition {hot} (error) ((celsius :type float)))
        (define-condition {burning} ({hot}) ())
        (defun check (c)
          (handler-case
              (cond ((> c 500) (error '{burning} :celsius c))
                    ((> c 100) (error (make-instance '{hot} :celsius c :message "warm")))
                    (t 'fine))
            ({burning} (e) (list 'burning (slot-value e 'celsius)))
            ({hot} (e) (list 'hot (slot-value e 'message)))))""")
        assert [tdl.call("check", c) for c in (20, 200, 900)] == [
            "fine",
            ["hot", "warm"],
            ["burning", 900.0],
        ]

    def test_an_unhandled_condition_reaches_python_as_an_object(self, tdl):
        hot = fresh("Hot")
        with pytest.raises(TdlError, match=rf"{hot}$") as caught:
            tdl.run(f"""(define-condition {hot} (error) ((celsius :type float)))
                        (error '{hot} :celsius 3)""")
        assert caught.value.condition.celsius == 3.0
        assert caught.value.condition.__bus_type__.is_subtype_of("tdl.Error")

    def test_a_handler_that_does_not_fit_lets_it_pass(self, tdl):
        with pytest.raises(TdlError, match="division"):
            tdl.run("(handler-case (/ 1 0) (type-error () 'no))")


def test_names_are_for_completion(tdl):
    tdl.run("(defun frobnicate (x) x) (defvar *frob* 1)")
    names = tdl.names()
    assert {"frobnicate", "*frob*", "defclass", "car", "tdl_test.Oven", "error"} <= set(names)
    assert names == sorted(names)
    assert not any(name.startswith("(") for name in names)


def test_a_function_of_the_program_can_be_kept_and_applied(tdl):
    function = tdl.run("(lambda (x) (* x 2))")
    assert tdl.apply(function, [21]) == 42
