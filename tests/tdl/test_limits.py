"""Programs of strangers: whatever they try, they end with an error within their limits."""

import gc
import tracemalloc

import pytest

from infobus.errors import TdlError, TdlLimit
from infobus.tdl import Capabilities, Interpreter, ProgramLimits
from tests.tdl.programs import SMALL, fresh

ENDLESS = {
    "fuel": [
        "(loop)",
        "(loop for x = 1 then x do x)",
        "(let ((x 0)) (loop (incf x)))",
        "(dotimes (i 100000000) i)",
        "(loop repeat 1000000000)",
        "(loop (ignore-errors (car 5)))",
        "(handler-case (loop) (error () 'caught))",
        "(ignore-errors (loop))",
        "(let ((x 1)) (dotimes (i 60) (setq x (cons x x))) (length (princ-to-string x)))",
        "(let ((x 1) (y 1)) (dotimes (i 60) (setq x (cons x x) y (cons y y))) (equal x y))",
        "(defun f0 ()) "
        + "".join(f"(defun f{n} () (f{n - 1}) (f{n - 1})) " for n in range(1, 40))
        + "(f39)",
        "(let ((l (loop for i below 300 collect i))) (loop for x in l do (sort l #'<)))",
        "(unwind-protect (loop) (loop))",
        "(loop (unwind-protect (ignore-errors (car 5)) 1))",
        "(labels ((f (n) (if (> n 0) (progn (f (- n 1)) (f (- n 1)))))) (f 60))",
        "(defclass tdl_test.Echo () ()) (defmethod print-object ((o tdl_test.Echo) s) (princ o s) "
        "(princ o s)) (loop (ignore-errors (princ-to-string (make-instance 'tdl_test.Echo))))",
    ],
    "memory": [
        '(let ((s "ab")) (loop (setq s (concatenate \'string s s))))',
        "(let ((l '(1))) (loop (setq l (append l l))))",
        '(let ((s "ab")) (loop (setq s (format nil "~a~a" s s))))',
        '(let ((s "ab")) (loop (setq s (string-join (list s s) s))))',
        "(let ((x 1)) (dotimes (i 60) (setq x (list x x))) x)",
        "(let ((h (make-hash-table)) (i 0)) (loop (setf (gethash (incf i) h) h)))",
        "(let ((l nil)) (loop (push (lambda () l) l)))",
        '(let ((s "0123456789")) (dotimes (i 9) (setq s (concatenate \'string s s s s))))',
        # The copies of defaults count, and so does what goes into slots.
        "(defclass tdl_test.Wide () ((l :type (list-of (list-of any)) :initform (loop repeat 600 "
        "collect nil)))) (let ((l nil)) (loop (push (make-instance 'tdl_test.Wide) l)))",
        "(defclass tdl_test.Maps () ((a :type (map-of int) :initform nil) (b :initform nil))) "
        "(let ((l nil)) (loop (push (make-instance 'tdl_test.Maps) l)))",
        "(defclass tdl_test.Full () ((l))) (let ((l nil) (big (loop repeat 500 collect nil))) "
        "(loop (push (make-instance 'tdl_test.Full :l (list big big)) l)))",
        "(let ((l nil)) (loop (push (handler-case (car 5) (error (e) e)) l)))",
        "(defclass tdl_test.One () ()) (let ((l nil) (s nil)) (defmethod print-object ((o "
        "tdl_test.One) to) (setf s to)) (princ-to-string (make-instance 'tdl_test.One)) "
        '(loop (princ "0123456789012345678901234567890123456789" s)))',
    ],
    "deeper": [
        "(defun f (x) (+ 1 (f x))) (f 1)",
        "(defun f (x) (ignore-errors (f x))) (f 1)",
        "(defun f () (mapcar (lambda (x) (f)) '(1))) (f)",
        "(defmethod g (x) (g x) 1) (g 1)",
        "(defmethod h :around (x) (h x)) (defmethod h (x) x) (h 1)",
        "(let ((f nil)) (setq f (lambda () (list (funcall f)))) (funcall f))",
        "(defun f () (unwind-protect (f) (f))) (f)",
        "(labels ((f () (1+ (f)))) (f))",
        "(defclass tdl_test.Self () ((x)) (:default-initargs :x (make-instance 'tdl_test.Self))) "
        "(make-instance 'tdl_test.Self)",
    ],
}


