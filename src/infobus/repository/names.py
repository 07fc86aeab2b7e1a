"""Choose the SQL names of types and attributes.

Attributes keep their names; types get the usual spelling of table names. Each name is unique
even if case is ignored, because SQLite ignores case. SQL keywords need no care: SQLAlchemy
quotes them.
"""

from __future__ import annotations

import re
from collections.abc import Container
from hashlib import blake2b

NAME_BYTES_MAX = 57
"""PostgreSQL silently cuts names at 63 bytes, and a view's name is up to 6 bytes longer."""

# PostgreSQL has columns of these names in every table.
_SYSTEM_COLUMNS = frozenset({"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"})
_WORD_END = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def table_name(text: str, taken: Container[str]) -> str:
    """Return a table name for a type, or for a list in it; `taken` holds case-folded names.

    >>> table_name("news.ReutersStory", {}), table_name("news_reuters.Story", {"news_story"})
    ('news_reuters_story', 'news_reuters_story')
    >>> table_name("Story", {"story"}), table_name("sqlite.Master", {})
    ('story_2', 't_sqlite_master')
    """
    name = _WORD_END.sub("_", text).replace(".", "_").lower()
    if name.startswith(
        ("sqlite_", "pg_", "every_")
    ):  # reserved by SQLite, PostgreSQL and our views
        name = f"t_{name}"
    return _distinct(name, taken)


def column_name(text: str, taken: Container[str]) -> str:
    """Return a column name for an attribute; `taken` holds case-folded names.

    >>> column_name("select", {}), column_name("Price", {"price"}), column_name("xmin", {})
    ('select', 'Price_2', 'xmin_')
    """
    return _distinct(f"{text}_" if text in _SYSTEM_COLUMNS else text, taken)


def index_name(table: str, column: str) -> str:
    """Return the name of the index of a column, always the same one.

    >>> index_name("news_story", "headline")
    'ix_news_story_headline_750dd5'
    """
    digest = blake2b(f"{table}.{column}".encode(), digest_size=3).hexdigest()
    return f"{_cut(f'ix_{table}_{column}', NAME_BYTES_MAX - 7)}_{digest}"


def _distinct(text: str, taken: Container[str]) -> str:
    name, number = _cut(text, NAME_BYTES_MAX), 1
    while name.casefold() in taken:
        number += 1
        ending = f"_{number}"
        name = _cut(text, NAME_BYTES_MAX - len(ending)) + ending
    return name


def _cut(text: str, bytes_max: int) -> str:
    return text.encode()[:bytes_max].decode(errors="ignore")
