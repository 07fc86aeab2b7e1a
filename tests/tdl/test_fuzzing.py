"""Any text gives a value or a `TdlError`, within the limits; never anything else."""

import itertools
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from infobus.errors import TdlError
from infobus.tdl import Capabilities, Interpreter, ProgramLimits
from infobus.tdl.compiler import BUILTINS, SPECIAL

LIMITS = ProgramLimits(
    fuel=5_000, memory_bytes=512 * 1024, depth=300, definitions_count=100, classes=("tdl_fuzz.>",)
)
ATOMS = """
nil t 0 1 -1 7 2.5 1e308 -1e999 123456789012345678901234567890 "" "abc" "~a ~d" "a b c" :k x y z
'a '(1 2 3) '((a 1) (b 2)) '("a" "b") 'string 'list 'slot 'any 'tdl_fuzz.A h o #'car #'+ #'< #'list
(lambda (x) x) (lambda (x y) (< x y)) (make-instance 'tdl_fuzz.A) (cons 1 2) (- 1e999 1e999)
""".strip()
# What begins with a quote or a parenthesis goes on to its end.
ATOM = re.compile(r"""'?\((?:[^()]|\([^()]*\))*\)|"[^"]*"|\S+""")
TEMPLATES = """
(if @ @ @)
(cond (@ @) (@) (t @))
(case @ ((1 2) @) (a @) (otherwise @))
(let ((x @) (y @)) @ @)
(let* ((x @) (y x)) @)
(setq x @)
(setf (slot-value o @) @)
(incf (gethash @ h 0) @)
(push @ z)
(pop z)
(push @ (slot-value o 'any))
(funcall (lambda (a &optional (b @ bp) &rest r &key (k @) &allow-other-keys) @ (list a b bp r k)) @)
((lambda (x) @) @)
(dolist (x @ @) @)
(dotimes (x @) @)
(loop (when @ (return @)) @)
(loop for x in @ for y from 1 to @ by @ collect @)
(loop for x on @ while @ do @ finally (return @))
(loop for x = @ then @ until @ append @)
(loop for x across @ when @ collect @ and do @ else count @ end)
(loop with q = @ for i downfrom @ to @ maximize @)
(block b @ (return-from b @))
(handler-case @ (type-error (e) @ e) (error () @))
(ignore-errors @)
(defun f (x) @)
(f @)
(defvar v @)
(defmethod gen ((a tdl_fuzz.A) (b integer)) @ (if (next-method-p) (call-next-method) @))
(defmethod gen :around (a b) (call-next-method @ @))
(defmethod gen :after (a (b (eql @))) @)
(gen @ @)
(defclass tdl_fuzz.B (tdl_fuzz.A) ((extra :type (list-of int) :initform @ :accessor extra)))
(setf (extra (make-instance 'tdl_fuzz.B)) @)
(define-condition tdl_fuzz.E (error) ((data :initform nil)))
(error 'tdl_fuzz.E :data @ :message @)
(make-instance 'tdl_fuzz.A :slot @ :any @)
(setf (slot-value o 'any) o)
(setq x (list x x x x))
(call "a" 'op @ :k @)
(with-slots (slot (a any)) o (setf slot @ a @) (push @ a) (list slot a))
(flet ((g (x) @) (h2 () @)) (g @) (mapcar #'g @))
(labels ((g (x) (if @ @ (g @)))) (g @))
(unwind-protect @ @ @)
(block b (unwind-protect (return-from b @) @))
(slot-boundp o @)
(setf (gethash @ (slot-value o 'any)) @)
(setf (slot-value o 'any) h)
(defgeneric gen2 (a &key k) (:method (a &key k) @) (:method ((a integer) &key k j) (call-next-method)))
(gen2 @ :k @ :j @ :allow-other-keys @)
(defclass tdl_fuzz.B (tdl_fuzz.A) ((n :allocation :class :initform @) (m :initarg :q)) (:default-initargs :q @))
(make-instance 'tdl_fuzz.B :q @ :n @ :slot @)
(defclass tdl_fuzz.A () ((slot :type any :initform @) (new :initform @)) (:operations (op ((a int 1)) int)))
(defmethod print-object ((o tdl_fuzz.A) s) (format s "~a" @) (princ @ s))
(defmethod initialize-instance :after ((o tdl_fuzz.A) &key z) (setf (slot-value o 'any) @))
(find @ @ :test #'equal :key #'car)
(sort @ #'< :key @)
(member @ @ :test @)
(reduce #'list @ :initial-value @ :key @)
(class-name (class-of @))
(make-instance (class-of @) :slot @)
(setf h (make-hash-table :test @))
""".strip().splitlines()  # noqa: E501
SETUP = """
(defclass tdl_fuzz.A () ((slot :type str :initform "s") (any :initform nil))
  (:operations (op ((a int 1)) int)))
(defvar x 1) (defvar y 2) (defvar z nil) (defvar h (make-hash-table))
(defvar o (make-instance 'tdl_fuzz.A)) (defun f (x) x) (defmethod gen (a b) a)
"""


def _filled(template, parts):
    left = iter(parts)
    return re.sub("@", lambda _: next(left), template)


def _calls(inner):
    templates = st.sampled_from(TEMPLATES).flatmap(
        lambda one: st.tuples(st.just(one), st.lists(inner, min_size=6, max_size=6)).map(
            lambda pair: _filled(*pair)
        )
    )
    functions = st.sampled_from([b for b in BUILTINS.values() if not b.name.startswith("(")])
    builtins = functions.flatmap(
        lambda one: st.lists(
            inner, min_size=one.least, max_size=one.least + 3 if one.most is None else one.most
        ).map(lambda parts: f"({one.name} {' '.join(parts)})")
    )
    return st.one_of(templates, builtins)


PROGRAMS = st.recursive(st.sampled_from(ATOM.findall(ATOMS)), _calls, max_leaves=25)
WORDS = [*"()'\" :", *SPECIAL, *BUILTINS, *"&key &rest x 1 nil in for do".split()]


_numbers = itertools.count()


def run(tdl, source, room=""):
    """Run a program, which may end with a `TdlError` and with nothing else."""
    try:
        tdl.run(source.replace("tdl_fuzz.", f"tdl_fuzz.{room}"))
    except TdlError as error:
        assert error.line >= 0
        assert error.report().startswith(str(error))


def interpreter(room):
    nothing = lambda *_: None  # noqa: E731
    everything = dict.fromkeys(("write", "publish", "subscribe", "serve", "call"), nothing)
    tdl = Interpreter(limits=LIMITS, capabilities=Capabilities(**everything))
    tdl.run(SETUP.replace("tdl_fuzz.", f"tdl_fuzz.{room}"))
    return tdl


@settings(max_examples=150, deadline=None)
@given(st.lists(PROGRAMS, min_size=1, max_size=3))
def test_well_formed_programs_end_well_or_with_a_tdl_error(programs):
    room = f"room{next(_numbers)}."  # for classes of its own, which it may define anew
    tdl = interpreter(room)
    for source in programs:
        run(tdl, source, room)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(WORDS), max_size=25).map(" ".join))
def test_heaps_of_words_end_well_or_with_a_tdl_error(source):
    run(Interpreter(limits=LIMITS), source)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=80))
def test_any_text_ends_well_or_with_a_tdl_error(source):
    run(Interpreter(limits=LIMITS), source)
