"""The repository as a service: asked from Python and from the command line."""

import json
import sys

import pytest

import infobus
from infobus import DataObject, UsageError
from infobus.cli.main import main
from infobus.demo.floor.keywords import KeywordGenerator

pytest.importorskip("sqlalchemy")
from infobus.repository import Repository
from infobus.repository.query_server import QueryServer


class Report(DataObject, name="services.Report"):
    title: str
    pages: int = 1


class LongReport(Report, name="services.LongReport"):
    summary: str = ""


@pytest.fixture
def repository(tmp_path):
    with Repository(f"sqlite:///{tmp_path}/reports.db") as repository:
        repository.store([Report(title="b", pages=2), LongReport(title="a", summary="s")])
        yield repository


def test_objects_are_found_by_type_and_filter(repository, bus, other):
    bus.serve("svc.reports", QueryServer(repository))
    reports = other.service("svc.reports")
    assert reports.types() == ["services.LongReport", "services.Report"]
    first, second = reports.query("services.Report", order=["title"])
    assert (type(first), first.summary, type(second), second.pages) == (LongReport, "s", Report, 2)
    assert infobus.id_of(first)
    found = list(reports.query("services.Report", where="pages > 1"))
    assert [report.title for report in found] == ["b"]


def test_what_is_wrong_with_a_query_is_said_to_the_caller(repository, bus, other):
    bus.serve("svc.reports", QueryServer(repository))
    reports = other.service("svc.reports")
    with pytest.raises(UsageError, match="no type 'Nothing'"):
        list(reports.query("Nothing"))
    with pytest.raises(infobus.BadFilter):
        list(reports.query("services.Report", where="pages >"))


def test_the_command_line_asks_a_server(repository, tmp_path, monkeypatch, capsys):
    with infobus.connect(f"test-{tmp_path.name}-{id(tmp_path)}", home=tmp_path) as bus:
        bus.serve("svc.reports", QueryServer(repository))
        ask = ["query", "services.Report", "--remote", "svc.reports", "--json", "--order=title"]
        monkeypatch.setattr(
            sys, "argv", ["infobus", *ask, "--bus", bus.name, "--home", str(tmp_path)]
        )
        with pytest.raises(SystemExit) as exit:
            main()
    lines = capsys.readouterr().out.splitlines()
    assert not exit.value.code
    assert [json.loads(line)["title"] for line in lines] == ["a", "b"]


def test_the_keyword_generator_of_the_demo_can_be_browsed(bus, other):
    bus.serve("svc.keywords", KeywordGenerator())
    keywords = other.service("svc.keywords")
    assert "energy" in keywords.categories()
    assert "oil" in keywords.keywords("energy")
    assert keywords.keywords_in("Oil and a storm") == ["oil", "storm"]
    with pytest.raises(UsageError, match="no category 'nothing'; there are companies"):
        keywords.keywords("nothing")
