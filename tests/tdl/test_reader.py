import pytest
from hypothesis import given
from hypothesis import strategies as st

from infobus.errors import TdlError
from infobus.tdl.reader import NESTING_MAX, Atom, Parenthesized, is_unfinished, read
from infobus.tdl.values import Symbol


def plain(form):
    return [plain(item) for item in form.items] if isinstance(form, Parenthesized) else form.value


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("12 -3 +4", [12, -3, 4]),
        ("1.5 -.5 2. 1e3 1.5e-2", [1.5, -0.5, 2.0, 1000.0, 0.015]),
        ('"a \\"b\\" \\\\ \\n"', ['a "b" \\ \n']),
        (
            "a-b :key plant.Oven list[str]",
            [Symbol(n) for n in "a-b :key plant.Oven list[str]".split()],
        ),
        ("'a", [[Symbol("quote"), Symbol("a")]]),
        ("#'car", [[Symbol("function"), Symbol("car")]]),
        ("(a (b) ())", [[Symbol("a"), [Symbol("b")], []]]),
        ("; only a comment", []),
        ("1 #| two \n lines |# 2", [1, 2]),
        ("- 1+ ...", [Symbol("-"), Symbol("1+"), Symbol("...")]),
    ],
)
def test_what_is_written_is_read(text, values):
    assert [plain(form) for form in read(text)] == values


def test_every_form_knows_where_it_stands():
    [outer] = read("(a\n  (b c)\n d)", "oven.tdl")
    inner, last = outer.items[1], outer.items[2]
    assert (outer.at.line, outer.at.column) == (1, 1)
    assert (inner.at.line, inner.at.column) == (2, 3)
    assert (inner.items[1].at.line, inner.items[1].at.column) == (2, 6)
    assert str(last.at) == "oven.tdl:3:2"


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ("(a\n (b", (2, 2), "closing parenthesis is missing"),
        ("a)", (1, 2), "without an opening"),
        ('x "abc', (1, 3), "string begins here"),
        ("x #| abc", (1, 3), "comment begins here"),
        ("(quote '", (1, 8), "a form is missing"),
        ("(')", (1, 3), "after the quote"),
        ("`(a)", (1, 1), "no meaning"),
        ("#x", (1, 1), "no meaning"),
        ("a . b", (1, 3), "no meaning"),
        ("x" * 300, (1, 1), "255 characters"),
        ("9" * 2000, (1, 1), "1024 bits"),
        ("(" * (NESTING_MAX + 1), (1, NESTING_MAX + 1), "deeper than"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_place(text, place, problem):
    with pytest.raises(TdlError, match=problem) as caught:
        read(text)
    assert (caught.value.line, caught.value.column) == place


@pytest.mark.parametrize("text", ["(", "(a (b)", '"abc', "(a ; )", "#| x"])
def test_an_unfinished_text_waits_for_more(text):
    assert is_unfinished(text)


@pytest.mark.parametrize("text", ["", "a", "(a)", "(a))", '"b"', "`"])
def test_a_finished_or_hopeless_text_does_not(text):
    assert not is_unfinished(text)


FORMS = st.recursive(
    st.one_of(
        st.integers(-(2**1023), 2**1023),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(max_size=20),
        st.from_regex(r":?[a-z][a-z-]{0,8}", fullmatch=True).map(Symbol),
    ),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=20,
)


def written(value):
    if isinstance(value, list):
        return f"({' '.join(map(written, value))})"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return value.name if isinstance(value, Symbol) else repr(value)


@given(FORMS)
def test_reading_is_the_inverse_of_writing(value):
    [form] = read(written(value))
    assert plain(form) == value


@given(st.text(alphabet="()'#|;\" \n`ab1.:\\", max_size=60))
def test_any_text_is_read_or_refused(text):
    try:
        forms = read(text)
    except TdlError as error:
        assert error.line >= 1
    else:
        assert all(isinstance(form, Atom | Parenthesized) for form in forms)
        assert not is_unfinished(text)
