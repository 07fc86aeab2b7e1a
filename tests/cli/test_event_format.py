import pytest
from hypothesis import given
from hypothesis import strategies as st

import infobus
from infobus import Event, UsageError
from infobus.cli.event_format import EventFormat
from infobus.headers import Headers


class Address(infobus.DataObject, name="event_format.Address"):
    city: str
    lines: list[str] = []  # noqa: RUF012


def event(data, **more):
    return Event("a.b", data, "node", 3, 1.5, 1, **more)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("{subject} {type} {seq} {sender} {priority}", "a.b - 3 node regular"),
        ("{time}", "1970-01-01T00:00:01.500+00:00"),
        ("{data[n]}|{data[s]}|{data[none]}|{data[yes]}", "1|x y|null|true"),
        ("{data[at][city]}: {data[at][lines][1]}", "Rome: two"),
        ("{data[at]}", '{"_type":"event_format.Address","city":"Rome","lines":["one","two"]}'),
        ("{data[nothing]} {data[n][x]} {data[at][lines][9]} {headers[x]}", "- - - -"),
        ("{headers[trace]} {headers}", '4b {"trace":"4b"}'),
        ("{{subject}} 100%", "{subject} 100%"),
        ("", ""),
    ],
)
def test_fields_are_filled_in(text, line):
    at = Address(city="Rome", lines=["one", "two"])
    data = {"n": 1, "s": "x y", "none": None, "yes": True, "at": at}
    assert EventFormat(text).line(event(data, headers=Headers({"trace": "4b"}))) == line


@pytest.mark.parametrize(
    "text",
    "{ } {} {0} {data.x} {data.__class__} {subject:>9999999999} {subject!r} {sbject} {data[]} "
    "{data[x} {data[x]y} {subject:{seq}}".split(),
)
def test_anything_else_is_refused(text):
    with pytest.raises(UsageError, match="--format"):
        EventFormat(text)


@given(st.text(st.characters(exclude_categories=["Cs"])), st.floats())
def test_an_event_is_one_line_that_no_terminal_obeys(text, time):
    data = {"x": text, "{subject}": text, text: {"y": text}}
    hostile = Event("a", data, "node", 1, time, 1, headers=Headers({"h": text}))
    line = EventFormat("{data} {data[x]} {headers[h]} {time}").line(hostile)
    assert line.isprintable()
    assert "a.b" not in EventFormat("{data[x]}").line(event({"x": "{subject}"}))


def test_text_and_bytes_have_their_attributes():
    assert EventFormat("{data[text]}").line(event("a\nb")) == "a\\nb"
    assert EventFormat("{data[data]} {type}").line(event(b"\0")) == '"AA==" payload.Bytes'
