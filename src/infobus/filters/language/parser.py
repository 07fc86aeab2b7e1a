"""Parses filters by precedence climbing, and checks types while it builds the tree."""

from __future__ import annotations

from infobus.filters.language import functions, lexer, typecheck
from infobus.filters.language.errors import Complaint
from infobus.filters.language.lexer import Token
from infobus.filters.language.tree import Tree
from infobus.filters.language.typecheck import Typed

TEXT_MAX = 64 * 1024
"""How many characters a filter may have, both as given and in its canonical text."""

# A level of the tree is at most an operand in parentheses, which is two nested expressions.
_NESTING_MAX = 2 * typecheck.DEPTH_MAX + 2

_COMPARING = 40
_NEGATING = 35  # `!` applies to the whole comparison after it: `!a == 1` is `!(a == 1)`.
_UNARY = 110

POWERS: dict[str, int] = {
    "||": 10,
    "^^": 20,
    "&&": 30,
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">=", "in", "matches"), _COMPARING),
    "|": 50,
    "^": 60,
    "&": 70,
    **dict.fromkeys(("<<", ">>", ">>>"), 80),
    **dict.fromkeys(("+", "-"), 90),
    **dict.fromkeys(("*", "/", "%"), 100),
}
"""The precedence of the operators, from weak to strong."""

_WORDS = {"and": "&&", "or": "||", "xor": "^^", "is": "==", "not": "!(... in ...)"}


def parse(text: str) -> Tree:
    """Return the tree of a filter.

    Raises:
        Complaint: The text is not a filter.
    """
    if len(text) > TEXT_MAX:
        raise Complaint(None, f"the filter has {len(text)} characters, more than {TEXT_MAX}")
    return _Parser(text).whole()


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = lexer.tokens(text)
        self._nesting = 0
        self._regex_size = 0
        self._next = next(self._tokens)

    def whole(self) -> Tree:
        if self._next.kind == "end":
            raise Complaint(0, "the filter is empty", "leave it out to get every event")
        tree = typecheck.condition(self._expression()).tree
        if self._next.kind != "end":
            raise self._unexpected("an operator or the end", _WORDS.get(self._next.text))
        return tree

    def _take(self) -> Token:
        token = self._next
        self._next = next(self._tokens, token)
        return token

    def _is_next(self, op: str) -> bool:
        return self._next.kind == "op" and self._next.text == op

    def _expect(self, op: str) -> Token:
        if not self._is_next(op):
            raise self._unexpected(f"{op!r}", _WORDS.get(self._next.text))
        return self._take()

    def _unexpected(self, expected: str, instead: str | None = None) -> Complaint:
        got = "the end" if self._next.kind == "end" else f"{self._next.text!r:.40}"
        hint = f"write {instead}" if instead else ""
        return Complaint(self._next.position, f"expected {expected}, got {got}", hint)

    def _expression(self, power: int = 0) -> Typed:
        self._nesting += 1
        if self._nesting > _NESTING_MAX:
            raise typecheck.too_deep(self._next.position)
        left = self._operand()
        while self._next.kind in ("op", "name") and POWERS.get(self._next.text, 0) > power:
            token = self._take()
            op, position = token.text, token.position
            if op in typecheck.LOGICAL:
                left = typecheck.logical(op, self._operands(left, op))
            elif op == "in":
                left = typecheck.member(left, self._container(), left.position)
            elif op == "matches":
                arguments = self._arguments("regex", [left])
                left = typecheck.call("regex", arguments, left.position)
            else:
                right = self._expression(POWERS[op])
                build = typecheck.comparison if POWERS[op] == _COMPARING else typecheck.binary
                left = build(op, left, right, position)
        self._nesting -= 1
        return left

    def _operands(self, first: Typed, op: str) -> list[Typed]:
        operands = [first, self._expression(POWERS[op])]
        while self._is_next(op):
            self._take()
            operands.append(self._expression(POWERS[op]))
        return operands

    def _operand(self) -> Typed:
        token = self._next
        match token.kind:
            case "number":
                return self._number(self._take(), 1)
            case "string":
                self._take()
                return typecheck.constant(lexer.string_value(token.text), "string", token.position)
            case "name":
                return self._name(self._take())
            case "op" if token.text in ("(", "!", "-", "+", "~"):
                return self._nested(self._take())
        raise self._unexpected("a name, a constant or '('")

    def _nested(self, token: Token) -> Typed:
        op, position = token.text, token.position
        if op == "-" and self._next.kind == "number":
            return self._number(self._take(), -1)
        if op == "(":
            result = self._expression()
            self._expect(")")
            return result
        if op == "!":
            return typecheck.negation(self._expression(_NEGATING), position)
        return typecheck.unary(op, self._expression(_UNARY), position)

    def _number(self, token: Token, sign: int) -> Typed:
        digits, position = token.text.lower(), token.position
        is_long = digits.endswith("l")
        digits = digits.rstrip("l")
        if digits.startswith("0x"):
            return typecheck.integer(sign * _whole(digits[2:], 16), is_long, position)
        if any(mark in digits for mark in ".e"):
            if is_long:
                raise Complaint(position, "a real number takes no L")
            return typecheck.constant(sign * float(digits), "real64", position)
        if digits.startswith("0") and digits != "0":
            raise Complaint(
                position, "a whole number cannot begin with 0", "octal numbers are not known: 0x1f"
            )
        return typecheck.integer(sign * _whole(digits, 10), is_long, position)

    def _name(self, token: Token) -> Typed:
        if self._is_next("("):
            return typecheck.call(token.text, self._arguments(token.text, []), token.position)
        if token.text in ("true", "false"):
            return typecheck.constant(token.text == "true", "bool", token.position)
        return typecheck.name(lexer.name_path(token.text), token.position)

    def _arguments(self, function: str, before: list[Typed]) -> list[Typed]:
        """Parse arguments in parentheses; append them to those in `before`."""
        arguments = before
        self._expect("(")
        while not self._is_next(")"):
            if arguments and self._next.kind == "string":
                arguments.append(self._pattern(function, self._take()))
            else:
                arguments.append(self._expression())
            if not self._is_next(")"):
                self._expect(",")
        self._take()
        return arguments

    def _pattern(self, function: str, token: Token) -> Typed:
        is_pattern = function in ("regex", "wildcard")
        pattern = (lexer.pattern_value if is_pattern else lexer.string_value)(token.text)
        self._regex_size += functions.regex_size(function, pattern, token.position)
        if self._regex_size > functions.REGEX_SIZE_MAX:
            raise Complaint(token.position, "the regular expressions are too large together")
        return typecheck.constant(pattern, "string", token.position)

    def _container(self) -> Typed | list[Typed]:
        if not (self._is_next("[") or self._is_next("(")):
            return self._operand()
        close = "]" if self._take().text == "[" else ")"
        items: list[Typed] = []
        while not self._is_next(close):
            items.append(self._expression())
            if not self._is_next(close):
                self._expect(",")
        self._take()
        if close == ")" and len(items) == 1 and not typecheck.is_constant(items[0]):
            return items[0]  # such as `5 in (tags)`
        return items


def _whole(digits: str, base: int) -> int:
    # 24 digits already show that a number does not fit. `int` is slow with thousands, or refuses.
    return int(digits.lstrip("0")[:24] or "0", base)
