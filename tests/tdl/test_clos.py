"""What CLOS says: TDL does the same, or refuses with a sentence. Each line is a program.

`C.` in a program stands for a prefix of its own, because types are known to the whole process.
"""

import itertools

import pytest

from infobus.errors import TdlError
from infobus.tdl import Interpreter

_numbers = itertools.count()


def shown(source):
    return Interpreter().show(source.replace("C.", f"tdl_clos{next(_numbers)}."))


def lines(text):
    return [line.split(" => ") for line in text.strip().splitlines() if line.strip()]


VALUES = r"""
(progn (defclass C.A () ((a :initform 1))) (defmethod initialize-instance :after ((o C.A) &key) (incf (slot-value o 'a) 3)) (slot-value (make-instance 'C.A :a 4) 'a)) => 7
(progn (defclass C.A () ((a :initform 1))) (defclass C.B (C.A) ()) (defvar l nil) (defmethod initialize-instance :after ((o C.A) &key x) (push x l)) (defmethod initialize-instance :after ((o C.B) &key y) (push y l)) (make-instance 'C.B :a 0 :x 1 :y 2) l) => (2 1)
(progn (defclass C.A () ((a :initform 1))) (slot-value (make-instance 'C.A :nope 1 :allow-other-keys t) 'a)) => 1
(progn (defmethod f (x &key a) a) (defmethod f ((x integer) &key b) (list b (call-next-method))) (list (f "s" :a 1) (f 1 :a 2 :b 3) (f 1 :c 4 :allow-other-keys t))) => (1 (3 2) (nil nil))
(progn (defmethod f (x &key a &allow-other-keys) a) (defmethod f ((x integer) &key b) b) (f 1 :z 1 :b 2)) => 2
(funcall (lambda (&key a) a) :b 2 :allow-other-keys t :a 1) => 1
(funcall (lambda (&key a) a) :allow-other-keys nil :a 1) => 1
(progn (defclass C.A () ((a))) (defmethod initialize-instance :around ((o C.A) &key a) (call-next-method o :a (* 2 a))) (slot-value (make-instance 'C.A :a 4) 'a)) => 8
(progn (defclass C.A () ((a) (b :initform 2))) (defmethod initialize-instance :before ((o C.A) &key) (setf (slot-value o 'b) 5)) (slot-value (make-instance 'C.A) 'b)) => 5
(progn (defclass C.A () ((a :initform 1))) (slot-value (make-instance 'C.A :a 2 :a 3) 'a)) => 2
(progn (defclass C.A () ((m :type (map-of int) :initform nil))) (setf o (make-instance 'C.A)) (setf (gethash "a" (slot-value o 'm)) 1) (incf (gethash "a" (slot-value o 'm))) (list (gethash "a" (slot-value o 'm)) (eq (slot-value o 'm) (slot-value o 'm)))) => (2 t)
(progn (defclass C.A () ((m) (n))) (setf h (make-hash-table) o (make-instance 'C.A :m h :n h)) (setf (gethash "k" h) '(1)) (list (gethash "k" (slot-value o 'm)) (gethash "k" (slot-value o 'n)) (eq h (slot-value o 'm)))) => ((1) (1) t)
(progn (defclass C.A () ((m))) (setf h (make-hash-table) i (make-hash-table) o (make-instance 'C.A :m h)) (setf (gethash "i" h) i (gethash "x" i) 7) (gethash "x" (gethash "i" (slot-value o 'm)))) => 7
(progn (defclass C.A () ((m :type (map-of str)))) (setf h (make-hash-table)) (make-instance 'C.A :m h) (setf (gethash "a" h) "b") (list (hash-table-keys h) (hash-table-count h) (remhash "a" h) (remhash "a" h) (gethash "a" h 'no))) => (("a") 1 t nil no)
(progn (defclass C.A () ((m))) (setf h (make-hash-table)) (make-instance 'C.A :m h) (setf (gethash "a" h) 1 (gethash "b" h) 2) (let ((l nil)) (maphash (lambda (k v) (push (list k v) l)) h) l)) => (("b" 2) ("a" 1))
(progn (defclass C.A () ((a :type int))) (setf o (make-instance 'C.A)) (list (slot-boundp o 'a) (setf (slot-value o 'a) 1) (slot-boundp o 'a) (slot-value o 'a))) => (nil 1 t 1)
(progn (defclass C.A () ((a))) (handler-case (slot-value (make-instance 'C.A) 'a) (unbound-error () 'unbound))) => unbound
(progn (defclass C.A () ((a) (b :initform 2))) (princ-to-string (make-instance 'C.A)) (slot-boundp (make-instance 'C.A) 'b)) => t
(progn (defclass C.A () ((balance :initform 5) (n :initform 1))) (let ((a (make-instance 'C.A)) (n 10)) (with-slots (balance (m n)) a (incf balance n) (setf m (+ m n)) (push 1 n)) (with-slots (balance n) a (list balance n)))) => (15 11)
(progn (defclass C.A () ((l :initform nil))) (let ((a (make-instance 'C.A))) (with-slots (l) a (push 1 l) (push 2 l) (setq l (cons 3 l)) (list (pop l) l (let ((l 0)) (incf l)) (funcall (lambda (l) l) 9))))) => (3 (2 1) 1 9)
(progn (defclass C.A () ((x :initform 1))) (let ((a (make-instance 'C.A)) (b (make-instance 'C.A :x 2))) (with-slots (x) a (with-slots ((y x)) b (setf x 10 y 20) (list x y (slot-value a 'x) (slot-value b 'x)))))) => (10 20 10 20)
(flet ((f (x) (* 2 x)) (g (&optional (y 1)) (+ y 1))) (list (f 4) (g) (mapcar #'f '(1 2)) (funcall #'g 5))) => (8 2 (2 4) 6)
(progn (defun f (x) (list 'global x)) (flet ((f (x) (f (list 'local x)))) (f 1))) => (global (local 1))
(labels ((even (n) (if (= n 0) t (odd (- n 1)))) (odd (n) (if (= n 0) nil (even (- n 1))))) (list (even 10) (odd 10))) => (t nil)
(labels ((f (n) (if (> n 3) (return-from f 'big)) n)) (list (f 1) (f 5))) => (1 big)
(let ((n 0)) (flet (((setf place) (v) (setq n v))) (setf (place) 5)) n) => 5
(let ((n 0)) (list (unwind-protect (+ 1 1) (incf n)) n)) => (2 1)
(let ((n 0)) (list (block b (unwind-protect (return-from b 'left) (incf n))) n)) => (left 1)
(let ((l nil)) (ignore-errors (unwind-protect (unwind-protect (car 5) (push 1 l)) (push 2 l))) l) => (2 1)
(let ((n 0)) (loop for i below 5 do (unwind-protect (when (= i 2) (return)) (incf n))) n) => 3
(handler-case (unwind-protect (error "first") (error "second")) (error (e) (slot-value e 'message))) => "second"
(progn (defclass C.A () ((x :initform 5))) (defmethod print-object ((o C.A) stream) (format stream "<~a>" (slot-value o 'x))) (list (make-instance 'C.A) (format nil "~a!" (list (make-instance 'C.A :x "a"))))) => (<5> "(<a>)!")
(progn (defclass C.A () ((x :initform "q"))) (defclass C.B (C.A) ()) (defmethod print-object ((o C.B) stream) (princ "B:" stream) (prin1 "s" stream) (call-next-method)) (equal (princ-to-string (make-instance 'C.A)) (subseq (princ-to-string (make-instance 'C.B)) 5))) => nil
(progn (defclass C.A () ((x :initarg :ex :initarg :ix) (y :initform 2)) (:default-initargs :ex (+ 1 2))) (mapcar (lambda (o) (slot-value o 'x)) (list (make-instance 'C.A) (make-instance 'C.A :ex 9) (make-instance 'C.A :ix 8) (make-instance 'C.A :x 7)))) => (3 9 8 7)
(progn (defvar n 0) (defclass C.A () ((x)) (:default-initargs :x (incf n))) (defclass C.B (C.A) () (:default-initargs :x 'never)) (defclass C.D (C.A) ()) (make-instance 'C.D) (make-instance 'C.A) (list n (slot-value (make-instance 'C.D) 'x) (slot-value (make-instance 'C.B :x 5) 'x))) => (2 3 5)
(progn (defclass C.A () ((a) (b) (c :initarg :a-too))) (defclass C.B (C.A) ((b :initarg :bb))) (setf o (make-instance 'C.B :a 1 :bb 2 :a-too 3)) (list (slot-value o 'a) (slot-value o 'b) (slot-value o 'c))) => (1 2 3)
(progn (defclass C.A () ((x :initarg :both) (y :initarg :both))) (setf o (make-instance 'C.A :both 4)) (list (slot-value o 'x) (slot-value o 'y))) => (4 4)
(progn (defclass C.A () ((n :allocation :class :initform 0 :accessor n-of) (y :initform 2))) (defclass C.B (C.A) ()) (setf a (make-instance 'C.A) b (make-instance 'C.B)) (incf (n-of a)) (incf (slot-value b 'n)) (list (n-of a) (n-of b) (slot-exists-p a 'n) (slot-boundp a 'n) (slot-names a))) => (2 2 t t (y n))
(progn (defclass C.A () ((n :allocation :class :initform :red))) (defclass C.B (C.A) ((n :allocation :class :initform :blue))) (list (slot-value (make-instance 'C.A) 'n) (slot-value (make-instance 'C.B) 'n) (slot-value (make-instance 'C.A :n :green) 'n) (slot-value (make-instance 'C.A) 'n))) => (:red :blue :green :green)
(progn (defclass C.A () ((n :allocation :class))) (slot-boundp (make-instance 'C.A) 'n)) => nil
(progn (defgeneric f (x) (:documentation "f") (:method-combination standard) (:method (x) 'any) (:method ((x integer)) (list 'int (call-next-method))) (:method :before ((x integer)) 1)) (list (f "a") (f 1))) => (any (int any))
(progn (defgeneric f (x) (:method (x) 1) (:method ((x string)) 2)) (defmethod f ((x integer)) 3) (defgeneric f (x) (:method (x) 4)) (list (f "a") (f 1))) => (4 3)
(progn (defgeneric f (x)) (defgeneric f (x y)) (defmethod f (x y) y) (f 1 2)) => 2
(list (class-of 5) (eq (class-of "a") (find-class 'string)) (class-name (class-of :k)) (find-class 'no.Such nil) (typep 1 (find-class 'number))) => (#<class integer> t keyword nil t)
(list (class-precedence-list (find-class 'integer)) (class-precedence-list 'null) (class-precedence-list 'list) (class-precedence-list 'keyword)) => ((integer number t) (null boolean symbol list t) (list t) (keyword symbol t))
(progn (defclass C.A () ((x :initform 1))) (setf o (make-instance (find-class 'C.A))) (list (eq (class-of o) (find-class 'C.A)) (slot-names (class-of o)) (eq (class-name (class-of o)) 'C.A))) => (t (x) t)
(list (member 2 '((1) (2) (3)) :key #'car) (member '(1) '((1))) (member '(1) '((1)) :test #'equal) (member 5 '(1 9) :test #'<)) => (((2) (3)) nil ((1)) (9))
(list (find 3 '((1 a) (3 b)) :key #'car) (find "B" '("a" "b") :test (lambda (x y) (string= (string-downcase x) y))) (position 2 '(1 2) :test 'eql) (count 1 '((1) (1)) :key 'car) (remove 1 '(1 2 3) :test #'<)) => ((3 b) "b" 1 2 (1))
(list (find-if #'oddp '((2) (3)) :key #'car) (position-if #'oddp '((2) (3)) :key #'car) (count-if #'oddp '((3)) :key #'car) (remove-if #'oddp '((2) (3)) :key #'car) (remove-if-not #'oddp '((2) (3)) :key #'car)) => ((3) 1 1 ((2)) ((3)))
(list (assoc '(1) '(((1) a)) :test #'equal) (assoc 2 '((1 a) (3 b)) :test #'<) (sort '((3 a) (1 b)) #'< :key #'car) (reduce #'+ '(1 2) :initial-value 10) (reduce #'+ '((1) (2)) :key #'car)) => (((1) a) (3 b) ((1 b) (3 a)) 13 3)
(let ((h (make-hash-table :test 'equal :size 10))) (setf (gethash "a" h) 1) (gethash "a" h)) => 1
(list (truncate (expt 10 30) 7) (ceiling (expt 10 30) 7) (floor (expt 10 30) 7) (round (expt 10 30) 7)) => (142857142857142857142857142857 142857142857142857142857142858 142857142857142857142857142857 142857142857142857142857142857)
(list (round 7 2) (round 5 2) (round -7 2) (round -5 2) (round 7 -2) (ceiling -7 2) (truncate -7 2) (truncate 7 -2) (truncate -7 -2) (floor 7.5) (round 2.5)) => (4 2 -4 -2 -4 -3 -3 -3 3 7 2)
(list (/= 1 2 3) (/= 1 2 1) (/= 1 1.0)) => (t nil nil)
(progn (defmethod (setf q) (v (o integer)) (return-from q (list v o))) (setf (q 3) 4)) => (4 3)
(progn (defclass C.A () ((x :initform 1))) (setf a (make-instance 'C.A) b (make-instance 'C.A)) (defmethod f ((o (eql a))) 'a) (defmethod f ((o (eql b))) 'b) (list (f a) (f b))) => (a b)
(list (case "b" ("a" 1) ("b" 2)) (case '(1) ((1) 1) (((1)) 2) (t 3)) (case :red (:blue 1) (:red 2))) => (2 3 2)
(let ((n 0)) (ignore-errors (no-such-function (incf n))) n) => 0
(progn (defun values (x) (list 'mine x)) (values 1)) => (mine 1)
(progn (defun f (x) x) (fmakunbound 'f) (defmethod f (x) (list x)) (f 1)) => (1)
(progn (defclass C.A () ((x :initform 1))) (defmethod f ((a C.A) &key) (call-next-method)) (defmethod f (a &key k) (list k)) (f (make-instance 'C.A) :k 5)) => (5)
(progn (defmethod f ((x symbol)) 'symbol) (defmethod f ((x list)) 'list) (defmethod f ((x null)) (list 'null (call-next-method))) (list (f nil) (class-name (class-of nil)))) => ((null symbol) null)
(progn (defclass C.A () ((x :type int :initform 1 :documentation "d"))) (defclass C.B (C.A) ((x :initarg :z))) (list (slot-value (make-instance 'C.B) 'x) (slot-value (make-instance 'C.B :z 5) 'x) (ignore-errors (make-instance 'C.B :z "s")))) => (1 5 nil)
(progn (defclass C.A () ((x :type float :initform 1))) (defclass C.B (C.A) ((x :initform 2))) (defclass C.D (C.A) ((x :reader dx))) (defclass C.E (C.D C.B) ((x :reader ex))) (list (dx (make-instance 'C.D)) (ex (make-instance 'C.E)))) => (1.0 2.0)
(progn (defclass C.A () ((x :initform 1))) (defclass C.B (C.A) ((x :type int))) (defclass C.A () ((x :initform 2))) (slot-value (make-instance 'C.B) 'x)) => 2
(progn (defclass C.A () ((n :allocation :class :type int :initform 1))) (defclass C.B (C.A) ((n :allocation :class :initform 2))) (list (slot-value (make-instance 'C.B) 'n) (ignore-errors (setf (slot-value (make-instance 'C.B) 'n) "s")) (slot-value (make-instance 'C.A) 'n))) => (2 nil 1)
(list (loop for x in nil sum x) (loop repeat 0 count t) (loop for x in nil maximize x) (loop for x in '(1 2) sum x count t)) => (0 0 nil 5)
(list (case nil ((nil) 1) (t 2)) (case t ((t) 1) (t 2)) (case 5 (otherwise 3))) => (1 1 3)
(defmethod f nil 1) (defgeneric g nil (:method nil 2)) (list (f) (g)) => (1 2)
"""  # noqa: E501


