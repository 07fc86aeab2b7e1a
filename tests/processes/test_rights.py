"""Rights among real processes: a policy and a revocation count on the whole bus while it runs."""

import os
import subprocess
import sys
import time
import uuid

import infobus
from infobus.bus.settings import keys_folder
from infobus.cli.key_home import KeyHome, spread
from infobus.security.authority import Authority
from infobus.security.authority_record import AuthorityRecord
from infobus.security.signatures import public_key_of
from infobus.stores.key_folder import KeyFolder
from tests.bus.helpers import wait_until
from tests.patience import PATIENT
from tests.security.plants import key

PUBLISHER = """
import sys, time, infobus
bus, home, who = sys.argv[1:]
with infobus.connect(bus, home=home) as node:
    while True:
        try:
            node.publish(f"plant.{who}", {"t": time.time()})
        except infobus.NotAllowed as error:
            print(error.action, error.subject, error.principal, error.policy, flush=True)
            break
        time.sleep(0.02)
"""


def test_a_revocation_and_a_policy_count_everywhere_at_once(tmp_path, capsys):
    bus = f"plant-{uuid.uuid4().hex[:8]}"
    folders = {who: KeyFolder(keys_folder(tmp_path / who, bus)) for who in ("ann", "bob", "eve")}
    record = AuthorityRecord.first(
        Authority.made(bus, key("members"), key("policies"), time.time())
    )
    folders["ann"].make_authority(record)
    for who, folder in folders.items():
        role = "admin" if who == "ann" else "member"
        made = record.authority.issue(who, public_key_of(key(who)), [role], time.time())
        folder.install(record.credential(made, key(who)))
    programs = {
        who: subprocess.Popen(
            [sys.executable, "-c", PUBLISHER, bus, str(tmp_path / who), who],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for who in ("bob", "eve")
    }
    last: dict[str, float] = {}
    try:
        with infobus.connect(bus, home=tmp_path / "ann", patience=PATIENT) as node:
            node.subscribe("plant.>", lambda event: last.update({event.principal: event.time}))
            wait_until(lambda: len(last) == 2, 60)
            at = KeyHome(bus, tmp_path / "ann", folders["ann"])
            with folders["ann"].changing_authority() as held:
                held[0] = held[0].revoked("eve", "left", time.time())
            spread(at, held[0].signed, "eve is revoked")
            # However slow the machine is: eve is not heard any more, while bob is.
            wait_until(lambda: last["bob"] > last["eve"] + 1.0, 60)
            # And she is told, in the program that runs and in one that begins now.
            programs["eve"].kill()
            assert "it was revoked" in programs["eve"].communicate()[1]
            command = [sys.executable, "-m", "infobus.cli", "pub", "plant.eve", "{}", "--bus", bus]
            home = {**os.environ, "INFOBUS_HOME": str(tmp_path / "eve")}
            tried = subprocess.run(command, env=home, capture_output=True, text=True, timeout=60)
            assert "the credential of this node: it was revoked" in tried.stderr
            text = held[0].statement.text.replace(
                '[roles.member]\npublish   = [">"]', "[roles.member]"
            )
            with folders["ann"].changing_authority() as held:
                held[0] = held[0].published(text)
            spread(at, held[0].signed, "published")
            assert programs["bob"].communicate(timeout=60)[0] == "publish plant.bob bob 3\n"
    finally:
        for program in programs.values():
            program.kill()
            program.communicate()
