"""The query server (paper 000, section 4): a repository as a service on the bus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from infobus.repository.repository import Repository
from infobus.services import Service


class QueryServer(Service):
    """Serves the objects of a repository to everyone on the bus.

    bus.serve("svc.stories", QueryServer(repository))
    for story in bus.service("svc.stories").query("Story", where='"oil" in topics'): ...
    """

    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    def types(self) -> list[str]:
        """Return the names of the stored types."""
        return [known.name for known in self._repository.types()]

    def query(
        self,
        type_name: str,
        where: str = "",
        order: list[str] = [],  # noqa: B006  part of the signature on the bus; never changed
        limit: int | None = None,
    ) -> Iterator[Any]:
        """Stream the objects of a type and its subtypes; see `Repository.query`."""
        yield from self._repository.stream(type_name, where or None, order or None, limit)

    def rows(
        self,
        type_name: str,
        where: str = "",
        order: list[str] = [],  # noqa: B006
        limit: int | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Stream rows instead: attributes by name, plus `_id`, `_type`, `_subject`, `_time`."""
        yield from self._repository.stream(
            type_name, where or None, order or None, limit, rows=True
        )
