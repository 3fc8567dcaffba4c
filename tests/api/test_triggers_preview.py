"""POST /triggers/preview: the effects of a trigger in plain words; nothing is stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from test_triggers_sign_params import INPUT, INPUTS, ask, params

from builders import Bundle, Wallet, cron, deploy, event, once
from conftest import NOW_MS, Clock
from muniment.chains.catalogue import NATIVE
from muniment.protocol.wire import TIMESTAMP_MS_MAX

pytestmark = pytest.mark.one_engine

HOUR = 3_600_000
TRANSFER = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"


async def preview(client: httpx2.AsyncClient, body: dict[str, Any]) -> dict[str, Any]:
    response = await ask(client, body, "/triggers/preview")
    assert response.status_code == 200, response.text
    return response.json()


async def test_a_schedule_shows_its_next_five_runs(
    client: httpx2.AsyncClient, nothing_stored: Callable[[], Any]
) -> None:
    cid = await deploy(client)
    async with nothing_stored():
        shown = await preview(client, params(cid))
    assert shown["nextRuns"] == [
        "2026-11-21T00:00:00.000Z", "2026-11-21T06:00:00.000Z", "2026-11-21T12:00:00.000Z",
        "2026-11-21T18:00:00.000Z", "2026-11-22T00:00:00.000Z",
    ]  # fmt: skip
    assert cid in shown["summary"][0]
    assert "0 */6 * * *" in shown["summary"][0]


async def test_a_common_schedule_is_put_into_words(client: httpx2.AsyncClient) -> None:
    cid = await deploy(client)
    shown = await preview(client, params(cid, config=cron(schedule="30 9 * * 1")))
    assert "on Mondays at 09:30 (30 9 * * 1, UTC)" in shown["summary"][0]
    shown = await preview(client, params(cid, config=cron(schedule="1-4 9 * * 1")))
    assert "on the schedule 1-4 9 * * 1 (UTC)" in shown["summary"][0]


async def test_an_amount_of_a_known_token_is_named(client: httpx2.AsyncClient) -> None:
    cid = await deploy(client, Bundle(inputs={"much": "TokenAmount", "what": "Token", "other": "Token"}))
    usdc = {"address": "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913", "chainId": "8453"}
    given = {
        "much": {"token": usdc, "amount": "1.5"}, "what": {"address": NATIVE, "chainId": "100"},
        "other": {**usdc, "chainId": "10"},
    }  # fmt: skip
    text = "\n".join((await preview(client, params(cid, input=given)))["summary"])
    assert 'Its input much is 1.5 USDC (1500000) on Base, signed as {"token":{' in text
    assert "(xDAI on Gnosis)." in text
    assert "on OP Mainnet" not in text


async def test_an_amount_is_named_after_the_token_that_belongs_to_it(client: httpx2.AsyncClient) -> None:
    inputs = {"chainId": "uint32", "token": "address", "amount": "uint256"}
    cid = await deploy(client, Bundle(inputs=inputs))
    usdc = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"
    for chain_id, of_token, of_amount in (
        (8453, f'"{usdc}" (USDC on Base)', "1 USDC (1000000) on Base"),
        (10, f'"{usdc}"', f"1000000 base units of {usdc} on OP Mainnet"),
    ):
        given = {"chainId": chain_id, "token": usdc, "amount": "1000000"}
        summary = (await preview(client, params(cid, input=given)))["summary"]
        assert summary[2:5] == [
            f"Its input chainId is {chain_id}.", f"Its input token is {of_token}.", f"Its input amount is {of_amount}."
        ]  # fmt: skip


async def test_the_next_runs_are_after_now(client: httpx2.AsyncClient, clock: Clock) -> None:
    cid = await deploy(client)
    clock.advance(hours=6)
    assert (await preview(client, params(cid)))["nextRuns"][0] == "2026-11-21T06:00:00.000Z"


async def test_no_run_is_shown_after_the_end(client: httpx2.AsyncClient) -> None:
    config = cron(schedule="0 * * * *", endDate=NOW_MS + 2 * HOUR)
    shown = await preview(client, params(await deploy(client), config=config))
    assert shown["nextRuns"] == ["2026-11-20T20:00:00.000Z", "2026-11-20T21:00:00.000Z"]
    assert "until 20 November 2026, 21:48:00.123 UTC" in shown["summary"][0]


async def test_only_a_schedule_has_run_times(client: httpx2.AsyncClient) -> None:
    cid = await deploy(client)
    for config in (event(), once()):
        assert (await preview(client, params(cid, config=config)))["nextRuns"] == [], config


async def test_a_fee_limit_is_shown_in_dollars(client: httpx2.AsyncClient) -> None:
    shown = await preview(client, params(await deploy(client), executionFeeLimit="50000000000000000"))
    assert "with a fee of at most 0.05 US dollars (50000000000000000)." in " ".join(shown["summary"])


def warned(shown: dict[str, Any], *texts: str) -> list[bool]:
    return [any(text in warning for warning in shown["warnings"]) for text in texts]


async def test_warnings_come_when_they_are_due(client: httpx2.AsyncClient) -> None:
    cid = await deploy(client)
    texts = ("never ends", "no limit on the fee", "before its first run is due", "of that name accepts it")
    assert warned(await preview(client, params(cid)), *texts) == [True, True, False, True]
    careful = params(cid, config=cron(endDate=NOW_MS + 10 * HOUR), executionFeeLimit="1")
    assert warned(await preview(client, careful), *texts) == [False, False, False, True]
    too_short = params(cid, config=cron(endDate=NOW_MS + 1), executionFeeLimit="1")
    assert warned(await preview(client, too_short), *texts) == [False, False, True, True]


async def test_a_time_in_another_unit_is_noticed(client: httpx2.AsyncClient) -> None:
    cid, micros, seconds = await deploy(client), NOW_MS * 1000, NOW_MS // 1000
    for config, said in (
        (cron(endDate=micros), f"It ends after the year 9999. Are these microseconds? Write {NOW_MS}."),
        (event(endDate=str(micros)), f"It ends after the year 9999. Are these microseconds? Write {NOW_MS}."),
        (once(startDate=micros), f"It begins after the year 9999. Are these microseconds? Write {NOW_MS}."),
        (once(startDate=seconds), f"It begins before the year 2002. Are these seconds? Write {seconds}000."),
    ):  # fmt: skip
        assert said in (await preview(client, params(cid, config=config)))["warnings"]
    for config in (cron(), cron(endDate=253_402_300_799_999), once(startDate=NOW_MS), once(endDate=NOW_MS + HOUR)):
        assert warned(await preview(client, params(cid, config=config)), "Are these") == [False], config


async def test_every_input_is_named_with_its_value(client: httpx2.AsyncClient) -> None:
    cid = await deploy(client, Bundle(inputs=INPUTS))
    text = "\n".join((await preview(client, params(cid, input=INPUT)))["summary"])
    for name in INPUTS:
        assert f"Its input {name} is " in text
    assert "ünïcode 💡" in text
    assert str(2**256 - 1) in text


async def test_an_event_is_described_with_its_contract_chain_and_topics(client: httpx2.AsyncClient) -> None:
    shown = await preview(client, params(await deploy(client), config=event()))
    summary = shown["summary"][0]
    for part in (Wallet(99).address, "8453", "0x" + "ab" * 32, "topic 1 anything"):
        assert part in summary


async def test_well_known_events_and_addresses_are_named_beside_what_is_signed(client: httpx2.AsyncClient) -> None:
    word = "0x" + "0" * 24 + Wallet(98).address[2:].lower()
    config = event(topics=[[TRANSFER], [], [word]])
    summary = (await preview(client, params(await deploy(client), config=config)))["summary"][0]
    assert f"topic 0 among {TRANSFER} (the event Transfer(address,address,uint256)), topic 1 anything, " in summary
    assert f"topic 2 among {word} (the address {Wallet(98).address})," in summary


async def test_a_single_run_is_described_with_its_start(client: httpx2.AsyncClient) -> None:
    cid = await deploy(client)
    assert "as soon as possible" in (await preview(client, params(cid, config=once())))["summary"][0]
    started = await preview(client, params(cid, config=once(startDate=NOW_MS)))
    assert "from 20 November 2026, 19:48:00.123 UTC on" in started["summary"][0]


async def test_times_beyond_the_year_9999_are_described_too(client: httpx2.AsyncClient) -> None:
    cid = await deploy(client)
    for far_ms in (253_402_300_799_999, 253_402_300_800_000, TIMESTAMP_MS_MAX):
        for config in (cron(endDate=far_ms), once(endDate=far_ms), once(startDate=far_ms)):
            summary = (await preview(client, params(cid, config=config)))["summary"][0]
            assert "31 December 9999, 23:59:59.999 UTC" in summary or str(far_ms) in summary


async def test_the_last_runs_of_the_calendar_are_shown(client: httpx2.AsyncClient, clock: Clock) -> None:
    cid = await deploy(client)
    clock.now_ms = 253_402_300_799_999 - HOUR
    assert (await preview(client, params(cid, config=cron(schedule="0 0 29 2 *"))))["nextRuns"] == []


HIDDEN = {
    "\u202e": "\\u202e", "\u2066": "\\u2066", "\u200b": "\\u200b", "\u2028": "\\u2028",
    "\u2029": "\\u2029", "\u00a0": "\\u00a0", "\u00ad": "\\u00ad", "\ufeff": "\\ufeff",
    "\u0085": "\\u0085", "\u034f": "\\u034f", "\u3164": "\\u3164", "\u2800": "\\u2800",
    "\ufe0f": "\\ufe0f", "\U000e0041": "\\udb40\\udc41", "\U000e0100": "\\udb40\\udd00",
}  # fmt: skip


async def test_invisible_and_direction_changing_characters_are_written_out(
    client: httpx2.AsyncClient, subtests: pytest.Subtests
) -> None:
    cid = await deploy(client, Bundle(inputs={"text": "string"}))
    for hidden, shown in HIDDEN.items():
        with subtests.test(shown):
            told = (await preview(client, params(cid, input={"text": f"größer ≥ 1{hidden}✓ 😀 \\"})))["summary"]
            assert f'Its input text is "größer ≥ 1{shown}✓ 😀 \\\\".' in told
