"""`infobus bench`: how fast the bus is beside its peers, on this machine, now."""

from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.console import Console

OUT = Path("bench-results")

Out = Annotated[Path, typer.Option(help="Folder for the numbers (JSON) and the plots.")]

app = typer.Typer(rich_markup_mode="rich")


@app.callback(invoke_without_command=True)
def command(
    context: typer.Context,
    quick: Annotated[bool, typer.Option("--quick", help="Only what the bars need.")] = False,
    out: Out = OUT,
    repeat: Annotated[int, typer.Option(min=1, help="Times that each thing is measured.")] = 3,
    profile: Annotated[
        bool, typer.Option("--profile", help="Count calls and memory per event instead.")
    ] = False,
) -> None:
    """Measure throughput and latency beside raw zenoh, nats and zmq, as ratios in one run."""
    if context.invoked_subcommand:
        return
    if profile:
        from infobus.bench.pubsub import profile as profiles

        profiles.print_profile(profiles.profile(), Console())
        return
    from infobus.bench.common.findings import perform
    from infobus.bench.pubsub import benchmark

    perform(partial(benchmark.run, repeat=repeat), quick=quick, out=out)


class BenchCommand(NamedTuple):
    """A benchmark as a command. Its module is imported only when it runs."""

    module: str
    help: str
    quick_help: str


BENCHMARKS = {
    "match": BenchCommand(
        "matching.benchmark",
        "Measure how fast events find their subscriptions, beside one compiled lambda for each.",
        "Without the largest numbers; about a minute.",
    ),
    "guaranteed": BenchCommand(
        "guaranteed.benchmark",
        "Measure how fast guaranteed events are kept, beside single syncs and JetStream.",
        "Fewer and shorter turns.",
    ),
    "qos": BenchCommand(
        "qos.benchmark",
        "Measure how long emergencies take, without and with a flood of regular events.",
        "One short round.",
    ),
    "call": BenchCommand(
        "calls.benchmark",
        "Measure calls of a service beside zenoh queries, nats requests and gRPC, in turns.",
        "A single short round.",
    ),
    "elvin": BenchCommand(
        "pubsub.elvin",
        "Measure paper 001's own load, from one process to another.",
        "20,000 notifications in place of 100,000.",
    ),
    "members": BenchCommand(
        "membership.benchmark",
        "Measure what membership costs a node, and how soon all members know of a failure.",
        "Shorter looks, and 10 failures in place of 100.",
    ),
    "calm": BenchCommand(
        "membership.calm",
        "Watch members for half an hour while all processors are busy: is anyone excluded?",
        "30 seconds in place of half an hour.",
    ),
    "routers": BenchCommand(
        "routers.benchmark",
        "Count what routers of many sites tell each other, in a simulation of them.",
        "Up to 50 sites in place of 200.",
    ),
    "pipeline": BenchCommand(
        "pipeline.benchmark",
        "Measure Spark reading a journal through the bus's source and by itself, and captures.",
        "200,000 events in place of five million.",
    ),
    "hosts": BenchCommand(
        "hosts.benchmark",
        "Measure what programs on several hosts cost, without and with daemons. Needs root.",
        "One round with few programs.",
    ),
    "sites": BenchCommand(
        "sites.benchmark",
        "Measure what it costs that sites are joined by routers. Needs root.",
        "Fewer events and kills.",
    ),
    "repository": BenchCommand(
        "repository.benchmark",
        "Measure how fast objects are stored in a database, beside SQLAlchemy.",
        "Three rounds in place of nine.",
    ),
    "backtest": BenchCommand(
        "pipeline.backtest",
        "Measure subscriptions tried out over a journal, beside conditions of Spark's own.",
        "50,000 events in place of a million.",
    ),
}


def _add(name: str, benchmark: BenchCommand) -> None:
    def measure(
        quick: Annotated[bool, typer.Option("--quick", help=benchmark.quick_help)] = False,
        out: Out = OUT,
    ) -> None:
        from infobus.bench.common.findings import perform

        run = import_module(f"infobus.bench.{benchmark.module}").run
        perform(run, quick=quick, out=out)

    app.command(name, help=benchmark.help)(measure)


for _name, _benchmark in BENCHMARKS.items():
    _add(_name, _benchmark)
