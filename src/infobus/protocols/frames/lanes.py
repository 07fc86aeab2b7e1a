"""Lanes: one class of a channel's events travels on a lane, with numbers of its own.

The default class travels on the channel itself. Every other class has a lane beside it, so that its
numbers, its window and its queues never wait for those of another class.
"""

from __future__ import annotations

from infobus.protocols.qos.classes import Classes
from infobus.subjects import channel_key, from_key

MARK = "\x1f"  # no subject holds a control character


def lane_of(channel: str, class_: str) -> str:
    """Return the lane of a class; an empty one stands for the default class.

    >>> lane_of("news", ""), lane_of("news", "emergency")
    ('news', 'news\\x1femergency')
    """
    return f"{channel}{MARK}{class_}" if class_ else channel


def channel_in(lane: str) -> str:
    """Return the channel that a lane belongs to.

    >>> channel_in("news"), channel_in("news\\x1femergency")
    ('news', 'news')
    """
    return lane.partition(MARK)[0]


def class_in(lane: str) -> str:
    """Return the class that a lane carries; empty for the default class.

    >>> class_in("news"), class_in("news\\x1femergency")
    ('', 'emergency')
    """
    return lane.partition(MARK)[2]


def in_words(lane: str) -> str:
    """Return a lane in words, for messages to people.

    >>> print(in_words("news"), "and", in_words("news\\x1femergency"))
    channel 'news' and channel 'news' (class emergency)
    """
    channel, _, class_ = lane.partition(MARK)
    return f"channel {channel!r} (class {class_})" if class_ else f"channel {channel!r}"


def lane_class(classes: Classes, name: str) -> str:
    """Return a class as lanes spell it: empty for the default class.

    >>> from infobus.protocols.qos.classes import DEFAULT_CLASSES
    >>> lane_class(DEFAULT_CLASSES, "regular"), lane_class(DEFAULT_CLASSES, "business")
    ('', 'business')

    Raises:
        UsageError: There is no such class.
    """
    classes.rank(name)
    return "" if name == classes.default else name


def urgency_of(classes: Classes, class_: str) -> int:
    """Return how far above the default class the class of a lane is."""
    return classes.rank(classes.default) - classes.rank(class_ or classes.default)


def lane_key(lane: str) -> str:
    """Return the engine key that carries the events of a lane.

    >>> lane_key("news.equity"), lane_key("news.equity\\x1femergency")
    ('c/news/equity', 'q/emergency/news/equity')
    """
    channel, _, class_ = lane.partition(MARK)
    return class_key(channel_key(channel), class_)


def lane_in(key: str) -> str:
    """Return the lane of which a key carries the events.

    >>> lane_in("c/news/equity"), lane_in("q/emergency/news/equity") == lane_of(
    ...     "news.equity", "emergency"
    ... )
    ('news.equity', True)
    """
    kind, _, rest = key.partition("/")
    class_, _, channel = ("", "", rest) if kind == "c" else rest.partition("/")
    return lane_of(from_key(channel), class_)


def class_key(key: str, class_: str) -> str:
    """The engine key, or pattern of keys, of a class beside that of the default class.

    >>> class_key("c/*/**", "business")
    'q/business/*/**'
    """
    return f"q/{class_}/{key.removeprefix('c/')}" if class_ else key
