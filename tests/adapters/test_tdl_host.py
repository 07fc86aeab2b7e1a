"""Programs sent to a host over the bus: which are run, what they may do, what they serve."""

import contextlib
import time
import uuid

import pytest

import infobus
from infobus import UsageError
from infobus.adapters.tdl import PROGRAM, Programs, TdlHost, send
from infobus.adapters.tdl_programs import KeptPrograms, Program
from infobus.errors import StoreError, TdlError, TdlLimit
from infobus.tdl import ProgramLimits
from infobus.tdl.signatures import sign

KEY = b"a key of those who trust each other"
HOST = "plant.host"


def thermostat(name, limit=30):
    return f"""
    (defclass {name} () ((target :type float :initform 20.0))
      (:operations (set-target ((celsius float)) float "Returns the one before.")))
    (defmethod set-target ((self {name}) celsius)
      (when (> celsius {limit}) (error "~a degrees is too hot" celsius))
      (prog1 (slot-value self 'target) (setf (slot-value self 'target) celsius)))
    (serve "plant.thermostat" (make-instance '{name}))"""


@pytest.fixture
def name():
    return f"tdl_host.Thermostat{uuid.uuid4().hex}"


@pytest.fixture
def nodes():
    bus = f"test-{uuid.uuid4().hex}"
    with contextlib.ExitStack() as stack:
        pair = [infobus.connect(bus, engine="memory") for _ in range(2)]
        for node in pair:
            stack.callback(node.close, 0.2)
        yield pair


@pytest.fixture
def start(nodes):
    """Starts a host on the first node, in place of one that may have been there."""

    def start(key=KEY, kept=None, **options):
        programs = Programs(lambda: nodes[0], **options)
        host = TdlHost(programs, HOST, key=key, permit_all=key is None, kept=kept)
        nodes[0].replace(HOST, host)
        return host

    return start


def test_a_class_that_is_sent_serves_at_once(start, nodes, name):
    start()
    assert send(nodes[1], HOST, thermostat(name), key=KEY) == "t"
    service = nodes[1].service("plant.thermostat")
    signature = service.operations["set_target"].signature
    assert signature == "set_target(celsius: float) -> float"
    assert (service.set_target(25), service.set_target(celsius=21.5)) == (20.0, 25.0)
    assert nodes[1].service(HOST).served() == {"plant.thermostat": name}


def test_parameters_of_a_served_operation_may_have_any_name(start, nodes, name):
    start()
    program = f"""
    (defclass {name} () () (:operations (f ((operation int) (obj int) (self int)) int)))
    (defmethod f ((o {name}) operation obj self) (list operation obj self) (+ operation obj self))
    (serve "plant.names" (make-instance '{name}))"""
    send(nodes[1], HOST, program, key=KEY)
    service = nodes[1].service("plant.names")
    named = {"operation": 1, "obj": 2, "self": 3}
    assert service["f"](*named.values()) == 6 == service["f"](**named)
    assert service["f"].start(**named).result() == 6


def test_an_object_that_is_served_follows_its_class(start, nodes, name):
    start()
    send(nodes[1], HOST, thermostat(name), key=KEY)
    service = nodes[1].service("plant.thermostat")
    assert service.set_target(25) == 20.0
    change = f"""
    (defclass {name} () ((target :type float :initform 20.0) (changes :type int :initform 0))
      (:operations (set-target ((celsius float)) float "Returns the one before.")))
    (defmethod set-target :after ((self {name}) celsius)
      (with-slots (changes target) self (incf changes) (setf target (+ target changes))))"""
    send(nodes[1], HOST, change, key=KEY)
    assert (service.set_target(21), service.set_target(22)) == (25.0, 22.0)
    assert service.set_target(23) == 24.0


def test_an_error_of_a_method_reaches_the_caller_with_its_place(start, nodes, name):
    start()
    send(nodes[1], HOST, thermostat(name), "room.tdl", KEY)
    with pytest.raises(TdlError, match=r"room\.tdl:5:\d+: 99\.0 degrees is too hot") as caught:
        nodes[1].service("plant.thermostat").set_target(99)
    assert "set-target" in caught.value.report()


def test_a_new_program_replaces_what_the_old_one_serves(start, nodes, name):
    start()
    send(nodes[1], HOST, thermostat(name), key=KEY)
    service = nodes[1].service("plant.thermostat")
    with pytest.raises(TdlError):
        service.set_target(99)
    send(nodes[1], HOST, thermostat(name, limit=200), key=KEY)
    assert service.set_target(99) == 20.0


@pytest.mark.parametrize("key", [None, b"another key, of somebody else"])
def test_what_is_not_signed_with_the_hosts_key_is_not_run(start, nodes, name, key):
    start()
    with pytest.raises(UsageError, match="not signed with its key"):
        send(nodes[1], HOST, thermostat(name), key=key)
    assert nodes[1].service(HOST).served() == {}