@pytest.mark.parametrize(("source", "value"), lines(VALUES))
def test_a_program_has_the_value_that_clos_gives_it(source, value):
    assert shown(source) == value


REFUSALS = r"""
(progn (defclass C.A () ((s))) (make-instance 'C.A :s :red)) => a slot cannot hold a symbol, because other programs read it; use "red"
(progn (defclass C.A () ((s :type str))) (make-instance 'C.A :s 'red)) => expected str, got the symbol red
(progn (defclass C.A () ((s :type (list-of str)))) (make-instance 'C.A :s '("a" b))) => .s[1]: expected str, got the symbol b
(defclass C.A () ((s :initform :red))) => the default does not fit: expected any, got the symbol :red
(progn (defclass C.A () ((m :initform nil))) (setf h (make-hash-table)) (setf (gethash 'a h) 1) (make-instance 'C.A :m h)) => a hash table in a slot has strings as keys, such as "a"; got a
(progn (defclass C.A () ((m :type (map-of int)))) (setf h (make-hash-table)) (make-instance 'C.A :m h) (setf (gethash "a" h) "x")) => ["a"]: expected int, got str 'x'
(progn (defclass C.A () ((m :type (map-of int)) (n))) (setf h (make-hash-table)) (make-instance 'C.A :m h :n h)) => cannot be in both; make a new one
(progn (defclass C.A () ((a :initform 1))) (defmethod initialize-instance :after ((o C.A) &key b) b) (make-instance 'C.A :c 4)) => has no attribute 'c'
(progn (defclass C.A () ((a :initform 1))) (defmethod initialize-instance :after ((o C.A)) 1)) => methods of initialize-instance all have &rest or &key
(progn (defmethod f (x &key a) a) (defmethod f ((x integer) &key b) b) (f 1 :c 3)) => f does not know the keyword :c; it has :a :b
(progn (defmethod f (x &key a) a) (defmethod f ((x integer) &key b) b) (f "s" :b 3)) => f does not know the keyword :b; it has :a
(progn (defmethod f (x &key a) a) (f 1 2 3)) => f expects keywords, each with a value
(progn (defmethod f (x &key a) a) (defmethod f ((x integer)) 1)) => methods of f all have &rest or &key, or none has
(progn (defmethod f (x &optional a) a) (defmethod f ((x integer)) 1)) => methods of f take 1 optional arguments, not 0
(progn (defgeneric f (x &key a b)) (defmethod f (x &key a) 1)) => methods of f must take the keyword :b
(progn (defmethod f (x y) 1) (defgeneric f (x))) => f has a method already, and methods of it take 1 required arguments, not 2
(defgeneric f (x y) (:argument-precedence-order y x)) => no other order is possible
(defgeneric f (x) (:method-combination +)) => methods are combined in the standard way only
(defgeneric f (x) (:nonsense 1)) => expected (:documentation "...") or (:method
(defgeneric f ((x integer))) => classes and defaults belong to its methods
(progn (defun f (x) x) (defmethod f (x) x)) => f is a function without methods; remove it first with (fmakunbound 'f)
(progn (defun f (x) x) (defgeneric f (x))) => f is a function without methods
(defun print-object (x y) 1) => print-object is part of the language; write methods for it
(progn (defmethod f ((x integer)) (call-next-method "a")) (defmethod f (x) x) (f 1)) => other methods of f apply to these arguments than to the original ones
(progn (defmethod f ((x integer)) (call-next-method)) (f 1)) => there is no next method
(progn (defclass C.A () ()) (defclass C.B (C.A C.A) ())) => is named twice here
(typep 1 'no.Such) => typep: there is no class no.Such
(make-instance 'integer) => make-instance: integer is built in and has no slots
(find-class 'no.Such) => there is no class no.Such
(defclass C.A () ((x :initform 1 :initform 2))) => the option :initform of slot x is given twice
(defclass C.A () () (:documentation "a") (:documentation "b")) => the option :documentation is given twice
(progn (defclass C.A () ((a :initarg :b) (b))) (make-instance 'C.A :b 1)) => :b sets the slot a of
(progn (defclass C.A () ((a))) (defclass C.B (C.A) ((a :allocation :class)))) => it cannot have :allocation :class
(defclass C.A () ((a :allocation :class :type int :initform "x"))) => .a: expected int, got str 'x'
(defclass C.A () ((__class__ :allocation :class :initform 1))) => cannot be a name
(progn (defclass C.A () ((a :allocation :class :type int))) (make-instance 'C.A :a "x")) => .a: expected int, got str 'x'
(define-condition C.E (error) () (:report "x")) => TDL has no :report
(progn (define-condition C.E (error) ((x :type int))) (error 'C.E)) => .x: expected int, got no value
(DEFUN foo () 1) => there is no operator DEFUN: case counts, so write defun
(CAR '(1)) => there is no function CAR: case counts, so write car
(loop when t) => the loop ends where a clause is expected
(loop for i below 3 if t) => the loop ends where a clause is expected
(* 1e308 10.0) => *: the result is too large for a float
(loop repeat 3 sum 1e308) => loop: the result is too large for a float
(find 1 '(1) :from-end t) => find does not know the keyword :from-end; it has :test :key
(find 1 '(1) :key) => find expects keywords, each with a value
(make-hash-table :test 'equalp) => the test is one of eq eql equal
(loop for x in '(1 2) collect x sum x) => sum makes a sum, and a clause before makes a list; a loop has one value
(loop for x in '(1 2) if (= x 1) count x else maximize x) => maximize makes an extreme, and a clause before makes a sum
(loop for x in '(1 2) while x for y = (* x 2) collect y) => for must stand before the clauses that do, test or gather something
(loop do (return) with y = 1) => with must stand before
(string-trim " " "a") => string-trim takes 1 argument
(case 1 (t 2) (1 3)) => the clause of t must be the last; to compare, write (t)
(case nil (nil 1) (t 2)) => nil is an empty list of values here; write (nil)
(let ((x 1) (x 2)) x) => x is named twice here
(defun f (x &optional x) x) => x is named twice here
(lambda (x &key (y 1 x)) x) => x is named twice here
(flet ((f () 1) (f () 2)) (f)) => f is named twice here
1e400 => 1e400 is too large for a float
#\a => there are no characters; write a string
`(a b) => '`' has no meaning here, because there are no macros; use list
(char "abc" 0) => char, which is not part of TDL: a character is a string of one; use elt and string=
(let ((l '(1))) (setf (first l) 2)) => first is not a place that can be changed: lists never change; make a new one
(defmethod shared-initialize :after ((x t) slots &key) 1) => TDL would never call a method of shared-initialize by itself; write one for initialize-instance
(defmethod slot-unbound (class object slot) 1) => would never call a method of slot-unbound
(defgeneric no-applicable-method (f &rest r)) => would never call a method of no-applicable-method
(defmethod update-instance-for-redefined-class :after ((x t) a b c &key) 1) => new slots get their initform
(progn (defclass C.A () ((x :type int :initform 1))) (defclass C.B (C.A) ((x :type str)))) => declared as str, but inherited from
(progn (defclass C.A () ((x :initform "s"))) (defclass C.B (C.A) ((x :type int)))) => .x: the default does not fit: expected int
(progn (defclass C.A () ((x :allocation :class :initform 1))) (defclass C.B (C.A) ((x :allocation :class)))) => leave it out, or give it an :initform of its own
(change-class 1 'x) => change-class, which is not part of TDL: an object keeps its class
(handler-bind ((error (lambda (e) 1))) 2) => handler-bind is not part of TDL: use handler-case
(defmacro m () 1) => defmacro is not part of TDL: there are no macros
(defun defmacro () 1) => defmacro is not part of TDL
(multiple-value-bind (a b) (floor 1 2) a) => a form has one value; return a list
(values 1 2) => a form has one value; return a list
(define-method-combination m) => methods are combined in the standard way only
(signal 'error) => use error
(slot-makunbound 1 'x) => a slot that has a value keeps one
(flet ((car (x) x)) (car 1)) => car is part of the language
(with-slots x 1 2) => expected (with-slots
(member 1 5) => member: expected a list, got 5
"""  # noqa: E501


@pytest.mark.parametrize(("source", "message"), lines(REFUSALS))
def test_what_clos_would_do_differently_is_refused_with_a_sentence(source, message):
    with pytest.raises(TdlError) as caught:
        shown(source)
    assert message in str(caught.value)
