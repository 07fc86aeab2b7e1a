"""A lane is what one class of a channel's events travels on, with numbers of its own.

The default class travels on the channel itself. Every other class has a lane beside it, so that
neither its numbers, nor its window, nor its queues ever wait for those of another class.
"""

from __future__ import annotations

from infobus.protocols.qos.classes import Classes
from infobus.subjects import channel_key

MARK = "\x1f"  # no subject holds a control character


def lane_of(channel: str, class_: str) -> str:
    """The lane of a class; an empty one stands for the default class.

    >>> lane_of("news", ""), lane_of("news", "emergency")
    ('news', 'news\\x1femergency')
    """
    return f"{channel}{MARK}{class_}" if class_ else channel


def channel_in(lane: str) -> str:
    """The channel that a lane belongs to.

    >>> channel_in("news"), channel_in("news\\x1femergency")
    ('news', 'news')
    """
    return lane.partition(MARK)[0]


def class_in(lane: str) -> str:
    """The class that a lane carries; empty for the default class.

    >>> class_in("news"), class_in("news\\x1femergency")
    ('', 'emergency')
    """
    return lane.partition(MARK)[2]


def in_words(lane: str) -> str:
    """How people are told of a lane.

    >>> print(in_words("news"), "and", in_words("news\\x1femergency"))
    channel 'news' and channel 'news' (class emergency)
    """
    channel, _, class_ = lane.partition(MARK)
    return f"channel {channel!r} (class {class_})" if class_ else f"channel {channel!r}"


def lane_class(classes: Classes, name: str) -> str:
    """How lanes spell a class: empty for the default class.

    >>> from infobus.protocols.qos.classes import DEFAULT_CLASSES
    >>> lane_class(DEFAULT_CLASSES, "regular"), lane_class(DEFAULT_CLASSES, "business")
    ('', 'business')

    Raises:
        UsageError: There is no such class.
    """
    classes.rank(name)
    return "" if name == classes.default else name


def urgency_of(classes: Classes, class_: str) -> int:
    """How far above the default class the class of a lane is."""
    return classes.rank(classes.default) - classes.rank(class_ or classes.default)


def lane_key(lane: str) -> str:
    """The engine key that carries the events of a lane.

    >>> lane_key("news.equity"), lane_key("news.equity\\x1femergency")
    ('c/news/equity', 'q/emergency/news/equity')
    """
    channel, _, class_ = lane.partition(MARK)
    return class_key(channel_key(channel), class_)


def class_key(key: str, class_: str) -> str:
    """The engine key, or pattern of keys, of a class beside that of the default class.

    >>> class_key("c/*/**", "business")
    'q/business/*/**'
    """
    return f"q/{class_}/{key.removeprefix('c/')}" if class_ else key
