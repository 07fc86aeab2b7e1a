"""What programs mean: each line is a program and its value."""

import pytest

from infobus.errors import TdlError
from infobus.tdl import Capabilities, Interpreter
from tests.tdl.programs import shown

VALUES = r"""
(+ 1 2 3.5) => 6.5
(list (+) (*) (- 5) (- 10 1 2) (* 2 3) (1+ 4)) => (0 1 -5 7 6 5)
(list (/ 6 3) (/ 7 2) (/ 2)) => (2 3.5 0.5)
(list (floor 7 2) (floor -7 2) (ceiling 1.2) (round 2.6) (truncate -2.6)) => (3 -4 2 3 -2)
(list (mod -7 2) (rem -7 2) (expt 2 10) (expt 2 -1) (sqrt 16)) => (1 -1 1024 0.5 4.0)
(list (< 1 2 3) (< 1 3 2) (= 1 1.0) (/= 1 2 1) (>= 2 2)) => (t nil t nil t)
(list (max 1 3 2) (min 1 3 2) (abs -3) (evenp 2) (oddp 2) (zerop 0)) => (3 1 3 t nil t)
(if nil 1) => nil
(if 0 "zero is true" 2) => "zero is true"
(cond ((= 1 2) 'a) ((+ 1 2)) (t 'b)) => 3
(cond (nil 1)) => nil
(list (when t 1 2) (unless t 1) (unless nil 3)) => (2 nil 3)
(list (and) (and 1 2) (and 1 nil 2) (or) (or nil 3)) => (t 2 nil nil 3)
(case 'b (a 1) ((b c) 2) (otherwise 3)) => 2
(case 9 (a 1) (t 3)) => 3
(let ((x 1) (y)) (list x y)) => (1 nil)
(let ((x 1)) (let ((x 2) (y x)) (list x y))) => (2 1)
(let* ((x 1) (y (+ x 1))) (list x y)) => (1 2)
(let* ((x 1) (x (+ x 1))) x) => 2
(progn 1 2 3) => 3
(let ((x 1)) (prog1 x (setq x 2))) => 1
(let ((x 1) (y 2)) (setq x y y 5) (list x y)) => (2 5)
(progn (defvar *v* 1) (defvar *v* 2) (defparameter *p* 3) (list *v* *p*)) => (1 3)
((lambda (x) (* x x)) 4) => 16
(funcall (lambda (a &optional (b (+ a 1)) c) (list a b c)) 1) => (1 2 nil)
(funcall (lambda (a &optional (b 0 b-p)) (list b b-p)) 1 nil) => (nil t)
(funcall (lambda (&rest all) all) 1 2 3) => (1 2 3)
(funcall (lambda (&key (x 1) (y x y-p)) (list x y y-p)) :x 5) => (5 5 nil)
(funcall (lambda (a &rest r &key k) (list a r k)) 1 :k 2) => (1 (:k 2) 2)
(funcall (lambda (&key a &allow-other-keys) a) :b 1 :a 2) => 2
(funcall (lambda (&key a) a) :a 1 :a 2) => 1
(apply #'+ 1 '(2 3)) => 6
(progn (defun twice (f x) (funcall f (funcall f x))) (twice #'1+ 5)) => 7
(progn (defun f (x) "doc" (if (> x 3) (return-from f 'big)) 'small) (list (f 5) (f 1))) => (big small)
(let ((n 0)) (let ((inc (lambda () (incf n)))) (funcall inc) (funcall inc) n)) => 2
(mapcar #'funcall (mapcar (lambda (x) (lambda () x)) '(1 2))) => (1 2)
(list (car '(1 2)) (cdr '(1 2)) (car nil) (cdr nil) (cons 1 2)) => (1 (2) nil nil (1 . 2))
(list (first '(1 2 3)) (second '(1 2 3)) (third '(1 2)) (nth 1 '(a b)) (nthcdr 2 '(a b c)) (last '(1 2))) => (1 2 nil b (c) (2))
(list (length '(1 2)) (length "abc") (reverse '(1 2)) (reverse "ab") (append '(1) nil '(2 3))) => (2 3 (2 1) "ba" (1 2 3))
(list (subseq '(1 2 3) 1) (subseq "hello" 1 3) (elt "abc" 1) (list* 1 2 '(3))) => ((2 3) "el" "b" (1 2 3))
(list (mapcar #'+ '(1 2) '(10 20 30)) (remove-if #'evenp '(1 2 3)) (remove-if-not #'evenp '(1 2 3)) (remove 2 '(1 2))) => ((11 22) (1 3) (2) (1))
(list (find 2 '(1 2)) (find-if #'evenp '(1 3)) (position "b" '("a" "b")) (position-if #'oddp '(2 3)) (count 1 '(1 1 2))) => (2 nil 1 1 2)
(list (member 2 '(1 2 3)) (assoc 'b '((a 1) (b 2))) (getf '(:a 1 :b 2) :b) (getf nil :a 'no)) => ((2 3) (b 2) 2 no)
(list (every #'evenp '(2 4)) (some #'evenp '(1 3)) (reduce #'+ '(1 2 3)) (reduce #'+ nil) (reduce #'list '(1 2) 0)) => (t nil 6 0 ((0 1) 2))
(list (sort '(3 1 2) #'<) (sort '("b" "a") #'string<)) => ((1 2 3) ("a" "b"))
(sort '((1 a) (0 b) (1 c)) (lambda (x y) (< (car x) (car y)))) => ((0 b) (1 a) (1 c))
(list (equal '(1 (2 "x")) '(1 (2 "x"))) (eq 'a 'a) (eql 1 1.0) (equal "a" "a") (not nil) (null 1)) => (t t nil t t nil)
(list (concatenate 'string "a" "b") (concatenate 'list '(1) "x") (string-upcase "ab") (string-trim " a ")) => ("ab" (1 "x") "AB" "a")
(list (search "b" "abc") (search "x" "abc") (string= "a" 'a) (string< "a" "b") (string 'sym) (symbol-name :key)) => (1 nil t t "sym" "key")
(list (string-split "a b  c") (string-split "a,b" ",") (string-join '("a" "b") "-")) => (("a" "b" "c") ("a" "b") "a-b")
(list (parse-integer " -12 ") (parse-float "1.5") (princ-to-string '("a" b)) (prin1-to-string "a\"b")) => (-12 1.5 "(a b)" "\"a\\\"b\"")
(format nil "~a ~s ~d ~,2f ~f~%~~" "x" "x" 3 1.239 2) => "x \"x\" 3 1.24 2.0\n~"
(let ((h (make-hash-table))) (setf (gethash "a" h) 1 (gethash 'b h) 2) (incf (gethash "a" h 0) 5) (list (gethash "a" h) (gethash 'x h 'no) (hash-table-count h) (hash-table-keys h) (remhash "a" h) (remhash "a" h))) => (6 no 2 ("a" b) t nil)
(let ((h (make-hash-table)) (sum 0)) (setf (gethash 1 h) 10 (gethash 1.0 h) 20) (maphash (lambda (k v) (incf sum v)) h) sum) => 30
(let ((l nil)) (push 1 l) (push 2 l) (list (pop l) l)) => (2 (1))
(let ((n 0) (h (make-hash-table))) (incf (gethash (incf n) h 0)) (list n (hash-table-keys h))) => (1 (1))
(let ((sum 0)) (dolist (x '(1 2 3) sum) (incf sum x))) => 6
(dolist (x '(1 2 3)) (when (= x 2) (return 'found))) => found
(let ((l nil)) (dotimes (i 3 (list i l)) (push i l))) => (3 (2 1 0))
(let ((i 0)) (loop (incf i) (when (> i 4) (return i)))) => 5
(loop for x in '(1 2 3) collect (* x x)) => (1 4 9)
(loop for i from 1 to 5 by 2 sum i) => 9
(loop for i below 3 collect i) => (0 1 2)
(loop for i from 3 downto 1 collect i) => (3 2 1)
(loop for c across "abc" collect c) => ("a" "b" "c")
(loop for x on '(1 2) collect x) => ((1 2) (2))
(loop for x = 1 then (* 2 x) until (> x 20) collect x) => (1 2 4 8 16)
(loop for x in '(a b c) for i from 0 collect (list i x)) => ((0 a) (1 b) (2 c))
(loop repeat 3 count t) => 3
(loop with s = 0 for x in '(1 2 3) do (incf s x) finally (return s)) => 6
(loop for x in '(1 2 3 4) when (evenp x) collect x else append '(1)) => (1 2 1 4)
(loop for x in '(1 2 3 4) when (evenp x) do (when (= x 4) (return 'four)) and count t) => four
(loop for x in '(3 1 2) maximize x) => 3
(loop for x in '((1) (2 3)) append x) => (1 2 3)
(loop for x in '(5 6) unless (= x 5) return x) => 6
(loop while nil) => nil
(block b (mapcar (lambda (x) (return-from b x)) '(7 8))) => 7
(list (numberp 1) (stringp 1) (symbolp 'a) (listp nil) (consp nil) (integerp 1.0) (hash-table-p 1)) => (t nil t t nil nil nil)
(list (type-of 1) (type-of "a") (type-of nil) (type-of :k) (type-of '(1)) (type-of #'car)) => (integer string null keyword cons function)
(list (typep 1 'number) (typep 1 'string) (typep nil 'list) (typep 1 't)) => (t nil t t)
(handler-case (car 5) (type-error (e) 'type) (error (e) 'other)) => type
(handler-case (/ 1 0) (type-error () 'type) (arithmetic-error (e) (slot-value e 'message))) => "division by zero"
(handler-case (error "no ~a" 'bread) (error (e) (format nil "~a" e))) => "no bread"
(handler-case (undefined-thing) (unbound-error () 'unbound)) => unbound
(handler-case (+ 1 1) (error () 'never)) => 2
(ignore-errors (car 5)) => nil
"""  # noqa: E501
CASES = [line.split(" => ") for line in VALUES.strip().splitlines()]