def test_a_recorded_program_cannot_be_sent_again_or_elsewhere(start, nodes):
    start(allow=[])
    host = nodes[1].service(HOST)

    number = host.draw()
    assert host.run(**signed(number)) == "3"
    with pytest.raises(UsageError, match=r"has come before; sign it anew"):
        host.run(**signed(number))
    start, _, drawn_s = number.partition(":")
    for shift_s in (-1000, 1000):
        with pytest.raises(UsageError, match="sign it anew"):
            host.run(**signed(f"{start}:{float(drawn_s) + shift_s}"))
    with pytest.raises(UsageError, match="not signed"):
        host.run(**signed(host.draw(), "another.host"))
    with pytest.raises(UsageError, match="not signed"):
        host.run(**signed(host.draw()) | {"source": "(+ 1 3)"})
    assert host.run(**signed(host.draw())) == "3"


def test_programs_of_several_senders_may_arrive_in_any_order(start, nodes):
    start(allow=[])
    host = nodes[1].service(HOST)
    programs = [signed(host.draw()) for _ in range(8)]
    assert [host.run(**one) for one in reversed(programs)] == ["3"] * 8


def test_no_clock_of_a_sender_counts(start, nodes, monkeypatch):
    start(allow=[])
    for wrong_s in (-2.0, 200.0, 0.0, 10_000.0):
        monkeypatch.setattr(time, "time", lambda wrong_s=wrong_s: wrong_s)
        monkeypatch.setattr(time, "time_ns", lambda wrong_s=wrong_s: int(wrong_s * 1e9))
        assert send(nodes[1], HOST, "(+ 1 2)", key=KEY) == "3"


def signed(number, subject=HOST):
    signature = sign(KEY, PROGRAM, subject, number, "", "(+ 1 2)")
    return {"source": "(+ 1 2)", "number": number, "signature": signature}


def test_a_host_must_be_told_whom_to_trust(nodes):
    programs = Programs(lambda: nodes[0])
    with pytest.raises(UsageError, match="give the host a key, or permit all"):
        TdlHost(programs, HOST, key=None)
    with pytest.raises(UsageError, match="one of the two"):
        TdlHost(programs, HOST, key=KEY, permit_all=True)
    with pytest.raises(UsageError, match="at least 16"):
        TdlHost(programs, HOST, key=b"short")


def test_who_permits_all_runs_all(start, nodes):
    start(key=None)
    assert send(nodes[1], HOST, "(list 1 2)") == "(1 2)"


def test_programs_may_do_only_what_the_host_allows(start, nodes):
    start(key=None, allow=["publish"], within="plant.>")
    wanted = nodes[1].subscribe(">")
    for program, problem in [
        ('(serve "plant.x" 1)', "does not let this program serve"),
        ('(call "plant.x" \'y)', "does not let this program call"),
        ('(subscribe "plant.>" #\'list)', "does not let this program subscribe"),
        ("(print 1)", "does not let this program print"),
        ('(publish "bank.x" (make-hash-table))', r"use plant\.> only, not bank\.x"),
        ('(publish "plant..x" (make-hash-table))', "plant"),
        ("(loop)", "out of fuel"),
    ]:
        with pytest.raises(TdlError, match=problem):
            send(nodes[1], HOST, program)
    send(nodes[1], HOST, '(let ((h (make-hash-table))) (setf (gethash "n" h) 1) '
                         '(publish "plant.x" h))')  # fmt: skip
    assert wanted.receive(60).data == {"n": 1}
    with pytest.raises(UsageError, match="'frob' is not one of"):
        Programs(lambda: nodes[0], allow=["frob"])


def test_programs_handle_events_and_report_what_fails(start, nodes):
    told = []
    start(key=None, report=told.append)
    answers = nodes[1].subscribe("answers.>")
    send(nodes[1], HOST, """
    (subscribe "plant.>" (lambda (subject data)
      (let ((h (make-hash-table)))
        (setf (gethash "twice" h) (* 2 (gethash "n" data)) (gethash "of" h) subject)
        (publish "answers.x" h))))""")  # fmt: skip
    nodes[1].publish("plant.a", {"n": "not a number"})
    nodes[1].publish("plant.b", {"n": 21})
    assert answers.receive(60).data == {"twice": 42, "of": "plant.b"}
    assert ["expected a number" in str(error) for error in told] == [True]


def test_a_program_can_call_what_another_serves_at_the_same_host(start, nodes, name):
    start(key=None)
    send(nodes[1], HOST, thermostat(name))
    caller = f"{name}Caller"
    send(nodes[1], HOST, f"""
    (defclass {caller} () () (:operations (warmer () float)))
    (defmethod warmer ((c {caller})) (call "plant.thermostat" 'set-target :celsius 22))
    (serve "plant.caller" (make-instance '{caller}))""")  # fmt: skip
    assert nodes[1].service("plant.caller").warmer() == 20.0
    with pytest.raises(TdlError, match="frob"):
        send(nodes[1], HOST, '(call "plant.thermostat" \'frob)')


