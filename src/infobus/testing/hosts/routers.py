"""Routers on the hosts of a test: each host is a site with a bus of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from infobus.testing.hosts.host import AnyHost


class HostRouters:
    """The routers of some hosts, of which those of a pair are neighbours.

    A router is called `router-` and then as its host.

    Args:
        name: The name of the backbone; `bus` says those of the sites.
        links: Pairs of hosts that are neighbours.
        folder: Where the settings of each router are written.
        settings: What they say besides: agreements, and what else counts for all routers.
        environment: Of the routers, if not this process's own.
    """

    def __init__(
        self,
        name: str,
        links: Iterable[tuple[AnyHost, AnyHost]],
        folder: Path,
        settings: str = "[[agreement]]\n",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.links = list(links)
        self._folder = folder
        self._settings = settings
        self._environment = environment

    def bus(self, host: AnyHost) -> str:
        """The name of the bus of a site."""
        return f"{self.name}-{host.name}"

    def neighbours(self, host: AnyHost) -> list[AnyHost]:
        """Whom the router of a host is linked with."""
        ends = [link for link in self.links if host in link]
        return [other for link in ends for other in link if other is not host]

    def command(self, host: AnyHost) -> list[str]:
        """Write the settings of the router of a host, as the links are now, and say how to run it.

        Both ends of a link call each other, so either may be started first.
        """
        told = [
            f'name = "router-{host.name}"\ninside = "{self.bus(host)}"\nbackbone = "{self.name}"',
            f'listen = ["{host.endpoint}"]\ninsecure = true',
        ]
        top, mark, rest = self._settings.partition("[")
        told.append(top)
        for other in self.neighbours(host):
            told.append(
                f'[[neighbour]]\nname = "router-{other.name}"\nconnect = ["{other.endpoint}"]'
            )
        file = self._folder / f"{self.name}-{host.name}.toml"
        file.write_text("\n".join([*told, mark + rest]))
        return [sys.executable, "-m", "infobus.cli", "router", "run", str(file)]

    def start(self, host: AnyHost, **options: Any) -> subprocess.Popen[Any]:
        """Start the router of a host; `options` are those of `subprocess.Popen`."""
        return host.popen(self.command(host), env=self._environment, **options)

    def ask(self, host: AnyHost, *question: str) -> Any:
        """What `infobus router ... --json` says on a host; None if no router answers there."""
        command = [sys.executable, "-m", "infobus.cli", "router", *question, "--json"]
        done = host.run(command, env=self._environment)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def reload(self, host: AnyHost) -> None:
        """Let the router of a host go by the links as they are now."""
        self.command(host)
        command = [sys.executable, "-m", "infobus.cli", "router", "reload"]
        host.run(command, env=self._environment, check=True)
