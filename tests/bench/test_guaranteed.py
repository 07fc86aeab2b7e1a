"""The measurement of a ledger against the disk gives plausible numbers."""

from infobus.bench import guaranteed


def test_rates_are_measured_in_one_run(tmp_path, monkeypatch):
    monkeypatch.setattr(guaranteed, "TURN_S", 0.02)
    rates = guaranteed.measure_ledger(tmp_path, rounds=1)
    assert rates.raw > 0
    assert set(rates.ratios()) == {"one", "threads", "batches"}
    assert rates.batches > rates.one
