"""`muniment tlog verify` keeps which records a log has, and tells a second entry of one whenever it comes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from log_site import LogSite, SiteEpoch, trigger_fact
from muniment.cli.main import main
from muniment.protocol.log.entries import BackfilledFact, LogFact
from muniment.protocol.wire import iso_time

Verify = Callable[[], tuple[int, str]]


@pytest.fixture
def site() -> LogSite:
    """A log that began now: the command knows no other time."""
    now_s = int(time.time())
    epoch = SiteEpoch(at_s=now_s)
    key, time_key = (each.verifier for each in epoch.keys)
    at = iso_time(now_s * 1000)
    first = LogFact(key.name, key.text, ("-", "0", "-"), "new", at, time_key.text)
    epoch.entries = [first.data, BackfilledFact(at).data]
    site = LogSite([epoch])
    site.grow(300, now_s)
    return site


@pytest.fixture
def verify(site: LogSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Verify:
    monkeypatch.setattr("muniment.client.Registry", lambda _url: site.client())

    def run() -> tuple[int, str]:
        done = CliRunner().invoke(main, ["tlog", "verify", "http://site", "--state", str(tmp_path / "seen.json")])
        return done.exit_code, done.output

    return run


@pytest.mark.parametrize("kept", [True, False])
def test_a_second_entry_is_reported_whenever_it_comes(
    site: LogSite, verify: Verify, tmp_path: Path, *, kept: bool
) -> None:
    assert verify()[0] == 0
    assert verify()[0] == 0
    known = tmp_path / "seen.json.known"
    assert known.stat().st_size > 300 * 32
    if not kept:
        known.unlink()
        assert verify()[0] == 0
        site.asked.clear()
        assert verify()[0] == 0
        assert "/log/1/tile/entries/000" not in site.asked  # it is known again
    site.newest.entries.append(trigger_fact(7, site.newest.at_s).data)
    status, said = verify()
    assert (status, said.count("WRONG")) == (1, 2), said
    assert f"WRONG entry 300 of site.example/log/1: the log has two entries of trigger {trigger_fact(7).sig}" in said


def test_a_file_that_is_ahead_of_the_state_reports_no_fault(site: LogSite, verify: Verify, tmp_path: Path) -> None:
    assert verify()[0] == 0
    state = (tmp_path / "seen.json").read_bytes()
    site.grow(600, site.newest.at_s)
    assert verify()[0] == 0
    (tmp_path / "seen.json").write_bytes(state)  # killed before it was written
    assert verify()[0] == 0


def test_a_file_of_another_form_is_named(verify: Verify, tmp_path: Path) -> None:
    (tmp_path / "seen.json.known").write_bytes(b"no database" * 100)
    status, said = verify()
    assert (status, "seen.json.known cannot be used" in said) == (2, True), said
