"""Store the source of a program's definitions, so that methods can be sent with their class."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
        if head != "defmethod":
            self._keep((name,), Definition(name, form.text, mentions))
            return
        rest = form.items[2:]
        qualifier = symbol_name(rest[0]) or ""
        parameters = rest[1] if qualifier in QUALIFIERS[1:] else rest[0]
        assert isinstance(parameters, Parenthesized)  # the compiler has checked that
        classes = [_class_in(parameter) for parameter in parameters.items]
        key = (name, qualifier, *(one or "t" for one in classes))
        found = frozenset(one for one in classes if one is not None)
        self._keep(key, Definition(name, form.text, mentions, found))

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


def _class_in(parameter: Form) -> str | None:
    if isinstance(parameter, Parenthesized) and len(parameter.items) == 2:
        name = symbol_name(parameter.items[1])
        return None if name is None else full_name(name)
    return None


def _names(form: Form) -> Iterator[str]:
    if isinstance(form, Parenthesized):
        for item in form.items:
            yield from _names(item)
    elif (name := symbol_name(form)) is not None:
        yield name
