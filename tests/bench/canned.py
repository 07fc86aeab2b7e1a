"""Numbers that nobody measured, for tests of what is done with numbers."""

from infobus.bench.common.findings import Findings
from infobus.bench.pubsub.benchmark import findings_of
from infobus.bench.pubsub.plan import full_scenarios, quick_scenarios
from infobus.bench.pubsub.scenario import BenchRun, Scenario


def canned_run(scenario: Scenario, repetition: int = 0) -> BenchRun:
    """Every engine has its own, constant speed, by the length of its name."""
    speed = 1000.0 * len(scenario.engine)
    if scenario.kind == "round trip":
        return BenchRun(
            scenario=scenario,
            repetition=repetition,
            payload_bytes=max(53, scenario.size),
            delivered_share=1.0,
            p50_s=1 / speed,
            p99_s=2 / speed,
        )
    return BenchRun(
        scenario=scenario,
        repetition=repetition,
        events=1000,
        payload_bytes=max(53, scenario.size),
        events_per_s=speed,
        delivered_share=1.0,
        declared_s=0.5,
        threads=8,
    )


def canned_runs(*, quick: bool = False) -> list[BenchRun]:
    """What a run on a very even machine would give."""
    scenarios = quick_scenarios() if quick else full_scenarios()
    return [canned_run(scenario, repetition) for repetition in (0, 1) for scenario in scenarios]


def canned_findings(*, quick: bool = False) -> Findings:
    return findings_of(canned_runs(quick=quick), 0.1)