@pytest.mark.parametrize(("source", "value"), CASES)
def test_a_program_has_its_value(source, value):
    assert shown(source) == value.replace("\\n", "\n")


FAILURES = r"""
(car 5) => 1:1: car: expected a list, got 5
(+ 1 "a") => 1:1: +: expected a number, got "a"
(foo) => 1:1: there is no function foo
foo => 1:1: the variable foo has no value
(car) => 1:1: car takes 1 argument, got 0
(car 1 2) => 1:1: car takes 1 argument, got 2
(list 1 (/ 2 0)) => 1:9: division by zero
(funcall (lambda (a) a)) => 1:1: lambda takes 1 argument, got 0
(funcall (lambda (&key a) a) :b 1) => 1:1: lambda does not know the keyword :b; it has :a
(if) => 1:1: expected (if test then else)
(let (x y z) . 1) => 1:14: '.' has no meaning here
(setf (car x) 1) => 1:7: car is not a place that can be changed
(return 1) => 1:1: there is no block nil around this
(call-next-method) => 1:1: call-next-method is for methods only
(lambda (&rest a &optional b) a) => 1:18: &optional cannot stand here
(defun car (x) x) => 1:1: car is part of the language
(loop for) => 1:1: the loop ends where a name is expected
(loop for x frob 3) => 1:1: expected in, on, across
(error "broken ~a" 1) => 1:1: broken 1
(error 5) => 1:1: error: expected a text or a condition, got 5
(format nil "~q" 1) => 1:1: format: '~q' is not one of
(format nil "~a") => 1:1: format: there is no value for ~a
(expt 0 -1) => 1:1: division by zero
(expt 10 400) => 1:1: expt: the integer needs more than 1024 bits
(sqrt -1) => 1:1: sqrt: a negative number
(elt '(1 2) 2) => 1:1: elt: 2 is no index
(subseq "abc" 2 1) => 1:1: subseq: 2 to 1 is not within 0 to 3
(make-instance 'no.Such) => 1:1: there is no class no.Such
(slot-value 5 'x) => 1:1: slot-value: expected an object, got 5
(print 1) => 1:1: the host does not let this program print
(publish "a" (make-hash-table)) => 1:1: the host does not let this program publish
(subscribe "a" #'list) => 1:1: the host does not let this program subscribe
(serve "a" 1) => 1:1: the host does not let this program serve
(call "a" 'b) => 1:1: the host does not let this program call
"""


