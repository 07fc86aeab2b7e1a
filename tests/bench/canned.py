"""Numbers that nobody measured, for tests of what is done with numbers."""

from infobus.bench.bars import judge
from infobus.bench.model import Report, Run, Scenario
from infobus.bench.plan import full_scenarios, quick_scenarios


def canned_run(scenario: Scenario, repetition: int = 0) -> Run:
    """Every engine has its own, constant speed, by the length of its name."""
    speed = 1000.0 * len(scenario.engine)
    if scenario.kind == "round trip":
        return Run(
            scenario=scenario,
            repetition=repetition,
            payload_bytes=max(53, scenario.size),
            delivered_share=1.0,
            p50_s=1 / speed,
            p99_s=2 / speed,
        )
    return Run(
        scenario=scenario,
        repetition=repetition,
        events=1000,
        payload_bytes=max(53, scenario.size),
        events_per_s=speed,
        delivered_share=1.0,
        declared_s=0.5,
        threads=8,
    )


def canned_report(*, quick: bool = False) -> Report:
    """What a run on a very even machine would give."""
    scenarios = quick_scenarios() if quick else full_scenarios()
    runs = [canned_run(scenario, repetition) for repetition in (0, 1) for scenario in scenarios]
    return Report(
        machine={"cores": "2"}, runs=runs, import_s=0.1, bars=judge(runs, 0.1), left_out={}
    )
