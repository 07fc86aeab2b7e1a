"""The job keywords: Property objects for what was published, made by Spark alone."""

import pytest

from infobus import Property, UsageError, pipeline
from infobus.pipeline.jobs import keywords, options_for
from tests.stores.journals import Source, Story, Wire, event, write

CATEGORIES = {"energy": ["oil", "Gas"], "money": ["banque", "crédit"]}


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ({}, "missing required field `categories`"),
        ({"categories": {"energy": []}}, "has no words"),
        ({"categories": {"energy": ["crude oil"]}}, "'crude oil' is not one word"),
    ],
)
def test_categories_that_make_no_sense_are_refused(table, complaint):
    with pytest.raises(UsageError, match=complaint):
        options_for("keywords", table)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_words_of_the_categories_are_found_in_the_text_of_any_object(spark, tmp_path):
    made = [
        event(0, Story(headline="GAS and oil, oil and gas; turmoil", topics=["oil"]), "news.a"),
        event(1, Wire(headline="Nothing", source=Source(name="oil")), "news.b"),
        event(2, Wire(headline="La banque donne CRÉDIT."), "news.c"),
        event(3, {"note": "oil", "n": 4}, "raw.d"),
        event(4, Property(name="keywords", value=["oil"], ref="x"), "news.a"),
        event(5, Story(headline="only a test of oil"), "news.a", test=True),
    ]
    journal = write(tmp_path / "journal", made)
    pipeline.register(spark)
    options = options_for("keywords", {"categories": CATEGORIES})
    ids = {one.subject: one.object_id for one in journal.select(where="n != 5").events()}

    def found(**reading):
        given = {"journal": str(journal.folder), **reading}
        frame = spark.read.format("infobus").options(**given).load()
        return [tuple(row) for row in keywords.transform(frame, options).collect()]

    whole = found()
    expected = {
        ("news.a", "keywords", ("gas", "oil")),
        ("news.c", "keywords", ("banque", "crédit")),
        ("raw.d", "keywords", ("oil",)),
    }
    assert {(subject, name, tuple(value)) for subject, name, value, _ in whole} == expected
    refs = {one.object_id for one in journal.select().events()}
    assert {ref for *_, ref in whole} <= refs
    assert {subject: ref for subject, _, _, ref in whole}["news.c"] == ids["news.c"]
    # With a column for each attribute, the same.
    assert sorted(found(type="journals.Story")) == sorted(r for r in whole if r[0] != "raw.d")
