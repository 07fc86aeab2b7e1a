"""TDL on a terminal, and methods that travel from one process to another."""

import pexpect
import pytest

import infobus
from infobus.errors import TdlError
from infobus.tdl import forbid, permit
from tests.cli.running import Shell

KEY = b"a key of those who trust each other"


@pytest.fixture
def shell(tmp_path):
    shell = Shell(tmp_path)
    yield shell
    shell.close()


@pytest.fixture
def prompt(shell):
    """Starts the prompt, as often as a test likes."""

    def prompt():
        child = shell.terminal("tdl")
        child.expect("tdl> ")
        return child

    return prompt


def say(child, text, answer):
    child.sendline(text)
    child.expect_exact(answer)
    child.expect("tdl> ")


def end(child):
    child.sendeof()
    child.expect(pexpect.EOF)
    child.wait()
    assert child.exitstatus == 0


def test_the_prompt_shows_values_and_goes_on_after_errors(prompt):
    child = prompt()
    say(child, "(defun twice (x) (* 2 x))", "twice")
    say(child, "(twice 21)", "42")
    say(child, "(car 5)", "1:1: car: expected a list, got 5")
    child.sendline("(list 1")
    child.expect_exact("...> ")
    say(child, "2)", "(1 2)")
    end(child)


@pytest.mark.parametrize("word", ["quit", "(exit)"])
def test_a_word_ends_the_prompt(prompt, word):
    child = prompt()
    say(child, "(setq kept 5)", "5")
    say(child, "(loop when t)", "1:1: the loop ends where a clause is expected")
    say(child, "kept", "5")
    child.sendline(word)
    child.expect(pexpect.EOF)
    child.wait()
    assert child.exitstatus == 0


def test_the_prompt_completes_names_and_remembers_lines(prompt, shell):
    child = prompt()
    child.send("(string-up\t")
    child.expect_exact("string-upcase")
    say(child, ' "abc")', '"ABC"')
    end(child)
    assert "string-upcase" in (shell.folder / "tdl_history").read_text()
    child = prompt()
    child.send("\x1b[A")  # the line before
    child.expect_exact('(string-upcase "abc")')
    say(child, "", '"ABC"')
    end(child)


def test_control_c_gives_up_a_long_program_but_not_the_prompt(prompt):
    child = prompt()
    child.sendline("(progn (princ 'started) (loop))")
    child.expect_exact("started")
    child.expect_exact("started")  # the echo, then the output
    child.sendintr()
    child.expect_exact("given up")
    child.expect("tdl> ")
    say(child, "(+ 1 2)", "3")
    end(child)


def test_methods_travel_with_their_class_to_who_permits_them(shell):
    (shell.folder / "key").write_bytes(KEY)
    (shell.folder / "key").chmod(0o600)
    (shell.folder / "order.tdl").write_text("""
    (defun with-tax (x) (* x 1.25))
    (defclass tdl_travels.Order () ((price :type float))
      (:operations (total ((count int)) float)) (:travels t))
    (defmethod total ((o tdl_travels.Order) count)
      (if (< count 0) (error "no such count ~a" count) (with-tax (* count (slot-value o 'price)))))
    (publish "orders.new" (make-instance 'tdl_travels.Order :price 8))""")
    with infobus.connect(shell.bus, home=shell.folder) as bus:
        orders = bus.subscribe("orders.>")
        assert shell.run("tdl", "run", "order.tdl", "--key", "key") == (0, "", "")
        order = orders.receive(60).data
    assert order.price == 8.0
    with pytest.raises(AttributeError, match="methods in TDL came with it"):
        order.total(3)
    permit("tdl_travels.>", key=KEY)
    try:
        assert order.total(3) == 30.0
        with pytest.raises(TdlError, match=r"methods of tdl_travels\.Order.*no such count -1"):
            order.total(-1)
    finally:
        forbid()