@pytest.mark.parametrize(
    ("limit", "program"), [(limit, one) for limit, many in ENDLESS.items() for one in many]
)
def test_what_would_go_on_for_ever_is_stopped(limit, program):
    with pytest.raises(TdlLimit, match=limit) as caught:
        Interpreter(limits=SMALL).run(program)
    assert caught.value.line <= 1  # 0: the result, on its way to Python


def test_the_default_limits_stop_a_loop_and_a_growing_string():
    with pytest.raises(TdlLimit, match="1000000 steps"):
        Interpreter().run("(loop)")
    with pytest.raises(TdlLimit, match="67108864 bytes"):
        Interpreter().run(ENDLESS["memory"][0])


@pytest.mark.parametrize("program", ENDLESS["memory"])
def test_memory_is_counted_on_the_high_side(program):
    """What Python really allocates stays near what the program was given."""
    tdl = Interpreter(limits=SMALL)
    gc.collect()
    tracemalloc.start()
    try:
        with pytest.raises(TdlLimit):
            tdl.run(program)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * SMALL.memory_bytes


def test_limits_cannot_be_handled():
    with pytest.raises(TdlLimit):
        Interpreter(limits=SMALL).run("(handler-case (loop) (condition (c) 1) (t () 2))")


def test_every_run_has_fuel_of_its_own():
    tdl = Interpreter(limits=SMALL)
    tdl.run("(defun work () (dotimes (i 3000) i))")
    for _ in range(20):
        tdl.call("work")


def test_what_is_let_go_can_be_used_by_later_runs():
    tdl = Interpreter(limits=SMALL)
    tdl.run("(defvar kept nil) (defun work () (setq kept (loop for i below 3000 collect i)) nil)")
    for _ in range(50):
        tdl.call("work")


def test_what_is_kept_counts_for_later_runs():
    tdl = Interpreter(limits=SMALL)
    tdl.run("(defvar kept nil) (defun work () (push (loop for i below 1000 collect i) kept) nil)")
    with pytest.raises(TdlLimit, match="memory"):
        for _ in range(100):
            tdl.call("work")
    tdl.run("(setq kept nil)")
    tdl.run("(loop for i below 5 collect i)")


@pytest.mark.parametrize(
    "program",
    [
        "(defun f{n} () 1)",
        "(defvar v{n} 1)",
        "(setq w{n} 1)",
        "(defmethod m ((x (eql {n}))) 1)",
        "(defclass tdl_test.Many{n} () ())",
        '(subscribe "a.b{n}" #\'list)',
    ],
)
def test_definitions_are_limited_and_changing_one_is_not_another(program):
    limits = ProgramLimits(definitions_count=20)
    tdl = Interpreter(limits=limits, capabilities=Capabilities(subscribe=lambda *_: None))
    if "subscribe" not in program:
        for _ in range(100):
            tdl.run(program.format(n=0))
    with pytest.raises(TdlLimit, match="more than 20 definitions"):
        for n in range(100):
            tdl.run(program.format(n=n))


def test_a_long_text_is_not_even_read():
    with pytest.raises(TdlLimit, match="has 300000 characters; 65536 are allowed"):
        Interpreter().run("x" * 300_000)


def test_many_forms_side_by_side_are_no_trouble():
    many = " ".join(["t"] * 5000)
    tdl = Interpreter()
    assert tdl.run(f"(and {many})") is True
    assert tdl.run(f"(cond {' '.join(['(nil)'] * 5000)} (t 3))") == 3
    assert tdl.run(f"(+ {' '.join(['1'] * 5000)})") == 5000


def test_a_chain_of_clauses_is_refused_not_followed_for_ever():
    with pytest.raises(TdlError, match="nested too deep"):
        Interpreter().run(f"(loop for i below 3 {'when t ' * 5000} collect i)")


def test_deep_recursion_is_fine_within_the_limit():
    program = "(defun count-down (n) (if (= n 0) 0 (+ 1 (count-down (- n 1))))) (count-down 2000)"
    assert Interpreter().run(program) == 2000


def test_classes_can_be_confined_to_names():
    tdl = Interpreter(limits=ProgramLimits(classes=("tdl_test.guest.>",)))
    tdl.run(f"(defclass {fresh('guest.Fine')} () ())")
    with pytest.raises(TdlError, match="does not let this program define"):
        tdl.run("(defclass tdl_test.Story () ())")