@pytest.mark.parametrize(
    ("source", "message"), [line.split(" => ") for line in FAILURES.strip().splitlines()]
)
def test_a_program_that_fails_says_what_and_where(source, message):
    with pytest.raises(TdlError) as caught:
        shown(source)
    assert str(caught.value).startswith(message)


def test_an_error_shows_the_calls_that_led_to_it():
    program = "(defun inner (x)\n  (car x))\n(defun outer (x) (inner x))\n(outer 5)"
    with pytest.raises(TdlError) as caught:
        Interpreter().run(program, "oven.tdl")
    error = caught.value
    assert (error.line, error.column, error.origin) == (2, 3, "oven.tdl")
    assert error.report().splitlines() == [
        "oven.tdl:2:3: car: expected a list, got 5",
        "  in inner, called at oven.tdl:3:18",
        "  in outer, called at oven.tdl:4:1",
    ]
    assert error.condition.message == "car: expected a list, got 5"


def test_calls_that_were_left_are_not_in_the_stack():
    program = """
    (defun fails () (car 5))
    (defun leaves () (dolist (x '(1)) (mapcar (lambda (y) (return y)) '(1))))
    (defun tries () (ignore-errors (fails)) (leaves) (car 6))
    (tries)"""
    with pytest.raises(TdlError) as caught:
        Interpreter().run(program)
    assert [call.partition(",")[0] for call in caught.value.stack] == ["tries"]


