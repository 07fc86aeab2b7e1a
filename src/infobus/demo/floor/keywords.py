"""The keyword generator: annotates objects that others published, whatever their type.

It starts while the rest is already running. It asks for initial state, so it also gets stories
published earlier. It attaches a Property object to each object whose text holds words of its
categories (paper 000, section 5.2). It is also a service that lets a person or a program browse
the categories and their keywords: `infobus call svc.keywords`.
"""

from __future__ import annotations

import re
from typing import Any

from infobus import DataObject, Event, Property, Service, UsageError, id_of, type_of
from infobus.demo.programs import on_the_floor

CATEGORIES = {
    "companies": "merger dividend earnings contract lawsuit recall shares",
    "work": "strike union jobs workers pilots crew",
    "technology": "chip chips wafers software battery batteries robotics",
    "energy": "oil gas electricity turbines tankers fuel",
    "money": "rate bonds bills yield inflation crown dinar bank",
    "nature": "storm frost earthquake flood rains harvest",
}
_WORDS = {word for words in CATEGORIES.values() for word in words.split()}


def keywords_in(text: str) -> list[str]:
    """The keywords in `text`, each once, in order of appearance.

    >>> keywords_in("Oil rose when a storm closed the port to tankers; the storm goes on.")
    ['oil', 'storm', 'tankers']
    """
    words = re.findall(r"\w+", text.lower())
    return list(dict.fromkeys(word for word in words if word in _WORDS))


def text_of(obj: DataObject) -> str:
    """All text in the attributes of an object of any type."""
    values: list[Any] = [attribute.get(obj) for attribute in type_of(obj).attributes]
    return "\n".join(value for value in values if isinstance(value, str))


def annotation(event: Event) -> Property | None:
    """The keywords of an event's object; None if it has none or is itself a property."""
    ref = id_of(event.data)
    if ref is None or isinstance(event.data, Property):
        return None
    found = keywords_in(text_of(event.data))
    return Property(name="keywords", value=found, ref=ref) if found else None


class KeywordGenerator(Service):
    """Categories of keywords, and what they find in a text."""

    def categories(self) -> list[str]:
        """All categories."""
        return list(CATEGORIES)

    def keywords(self, category: str) -> list[str]:
        """The keywords of a category."""
        if category not in CATEGORIES:
            raise UsageError(f"no category {category!r}; there are {', '.join(CATEGORIES)}")
        return CATEGORIES[category].split()

    def keywords_in(self, text: str) -> list[str]:
        """The keywords that a text holds."""
        return keywords_in(text)


def main() -> None:
    """Annotate everything under `news.>`, including what was published before."""
    done: set[str] = set()
    with on_the_floor() as (bus, over):
        bus.serve("svc.keywords", KeywordGenerator())
        stories = bus.subscribe("news.>", on_loss="quit_and_recover")
        while not over.is_set():
            try:
                event = stories.receive(0.2)
            except TimeoutError:
                continue
            found = annotation(event)
            if found is not None and found.ref not in done:
                done.add(found.ref)
                bus.publish(event.subject, found)


if __name__ == "__main__":
    main()