def test_shared_parts_are_counted_as_often_as_they_would_be_sent():
    sent = []
    tdl = Interpreter(
        limits=SMALL, capabilities=Capabilities(publish=lambda subject, data: sent.append(data))
    )
    name = fresh("Pair")
    tdl.run(f"(defclass {name} () ((a :initform nil) (b :initform nil)))")
    double = f"""
    (let ((x (make-instance '{name})))
      (dotimes (i {{n}}) (setq x (make-instance '{name} :a x :b x)))
      (publish "a.b" x) nil)"""
    tdl.run(double.format(n=5))
    with pytest.raises(TdlLimit):
        tdl.run(double.format(n=40))
    with pytest.raises(TdlError, match="nested deeper"):
        tdl.run(f"(let ((x (make-instance '{name}))) (setf (slot-value x 'a) x) (publish \"a\" x))")
    assert len(sent) == 1


def test_nothing_is_cleaned_up_once_a_limit_is_reached():
    tdl = Interpreter(limits=SMALL)
    with pytest.raises(TdlLimit):
        tdl.run("(defvar n 0) (unwind-protect (loop) (setq n 1))")
    with pytest.raises(TdlLimit, match="memory"):
        tdl.run("(unwind-protect (let ((l nil)) (loop (push l l))) (setq n 1))")
    assert tdl.run("n") == 0


@pytest.mark.parametrize("part", ["nil", "(and t)", "(progn 1)", ":k"])
@pytest.mark.parametrize(
    "program",
    [
        "(loop (incf n) {parts})",
        "(loop do (incf n) {parts})",
        "(dotimes (i 100000) (incf n) {parts})",
        "(defun f () (incf n) {parts}) (loop (f))",
        "(let ((f (lambda () (incf n) {parts}))) (loop (funcall f)))",
        "(flet ((f () (incf n) {parts})) (loop (f)))",
        "(defmethod g (x) (incf n) {parts}) (loop (g 1))",
    ],
)
def test_a_long_row_of_forms_is_not_free(program, part):
    """Constants and the like cost no fuel one by one; whatever repeats them has to pay."""
    tdl = Interpreter(limits=ProgramLimits(fuel=10_000))
    with pytest.raises(TdlLimit, match="fuel"):
        tdl.run("(setq n 0)" + program.format(parts=f"{part} " * 3200))
    assert tdl.run("n") <= 50


def test_many_parameters_are_not_free():
    tdl = Interpreter(limits=ProgramLimits(fuel=10_000))
    names = " ".join(f"p{n}" for n in range(3200))
    with pytest.raises(TdlLimit, match="fuel"):
        tdl.run(f"(defvar n 0) (defun f (&key {names}) (incf n)) (loop (f))")
    assert tdl.run("n") <= 50


def test_integers_cannot_be_chosen_so_that_their_hashes_collide():
    tdl = Interpreter()
    tdl.run("""(defvar h (make-hash-table))
    (loop for i from -500 to 500 do (setf (gethash (* i (- (expt 2 61) 1)) h) i))""")
    hashes = [hash(key) for key in tdl.variables["h"].entries]
    assert len(set(hashes)) == len(hashes) == 1001
    assert tdl.run("(gethash (* 499 (- (expt 2 61) 1)) h)") == 499


def test_a_hint_costs_what_it_takes():
    name = fresh("Wide")
    slots = " ".join(f"({'x' * 100}{n} :initform nil)" for n in range(100))
    for use in (
        "(setf (slot-value o '{0}) 1)",
        "(slot-value o '{0})",
        "(make-instance '{1} :{0} 1)",
    ):
        tdl = Interpreter(limits=ProgramLimits(fuel=20_000))
        tdl.run(f"(defclass {name} () ({slots})) (defvar n 0) (defvar o (make-instance '{name}))")
        failing = use.format("x" * 100, name)
        with pytest.raises(TdlLimit, match="fuel"):
            tdl.run(f"(loop (incf n) (ignore-errors {failing}))")
        assert tdl.run("n") <= 10


def test_classes_count_as_memory_for_ever():
    tdl = Interpreter(limits=SMALL)
    name = fresh("Heavy")
    with pytest.raises(TdlLimit, match="memory"):
        for n in range(100):
            initform = f"(loop repeat {400 + n} collect nil)"
            tdl.run(f"(defclass {name} () ((a :initform {initform})))")


def test_an_error_has_a_message_of_bounded_length():
    tdl = Interpreter()
    slots = " ".join(f"slot-{'x' * 200}-{n}" for n in range(100))
    tdl.run(f"(defclass {fresh('Talkative')} () ({slots}))")
    [name] = tdl.classes
    with pytest.raises(TdlError) as caught:
        tdl.run(f"(slot-value (make-instance '{name}) 'other)")
    assert len(str(caught.value)) < 1_100
