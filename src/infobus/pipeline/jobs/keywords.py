"""The job `keywords`: annotates past and live objects with the keywords in their text.

It finds words of its categories in the text of objects of any type, and answers with Property
objects under the same subject (paper 000, section 5.2). Spark does all of it: no Python code sees
the rows. A query that begins at the earliest offset annotates history first, and then continues
live; the sink's ledger prevents a repeated batch from being published twice.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from infobus.stores.journal.columns import REST

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

PROPERTY = "Property"
"""The type of what is published; such objects are not annotated in turn."""
_WORD = re.compile(r"\w+")


class KeywordsOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The words to find, and the name of the property."""

    categories: dict[str, list[str]]
    name: str = "keywords"

    def __post_init__(self) -> None:
        if not any(self.categories.values()):
            raise ValueError("categories has no words")
        for word in self.words:
            if not _WORD.fullmatch(word):
                raise ValueError(f"categories: {word!r} is not one word")

    @property
    def words(self) -> list[str]:
        """All designated words, in lower case."""
        return sorted({word.lower() for words in self.categories.values() for word in words})


Options = KeywordsOptions


def transform(events: DataFrame, options: KeywordsOptions) -> DataFrame:
    """Return one property for each object whose text has such words, in their order there.

    The text is that of the object's own attributes, not of objects inside.
    """
    all_words = F.regexp_extract_all(F.lower(_text(events)), F.lit(r"(?U)(\w+)"))
    value = F.array_distinct(F.filter(all_words, lambda word: word.isin(options.words)))
    found = events.where(
        F.col("_object_id").isNotNull()
        & (F.coalesce(F.col("_type"), F.lit("")) != PROPERTY)
        & ~F.coalesce(F.col("_test"), F.lit(False))
    )
    return found.select(
        "_subject",
        F.lit(options.name).alias("name"),
        value.alias("value"),
        F.col("_object_id").alias("ref"),
    ).where(F.size("value") > 0)


def _text(events: DataFrame) -> Column:
    """Return all text in the attributes of an object, with and without columns."""
    columns: list[Column] = [
        F.col(f"`{field.name}`")
        for field in events.schema
        if isinstance(field.dataType, StringType) and not field.name.startswith("_")
    ]
    # A path with a dot or a bracket leads inside a list or an object.
    own = F.filter(F.map_entries(REST), lambda entry: ~entry["key"].rlike(r"[.\[]"))
    columns.append(F.array_join(F.transform(own, lambda entry: entry["value"]["text"]), "\n"))
    return F.concat_ws("\n", *columns)
