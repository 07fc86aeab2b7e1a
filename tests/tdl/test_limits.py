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
    ],
    "deeper": [
        "(defun f (x) (+ 1 (f x))) (f 1)",
        "(defun f (x) (ignore-errors (f x))) (f 1)",
        "(defun f () (mapcar (lambda (x) (f)) '(1))) (f)",
        "(defmethod g (x) (g x) 1) (g 1)",
        "(defmethod h :around (x) (h x)) (defmethod h (x) x) (h 1)",
        "(let ((f nil)) (setq f (lambda () (list (funcall f)))) (funcall f))",
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