def test_a_method_that_never_ends_ends_at_its_limit(start, nodes, name):
    start(key=None, limits=ProgramLimits(fuel=10_000))
    send(nodes[1], HOST, f"""
    (defclass {name} () () (:operations (spin () int)))
    (defmethod spin ((o {name})) (loop))
    (serve "plant.spin" (make-instance '{name}))""")  # fmt: skip
    with pytest.raises(TdlLimit, match="out of fuel"):
        nodes[1].service("plant.spin").spin()


def test_a_new_host_runs_again_what_the_old_one_has_kept(start, nodes, tmp_path):
    file = tmp_path / "programs.jsonl"
    start(kept=KeptPrograms(file), allow=[])
    send(nodes[1], HOST, "(defvar a 1)", "a.tdl", KEY)
    send(nodes[1], HOST, "(defvar b (+ a 1))", key=KEY)
    with pytest.raises(TdlError):
        send(nodes[1], HOST, "(defvar c (car 7))", key=KEY)
    host = start(kept=KeptPrograms(file), allow=[])
    assert host.failed == []
    assert send(nodes[1], HOST, "(list a b)", key=KEY) == "(1 2)"
    with pytest.raises(TdlError, match="c"):
        send(nodes[1], HOST, "c", key=KEY)


def test_a_program_is_kept_in_its_last_version(start, nodes, tmp_path):
    file = tmp_path / "programs.jsonl"
    start(kept=KeptPrograms(file), allow=[])
    for source in ("(defun f () 1)", "(defun f () 2)"):
        send(nodes[1], HOST, source, "f.tdl", KEY)
    assert [one.source for one in KeptPrograms(file).programs] == ["(defun f () 2)"]
    assert file.read_bytes().count(b"\n") == 1


@pytest.mark.parametrize("keeps", [False, True])
def test_what_a_host_has_run_cannot_be_sent_to_its_successor(start, nodes, tmp_path, keeps):
    def kept():
        return KeptPrograms(tmp_path / "programs.jsonl") if keeps else None

    host = nodes[1].service(HOST)
    start(kept=kept(), allow=[])
    recorded = signed(host.draw())
    assert host.run(**recorded) == "3"
    start(kept=kept(), allow=[])
    with pytest.raises(UsageError, match="signed before the host started"):
        host.run(**recorded)


def test_programs_that_an_older_version_has_kept_are_run(start, nodes, tmp_path):
    file = tmp_path / "programs.jsonl"
    file.write_bytes(b'{"source":"(defvar a 1)","origin":"a.tdl","number":1795019158416682157}\n')
    start(kept=KeptPrograms(file), allow=[])
    assert send(nodes[1], HOST, "a", key=KEY) == "1"


def test_a_kept_program_that_fails_now_is_reported_and_the_others_are_run(start, nodes, tmp_path):
    kept = KeptPrograms(tmp_path / "programs.jsonl")
    kept.add(Program('(publish "plant.x" (make-hash-table))'))
    kept.add(Program("(defvar a 1)"))
    host = start(kept=KeptPrograms(kept.file), allow=[])
    assert "does not let this program publish" in str(host.failed[0])
    assert send(nodes[1], HOST, "a", key=KEY) == "1"


def test_a_line_that_a_crash_cut_off_is_left_out_but_damage_is_not(tmp_path):
    kept = KeptPrograms(tmp_path / "programs.jsonl")
    kept.add(Program("1"))
    with kept.file.open("ab") as file:
        file.write(b'{"source": "2')
    assert [one.source for one in KeptPrograms(kept.file).programs] == ["1"]
    kept.file.write_bytes(b"junk\n" + kept.file.read_bytes())
    with pytest.raises(StoreError, match=r"programs\.jsonl, line 1, is not a program"):
        KeptPrograms(kept.file)


def test_an_object_with_an_unbound_slot_is_served_and_says_so_when_it_is_read(start, nodes, name):
    start()
    program = f"""
    (defclass {name} () ((x :type int)) (:operations (put ((v int)) int) (look () int)))
    (defmethod put ((o {name}) v) (setf (slot-value o 'x) v))
    (defmethod look ((o {name})) (slot-value o 'x))
    (serve "plant.unbound" (make-instance '{name}))"""
    send(nodes[1], HOST, program, key=KEY)
    service = nodes[1].service("plant.unbound")
    with pytest.raises(TdlError, match=r"the slot x of .* is unbound"):
        service.look()
    assert (service.put(5), service.look()) == (5, 5)
