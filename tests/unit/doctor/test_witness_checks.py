"""The checks of the witnesses of the transparency log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from breaking import breaks
from conftest import Clock
from muniment.operate.doctor.examination import CHECKS
from muniment.operate.doctor.findings import Examined, Finding, Level
from muniment.operate.doctor.log import check_witnesses
from muniment.protocol.log.checkpoints import Checkpoint
from muniment.protocol.log.notes import keys_of_log, sign_note
from muniment.service.context import Context
from muniment.service.resources.log.integrator import Integrator
from muniment.service.running.settings import Settings
from witness_site import WitnessSite, sites, write_policy

KEYS = keys_of_log("registry.example/log/1", bytes(32))
LOG = KEYS[0].verifier


@pytest.fixture
def site(clock: Clock) -> Iterator[WitnessSite]:
    with sites(1, lambda: clock() // 1000) as (made,):
        made.trust(LOG)
        yield made


@pytest.fixture
def settings(settings: Settings, tmp_path: Path, site: WitnessSite) -> Settings:
    write_policy(tmp_path / "policy", [site], "none")
    return replace(settings, tlog_name="registry.example", tlog_key="00" * 32, tlog_policy=str(tmp_path / "policy"))


async def sign(context: Context, clock: Clock) -> None:
    """Have the log sign a checkpoint of two entries."""
    clock.advance(seconds=1)
    integrator = Integrator(context)
    await integrator.turn()
    await integrator.close()


async def check(context: Context) -> list[Finding]:
    return await check_witnesses(Examined(context.settings, opened=context.database))


def test_a_log_without_a_policy_has_no_finding(settings: Settings) -> None:
    (row,) = [each for each in CHECKS if each.name == "witnesses"]
    assert row.applies_to(Examined(settings))
    assert not row.applies_to(Examined(replace(settings, tlog_policy="")))
    assert not row.applies_to(Examined(replace(settings, tlog_name="")))


async def test_the_checkpoint_of_a_witness_is_shown(context: Context, clock: Clock) -> None:
    (found,) = await check(context)
    assert (found.level, found.message) == (Level.OK, "not asked: the transparency log has not begun")
    await sign(context, clock)
    (found,) = await check(context)
    assert (found.check, found.level) == ("witness w1", Level.OK)
    assert found.message == "it has 2 entries of the log, the database has 2"


@breaks("witness")
async def test_a_witness_that_does_not_answer_or_knows_another_tree_is_found(
    context: Context, clock: Clock, site: WitnessSite
) -> None:
    await sign(context, clock)
    site.shows_checkpoints = False
    (found,) = await check(context)
    assert (found.level, found.message) == (Level.WARN, "it answers, but shows no checkpoint of this log")
    site.shows_checkpoints = True
    for size, why in ((7, ""), (2, "; the stored tree does not begin with the 2 entries that were signed")):
        site.notes[LOG.name] = sign_note(Checkpoint(LOG.name, size, bytes(32)).text, KEYS, 1)
        (found,) = await check(context)
        assert found.level is Level.FAIL
        assert found.message == f"it has {size} entries of the log, the database has 2{why}"
    policy = Path(context.settings.tlog_policy)
    policy.write_text(f"witness w1 {site.key.verifier.text} http://127.0.0.1:9\nquorum w1\n")
    (found,) = await check(context)
    assert (found.level, found.message) == (Level.WARN, "ConnectError")


@breaks("witnesses")
async def test_a_policy_of_no_use_is_found(context: Context, clock: Clock, site: WitnessSite) -> None:
    await sign(context, clock)
    policy = Path(context.settings.tlog_policy)
    policy.write_text(f"witness w1 {site.key.verifier.text}\nquorum none\n")
    (found,) = await check(context)
    assert (found.level, found.message) == (Level.WARN, "no witness of the policy has a URL")
    policy.write_text("quorum other\n")
    (found,) = await check(context)
    assert found.level is Level.FAIL
    assert found.message.endswith(
        "line 1 of the policy: the quorum is `none`, or a witness or a group of an earlier line"
    )
