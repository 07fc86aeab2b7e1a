"""Helpers for tests of TDL."""

import itertools

from infobus.tdl import Interpreter, ProgramLimits

_numbers = itertools.count()


def shown(source, **options):
    """What a program's value looks like, in an interpreter of its own."""
    return Interpreter(**options).show(source)


def fresh(name):
    """A type's name that no other test uses, because types are known to the whole process."""
    return f"tdl_test.{name}{next(_numbers)}"


SMALL = ProgramLimits(fuel=100_000, memory_bytes=1024 * 1024, depth=1_000)
