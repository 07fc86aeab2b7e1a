"""A pipeline as a TOML file: which sources are read, by which jobs, into which sinks.

name = "newsroom"
master = "local[*]"

[sources.news]
subject = "news.>"

[sinks.annotations]
type = "Property"

[jobs.decompose]
source = "news"
options.db = "sqlite:///news.db"

[jobs.keywords]
source = "news"
sink = "annotations"
options.categories.energy = ["oil", "gas"]
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from infobus.errors import UsageError
from infobus.pipeline.jobs import NAMES

Value = str | int | float | bool

_PAUSE = re.compile(
    r"\s*(interval\s+)?(\d+\s+(millisecond|second|minute|hour|day)s?\s*)+", re.IGNORECASE
)


class JobUse(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One use of a job in a pipeline."""

    source: str
    job: str | None = None
    """The job's name; without it, the name of this use."""
    sink: str | None = None
    when: Literal["live", "now", "end"] = "live"
    """`live` until the pipeline is stopped; `now` what is there, then no more; `end` what is
    there when the pipeline ends, in one piece."""
    every: str = "2 seconds"
    """How often a live job takes what has come."""
    options: dict[str, Any] = {}


class Plan(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A pipeline, as described in its file."""

    name: str = ""
    master: str = "local[*]"
    """`local[*]`, `spark://HOST:PORT`, or `sc://HOST:PORT` for Spark Connect."""
    ship: bool = True
    """Whether workers on a cluster are sent this package; its dependencies they must have."""
    state: str = ""
    """The folder for checkpoints and the status; beside the file, unless told."""
    spark: dict[str, Value] = {}
    """Further settings of Spark."""
    sources: dict[str, dict[str, Value]]
    """By name: options of `spark.readStream.format("infobus")`."""
    sinks: dict[str, dict[str, Value]] = {}
    """By name: options of `writeStream.format("infobus")`."""
    jobs: dict[str, JobUse]

    @property
    def state_folder(self) -> Path:
        """The folder of the checkpoints and the status."""
        return Path(self.state)


def load_plan(path: Path) -> Plan:
    """Read a pipeline from its file.

    Raises:
        UsageError: The file does not exist, is not TOML, or names something that does not exist.
    """
    try:
        plan = msgspec.convert(tomllib.loads(path.read_text("utf-8")), Plan)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    except (ValueError, msgspec.ValidationError) as error:  # text that is not UTF-8 is one, too
        raise UsageError(f"{path}: {error}") from error
    if not plan.jobs:
        raise UsageError(f"{path}: there is no job in it; add a table [jobs.NAME]")
    for name, use in plan.jobs.items():
        job = use.job or name
        if job not in NAMES:
            raise UsageError(f"{path}: there is no job {job!r}; there are {', '.join(NAMES)}")
        if not _PAUSE.fullmatch(use.every):
            raise UsageError(
                f"{path}: jobs.{name}.every is {use.every!r}, which is no time; expected one such "
                "as '500 milliseconds', '2 seconds' or '1 minute'"
            )
        _check(path, f"jobs.{name}.source", use.source, plan.sources)
        if use.sink is not None:
            _check(path, f"jobs.{name}.sink", use.sink, plan.sinks)
    return msgspec.structs.replace(
        plan,
        name=plan.name or path.stem,
        state=str(Path(plan.state or path.with_suffix(".state")).absolute()),
    )


def _check(path: Path, where: str, name: str, known: dict[str, Any]) -> None:
    if name not in known:
        there = ", ".join(known) or "none"
        raise UsageError(f"{path}: {where} is {name!r}, which is not described; there are: {there}")


def texts(options: dict[str, Value]) -> dict[str, str]:
    """Return options as Spark expects them.

    >>> texts({"guaranteed": True, "maxEventsPerTrigger": 500})
    {'guaranteed': 'true', 'maxEventsPerTrigger': '500'}
    """
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in options.items()
    }
