"""The settings of a router: what is wrong is said with the place and the remedy."""

import re
from pathlib import Path

import pytest

from infobus import UsageError
from infobus.router.reach import Place, Reach
from infobus.router.settings import load_router

DOCS = Path(__file__).parents[2] / "docs"
GOOD = """
name = "plant7"
inside = "plant"
backbone = "company"
domain = "eu.se"
listen = ["tcp/127.0.0.1:7600"]
[[neighbour]]
name = "plant9"
connect = ["tcp/127.0.0.1:7601"]
[[agreement]]
inside = "plant.*.oven.>"
outside = "eu.{1}.ovens.>"
where = "secret == false"
domains = ["eu"]
hops_max = 4
"""


@pytest.fixture
def load(tmp_path):
    def load(text):
        path = tmp_path / "router.toml"
        path.write_text(text)
        return load_router(path)

    return load


def test_what_is_told_is_read(load):
    settings = load(GOOD)
    assert settings.place == Place("plant7", "eu.se")
    assert settings.neighbour[0].connect == ("tcp/127.0.0.1:7601",)
    (agreement,) = settings.agreement
    assert agreement.reach == Reach(("eu",), 4)
    names = agreement.agreement("plant7.x").names
    assert names.outward("plant.line4.oven.heat") == "plant7.x.eu.line4.ovens.heat"
    assert settings.remarks() == []


def test_routers_of_a_group_are_one_site(load):
    assert load('group = "plant"\n' + GOOD).place.site == "plant"


def test_a_channel_that_is_split_is_remarked(load):
    (remark,) = load(GOOD.replace("eu.{1}.ovens.>", "{1}.ovens.>")).remarks()
    assert remark.startswith("agreement 1: events of a channel inside")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('name = "plant7"', 'name = "plant 7"', "name 'plant 7': use 1 to 64 letters"),
        ('inside = "plant"', 'inside = "company"', "backbone: it has the name of the bus inside"),
        ('inside = "plant"', "inside = {hme = 1}", "inside: 'hme' is not a setting"),
        ('inside = "plant"', "inside = {}", "inside: it names no bus"),
        ('inside = "plant"\n', "", "missing required field `inside`"),
        ('domain = "eu.se"', 'domain = "us"', "reaches the domains eu, and this router is in us"),
        ('domain = "eu.se"', 'domain = "eu..se"', "'eu..se' is not a domain"),
        ('domain = "eu.se"', "patience = {leese_s = 1.0}", "patience: Object contains unknown"),
        ('domain = "eu.se"', 'link = "slow"', "link: expected one of lan, wan, realtime"),
        ('domain = "eu.se"', 'domian = "eu"', "unknown field `domian`"),
        ("tcp/127.0.0.1:7600", "7600", "listen: '7600' is not an endpoint"),
        ("tcp/127.0.0.1:7601", "tcp/x", "connect: endpoint 'tcp/x'"),
        ('name = "plant9"', 'name = "plant7"', "has the name of this router"),
        ('where = "secret == false"', 'where = "secret =="', "agreement 1: "),
        ("hops_max = 4", "hops_max = -1", "agreement 1: hops_max must not be below 0"),
        ("hops_max = 4", "rows_max = 0", "agreement 1: rows_max must not be below 1"),
        ("hops_max = 4", 'classes = ["urgent"]', "agreement 1: no priority class 'urgent'"),
        ("hops_max = 4", "max_rate = 0.0", "agreement 1: max_rate must be above 0"),
        ("hops_max = 4", 'when_full = "block"', "agreement 1, when_full: invalid enum value"),
        ("hops_max = 4", "outside = 3", "overwrite"),
        ("eu.{1}.ovens.>", "eu.ovens.>", "agreement 1: 'eu.ovens.>': inside has 1 '*'"),
        ("hops_max = 4", "hops_max = ", "Invalid value"),
    ],
)
def test_what_is_wrong_is_said(load, old, new, told):
    assert old in GOOD
    with pytest.raises(UsageError) as refused:
        load(GOOD.replace(old, new, 1))
    assert told in str(refused.value)
    assert "router.toml: " in str(refused.value)


def test_a_router_without_any_way_to_a_neighbour_is_refused(load):
    begin = 'name = "a"\ninside = "x"\nbackbone = "y"\n'
    with pytest.raises(UsageError, match="it names no"):
        load(begin)
    with pytest.raises(UsageError, match="neither listens nor connects"):
        load(begin + '[[neighbour]]\nname = "b"\n')


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UsageError, match="it cannot be read: No such file"):
        load_router(tmp_path / "none.toml")


EXAMPLES = re.findall(r"```toml\n(name = .*?)```", (DOCS / "routers.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("text", EXAMPLES, ids=["plant7", "hq"])
def test_the_settings_on_the_page_of_routers_are_right(load, text):
    assert load(text).agreement
