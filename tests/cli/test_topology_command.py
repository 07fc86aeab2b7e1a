"""`infobus topology`, on a bus of programs that are linked with each other."""

import json
from xml.etree import ElementTree

import infobus


def test_programs_and_their_links_are_shown_and_drawn(run, bus, tmp_path):
    with infobus.connect(bus.name, home=tmp_path / "b", name="oven") as oven:
        code, out, _ = run("topology", "--json")
        places = {one["name"]: one for one in map(json.loads, out.splitlines())}
        assert code == 0 and oven.node in {one["node"] for one in places.values()}
        assert bus.node in places["oven"]["links"]
        code, out, err = run("topology", "--svg", str(tmp_path / "map.svg"))
        assert code == 0 and "oven" in out and "map.svg" in err
    texts = [one.text for one in ElementTree.parse(tmp_path / "map.svg").iter()]
    assert "oven" in texts
