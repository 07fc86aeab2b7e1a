"""Store the source of a program's definitions, so that methods can be sent with their class."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from infobus.tdl.compiler import symbol_name
from infobus.tdl.forms.definitions import function_name
from infobus.tdl.generics import QUALIFIERS
from infobus.tdl.reader import Form, Parenthesized
from infobus.tdl.values import full_name

HELPERS = ("defun", "defvar", "defparameter", "defgeneric", "define-condition")
TRAVELLING = ("defmethod", *HELPERS)


@dataclass(frozen=True)
class Definition:
    """One definition: its name, the names it mentions, and the classes whose method it is."""

    name: str
    text: str
    mentions: frozenset[str]
    classes: frozenset[str] = frozenset()


class Sources:
    """The latest definition of each name and method of a program."""

    def __init__(self) -> None:
        self._definitions: dict[tuple[str, ...], Definition] = {}

    def note(self, form: Form) -> None:
        """Record a top-level form, if it defines something that can be sent with a class."""
        head = (
            symbol_name(form.items[0]) if isinstance(form, Parenthesized) and form.items else None
        )
        if not isinstance(form, Parenthesized) or head not in TRAVELLING:
            return
        name = function_name(form.items[1])
        mentions = frozenset(_names(form))
        if head == "defmethod":
            key, classes = _method(form.items[2:])
            self._keep((name, *key), Definition(name, form.text, mentions, classes))
            return
        inside: frozenset[str] = frozenset()
        if head == "defgeneric":
            for option in form.items[3:]:
                assert isinstance(option, Parenthesized)  # the compiler has checked that
                if symbol_name(option.items[0]) == ":method":
                    inside |= _method(option.items[1:])[1]
        self._keep((name,), Definition(name, form.text, mentions, inside))

    def note_method(self, text: str, name: str, *classes: str) -> None:
        """Record an accessor as the method that it is equivalent to."""
        found = frozenset(classes) - {"t"}
        self._keep((name, "", *classes), Definition(name, text, frozenset(), found))

    def _keep(self, key: tuple[str, ...], definition: Definition) -> None:
        self._definitions.pop(key, None)  # so that a redefinition moves to the end
        self._definitions[key] = definition

    def methods_of(self, lineage: Iterable[str]) -> str:
        """Return the source of these classes' methods, with everything that they mention."""
        lineage = set(lineage)
        chosen = [d for d in self._definitions.values() if d.classes & lineage]
        wanted = {name for definition in chosen for name in definition.mentions}
        helpers = {d.name: d for d in self._definitions.values() if not d.classes}
        found: dict[str, Definition] = {}
        while wanted:
            name = wanted.pop()
            if name in helpers and name not in found:
                found[name] = helpers[name]
                wanted |= helpers[name].mentions
        travelling = [d for d in self._definitions.values() if d in chosen or d.name in found]
        return "\n".join(definition.text for definition in travelling)


def _method(rest: Sequence[Form]) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return what tells a method from others of its name, and the classes that it is for."""
    qualifier = symbol_name(rest[0]) or ""
    qualifier = qualifier if qualifier in QUALIFIERS[1:] else ""
    parameters = rest[1] if qualifier else rest[0]
    listed = parameters.items if isinstance(parameters, Parenthesized) else ()
    specializers = [
        parameter.items[1]
        for parameter in listed
        if isinstance(parameter, Parenthesized) and len(parameter.items) == 2
    ]
    names = [symbol_name(one) for one in specializers]
    classes = frozenset(full_name(name) for name in names if name is not None)
    return (qualifier, *(_spelled(parameter) for parameter in listed)), classes


def _spelled(form: Form) -> str:
    """Return a parameter's class, or `(eql value)`, as text; `t` if it has none."""
    if not isinstance(form, Parenthesized) or len(form.items) != 2:
        return "t"
    special = form.items[1]
    return _text(special) if isinstance(special, Parenthesized) else full_name(_text(special))


def _text(form: Form) -> str:
    if isinstance(form, Parenthesized):
        return f"({' '.join(_text(item) for item in form.items)})"
    return symbol_name(form) or repr(form.value)


def _names(form: Form) -> Iterator[str]:
    if isinstance(form, Parenthesized):
        for item in form.items:
            yield from _names(item)
    elif (name := symbol_name(form)) is not None:
        yield name
