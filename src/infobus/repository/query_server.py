"""The query server (paper 000, section 4): a repository as a service on the bus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from infobus.repository.repository import Repository
from infobus.services import Service


class QueryServer(Service):
    """The stored objects of a repository, for everyone on the bus.

    bus.serve("svc.stories", QueryServer(repository))
    for story in bus.service("svc.stories").query("Story", where='"oil" in topics'): ...
    """

    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    def types(self) -> list[str]:
        """The names of the types of which objects are stored."""
        return [known.name for known in self._repository.types()]

    def query(
        self,
        type_name: str,
        where: str = "",
        order: list[str] = [],  # noqa: B006  a default that travels; nobody changes it
        limit: int | None = None,
    ) -> Iterator[Any]:
        """The objects of a type and its subtypes; see `Repository.query`."""
        yield from self._repository.query(type_name, where or None, order or None, limit)

    def rows(
        self,
        type_name: str,
        where: str = "",
        order: list[str] = [],  # noqa: B006
        limit: int | None = None,
    ) -> Iterator[dict[str, Any]]:
        """The same as rows: attributes by name, with `_id`, `_type`, `_subject` and `_time`."""
        found = self._repository.query(type_name, where or None, order or None, limit, rows=True)
        yield from found
