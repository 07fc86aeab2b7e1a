"""The map of a bus shows every host, and counts each link between two of them once."""

from xml.etree import ElementTree

from infobus.cli.topology_map import MappedProgram, by_host, draw, links_between

OAK = MappedProgram("oak-1-a", "daemon", "oak", 1, "router", ("elm-1-a", "oak-2-b"))
ELM = MappedProgram("elm-1-a", "daemon", "elm", 1, "router", ("oak-1-a", "elm-9-c", "elm-8-d"))
OVEN = MappedProgram("oak-2-b", "oven", "oak", 2, "client", ("oak-1-a",))
MESH = MappedProgram("elm-9-c", "<billing>", "elm", 9, "peer", ("elm-1-a", "elm-8-d"))
DEAF = MappedProgram("elm-8-d", "audit", "elm", 8, "peer", ("elm-1-a", "elm-9-c", "gone-1-z"))
ALL = [OVEN, DEAF, OAK, MESH, ELM]


def test_a_hosts_daemon_comes_first_then_programs_by_name():
    assert [one.name for one in by_host(ALL)["elm"]] == ["daemon", "<billing>", "audit"]


def test_a_link_that_both_ends_know_counts_once():
    assert links_between(ALL) == {("elm", "oak"): 1}


def test_a_program_is_attached_or_has_links_of_its_own():
    assert [one.way for one in (OAK, OVEN, MESH)] == ["daemon", "attached", "2 links"]


def test_every_host_and_program_is_on_the_map_whatever_its_name():
    texts = [one.text for one in ElementTree.fromstring(draw(ALL)).iter() if one.text]
    assert {"oak", "elm", "oven", "<billing>", "audit"} <= set(texts)


def test_of_very_many_programs_it_says_how_many_more_there_are():
    many = [MappedProgram(f"oak-{n}-a", f"p{n}", "oak", n) for n in range(40)]
    assert "and 26 more" in draw(many)


def test_a_bus_without_programs_is_an_empty_picture():
    assert ElementTree.fromstring(draw([])).tag.endswith("svg")