def test_repeated_calls_are_told_once():
    with pytest.raises(TdlError) as caught:
        Interpreter().run("(defun f (n) (if (= n 0) (car 5) (1+ (f (- n 1))))) (f 10)")
    assert caught.value.report().splitlines()[1] == "  in f, called at 1:38 (10 times)"


def test_nothing_runs_unless_all_of_it_can_be_read():
    said = []
    tdl = Interpreter(capabilities=Capabilities(write=said.append))
    with pytest.raises(TdlError, match="expected \\(if"):
        tdl.run("(print 1) (if)")
    assert not said


def test_definitions_stay_for_the_next_program():
    tdl = Interpreter()
    tdl.run("(defvar *n* 1) (defun bump () (incf *n*))")
    assert (tdl.call("bump"), tdl.run("*n*")) == (2, 2)


def test_printing_goes_where_the_host_says():
    said = []
    tdl = Interpreter(capabilities=Capabilities(write=said.append))
    tdl.run('(print "a") (princ "b") (terpri) (format t "~a~%" 1)')
    assert "".join(said) == '"a"\nb\n1\n'


def test_a_block_cannot_be_left_after_it_has_ended():
    with pytest.raises(TdlError, match="had ended"):
        Interpreter().run("(funcall (block b (lambda () (return-from b 1))))")


def test_what_an_error_leaves_behind_does_not_confuse_the_next_call():
    tdl = Interpreter()
    tdl.run("(defun f (x) (if x (car 5) 'fine))")
    with pytest.raises(TdlError):
        tdl.call("f", True)
    assert tdl.call("f", False) == "fine"


def test_a_call_from_python_that_does_not_fit_has_no_place_in_the_text():
    tdl = Interpreter()
    tdl.run("(defun f (x) x)")
    with pytest.raises(TdlError, match=r"^the host: f takes 1 argument, got 0") as caught:
        tdl.call("f")
    assert caught.value.line == 0
    with pytest.raises(TdlError, match=r"^the host: there is no function g"):
        tdl.call("g")
