"""POST /triggers/sign-params and /triggers/preview: inputs and configs that no wallet should be asked to sign."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from typing import Any

import httpx2
import pytest
from test_triggers_sign_params import ask, params
from trigger_world import check_refusal

from builders import Bundle, Wallet, cron, deploy, event, once
from conftest import NOW_MS
from counted_calls import calls_within

pytestmark = pytest.mark.one_engine

PATHS = ("/triggers/sign-params", "/triggers/preview")
TOPIC = "0x" + "ab" * 32
WRONG_CHECKSUM = "0x5AAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
CALLS_MAX = 100_000
UNKNOWN = "QmRwFzcSwmkbWJuQsFaHcAGvykRU3q82JiYfwGaswNKFG4"


async def check_refused(client: httpx2.AsyncClient, body: dict[str, Any], code: str, pointer: str) -> None:
    for path in PATHS:
        with calls_within(CALLS_MAX):
            response = await ask(client, body, path)
        check_refusal(response, 400, code, pointer=pointer)


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"x": value}
    return value


INPUTS = {
    "missing": ({}, "/input/x"),
    "extra": ({"x": 1, "y": 2}, "/input/y"),
    "proto": ({"x": 1, "__proto__": 2}, "/input/__proto__"),
    "empty-key": ({"x": 1, "": 2}, "/input"),
    "odd-key": ({"x": 1, "a/b~c": 2}, "/input"),
    "10000-keys": ({"x": 1, **{f"k{n}": n for n in range(10_000)}}, "/input/k0"),
    "10^400": ({"x": 10**400}, "/input/x"),
    "-10^400": ({"x": -(10**400)}, "/input/x"),
    "2^53": ({"x": 2**53}, "/input/x"),
    "1.5": ({"x": 1.5}, "/input/x"),
    "1.0": ({"x": 1.0}, "/input/x"),
    "minus-1": ({"x": -1}, "/input/x"),
    "256": ({"x": 256}, "/input/x"),
    "true": ({"x": True}, "/input/x"),
    "null": ({"x": None}, "/input/x"),
    "exponent": ({"x": "1e3"}, "/input/x"),
    "arabic": ({"x": "٣"}, "/input/x"),
    "leading-zero": ({"x": "01"}, "/input/x"),
    "list": ({"x": [1]}, "/input/x"),
    "nested-30": ({"x": nested(30)}, "/input/x"),
    "an-array": ([], "/input"),
    "text": ("x", "/input"),
}


async def test_an_input_that_does_not_fit_the_manifest_is_refused(
    client: httpx2.AsyncClient, nothing_stored: Callable[[], Any], subtests: pytest.Subtests
) -> None:
    cid = await deploy(client, Bundle(inputs={"x": "uint8"}))
    async with nothing_stored():
        for row, (given, pointer) in INPUTS.items():
            code = "invalid-typed-data" if isinstance(given, dict) else "invalid-body"
            with subtests.test(row):
                await check_refused(client, params(cid, input=given), code, pointer)


ADDRESS = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
TYPED = {
    "fraction-of-uint256": ("uint256", 1.5, "/input/x"),
    "2^256": ("uint256", str(2**256), "/input/x"),
    "79-digits": ("uint", "1" * 79, "/input/x"),
    "100000-digits": ("uint", "1" * 100_000, "/input/x"),
    "int8-128": ("int8", 128, "/input/x"),
    "wrong-checksum": ("address", WRONG_CHECKSUM, "/input/x"),
    "ens": ("address", "vitalik.eth", "/input/x"),
    "bool-text": ("bool", "false", "/input/x"),
    "bool-0": ("bool", 0, "/input/x"),
    "string-number": ("string", 1, "/input/x"),
    "string-nul": ("string", "a\0b", "/input/x"),
    "bytes32-short": ("bytes32", "0x" + "ab" * 31, "/input/x"),
    "bytes-odd": ("bytes", "0xabc", "/input/x"),
    "token-checksum": ("Token", {"address": WRONG_CHECKSUM, "chainId": 1}, "/input/x/address"),
    "token-no-chain": ("Token", {"address": ADDRESS}, "/input/x/chainId"),
    "token-extra": ("Token", {"address": ADDRESS, "chainId": 1, "symbol": "T"}, "/input/x/symbol"),
    "amount-number": ("TokenAmount", {"token": {"address": ADDRESS, "chainId": 1}, "amount": 1}, "/input/x/amount"),
    "amount-dot": ("TokenAmount", {"token": {"address": ADDRESS, "chainId": 1}, "amount": "1."}, "/input/x/amount"),
    "amount-minus": ("TokenAmount", {"token": {"address": ADDRESS, "chainId": 1}, "amount": "-1"}, "/input/x/amount"),
}


async def test_a_value_that_does_not_fit_its_type_is_refused(
    client: httpx2.AsyncClient, nothing_stored: Callable[[], Any], subtests: pytest.Subtests
) -> None:
    words = enumerate(sorted({word for word, *_ in TYPED.values()}), 1)
    cids = {word: await deploy(client, Bundle(inputs={"x": word}), Wallet(number)) for number, word in words}
    async with nothing_stored():
        for row, (word, value, pointer) in TYPED.items():
            with subtests.test(row):
                await check_refused(client, params(cids[word], input={"x": value}), "invalid-typed-data", pointer)


CONFIGS: dict[str, tuple[Any, str, str]] = {
    "six-fields": (cron(schedule="* * * * * *"), "invalid-config", "/config/schedule"),
    "minute-61": (cron(schedule="61 * * * *"), "invalid-config", "/config/schedule"),
    "31-february": (cron(schedule="0 0 31 2 *"), "invalid-config", "/config/schedule"),
    "reboot": (cron(schedule="@reboot"), "invalid-config", "/config/schedule"),
    "10KB-schedule": (cron(schedule="*," * 5120), "invalid-config", "/config/schedule"),
    "schedule-number": (cron(schedule=5), "invalid-typed-data", "/config/schedule"),
    "negative-delta": (cron(delta="-1h"), "invalid-config", "/config/delta"),
    "no-delta-time": (cron(delta="0s"), "invalid-config", "/config/delta"),
    "huge-delta": (cron(delta="99999999999999d"), "invalid-config", "/config/delta"),
    "53-weeks": (cron(delta="53w"), "invalid-config", "/config/delta"),
    "past": (cron(endDate=NOW_MS - 1), "invalid-timestamp", "/config/endDate"),
    "now": (cron(endDate=NOW_MS), "invalid-timestamp", "/config/endDate"),
    "past-as-text": (cron(endDate=str(NOW_MS)), "invalid-timestamp", "/config/endDate"),
    "seconds": (cron(endDate=NOW_MS // 1000 + 60), "invalid-timestamp", "/config/endDate"),
    "far-future": (cron(endDate=8_640_000_000_000_001), "invalid-timestamp", "/config/endDate"),
    "end-10^400": (cron(endDate=10**400), "invalid-typed-data", "/config/endDate"),
    "end-negative": (cron(endDate=-1), "invalid-typed-data", "/config/endDate"),
    "end-fraction": (cron(endDate=0.0), "invalid-typed-data", "/config/endDate"),
    "end-hex": (cron(endDate="0x10"), "invalid-typed-data", "/config/endDate"),
    "five-positions": (event(topics=[[TOPIC]] * 5), "invalid-config", "/config/topics"),
    "101-choices": (event(topics=[[], [TOPIC] * 101]), "invalid-config", "/config/topics/1"),
    "31-byte-topic": (event(topics=[["0x" + "ab" * 31]]), "invalid-typed-data", "/config/topics/0/0"),
    "topic-null": (event(topics=[None]), "invalid-typed-data", "/config/topics/0"),
    "flat-topics": (event(topics=[TOPIC]), "invalid-typed-data", "/config/topics/0"),
    "unconfigured-chain": (event(chainId=31337), "invalid-config", "/config/chainId"),
    "chain-checksum": (event(contract=WRONG_CHECKSUM), "invalid-typed-data", "/config/contract"),
    "start-after-end": (once(startDate=NOW_MS + 9, endDate=NOW_MS + 8), "invalid-config", "/config/startDate"),
    "start-too-far": (once(startDate=8_640_000_000_000_001), "invalid-timestamp", "/config/startDate"),
    "type-3": (cron(type=3), "invalid-typed-data", "/config/type"),
    "type-text": (cron(type="0"), "invalid-typed-data", "/config/type"),
    "type-true": (event(type=True), "invalid-typed-data", "/config/type"),
    "type-1.0": (event(type=1.0), "invalid-typed-data", "/config/type"),
    "type-list": (cron(type=[0]), "invalid-typed-data", "/config/type"),
    "empty": ({}, "invalid-typed-data", "/config/type"),
    "member-missing": ({"type": 0, "delta": "1h", "endDate": 0}, "invalid-typed-data", "/config/schedule"),
    "member-extra": (cron(chainId=1), "invalid-typed-data", "/config/chainId"),
    "null": (None, "invalid-body", "/config"),
}


async def test_a_bad_config_is_refused(
    client: httpx2.AsyncClient, nothing_stored: Callable[[], Any], subtests: pytest.Subtests
) -> None:
    cid = await deploy(client)
    async with nothing_stored():
        for row, (config, code, pointer) in CONFIGS.items():
            with subtests.test(row):
                await check_refused(client, params(cid, config=config), code, pointer)


async def test_an_end_in_seconds_is_hinted_at(client: httpx2.AsyncClient) -> None:
    seconds = NOW_MS // 1000 + 3600
    response = await ask(client, params(await deploy(client), config=cron(endDate=seconds)))
    detail = check_refusal(response, 400, "invalid-timestamp")["detail"]
    assert "milliseconds" in detail
    assert str(seconds * 1000) in detail


MEMBERS: dict[str, tuple[dict[str, Any], str, str]] = {
    "fee-exponent": ({"executionFeeLimit": "1e18"}, "invalid-amount", "/executionFeeLimit"),
    "fee-negative": ({"executionFeeLimit": "-1"}, "invalid-amount", "/executionFeeLimit"),
    "fee-hex": ({"executionFeeLimit": "0x10"}, "invalid-amount", "/executionFeeLimit"),
    "fee-79-digits": ({"executionFeeLimit": "1" * 79}, "invalid-amount", "/executionFeeLimit"),
    "fee-2^256": ({"executionFeeLimit": str(2**256)}, "invalid-amount", "/executionFeeLimit"),
    "fee-leading-zero": ({"executionFeeLimit": "00"}, "invalid-amount", "/executionFeeLimit"),
    "fee-number": ({"executionFeeLimit": 0}, "invalid-body", "/executionFeeLimit"),
    "validations-0": ({"minValidations": 0}, "invalid-body", "/minValidations"),
    "validations-256": ({"minValidations": 256}, "invalid-body", "/minValidations"),
    "validations-1.5": ({"minValidations": 1.5}, "invalid-body", "/minValidations"),
    "validations-1.0": ({"minValidations": 1.0}, "invalid-body", "/minValidations"),
    "validations-text": ({"minValidations": "1"}, "invalid-body", "/minValidations"),
    "validations-true": ({"minValidations": True}, "invalid-body", "/minValidations"),
    "validations-10^400": ({"minValidations": 10**400}, "invalid-body", "/minValidations"),
}


async def test_a_bad_limit_is_refused(
    client: httpx2.AsyncClient, nothing_stored: Callable[[], Any], subtests: pytest.Subtests
) -> None:
    cid = await deploy(client)
    async with nothing_stored():
        for row, (changes, code, pointer) in MEMBERS.items():
            with subtests.test(row):
                await check_refused(client, params(cid, **changes), code, pointer)


async def test_depth_and_breadth_are_refused_in_bounded_time(
    client: httpx2.AsyncClient, nothing_stored: Callable[[], Any], subtests: pytest.Subtests
) -> None:
    cid = await deploy(client)
    values = {"200 levels": nested(200), "16,666 levels": nested(100_000 // 6), "wide": [[]] * 60_000}
    async with nothing_stored():
        for (row, value), path in product(values.items(), (*PATHS, "/triggers")):
            text = json.dumps(params(cid, input={})).replace('"input": {}', f'"input": {{"x": {deep_json(value)}}}')
            with subtests.test(row, path=path):
                with calls_within(CALLS_MAX):
                    response = await client.post(path, content=text, headers={"content-type": "application/json"})
                assert response.status_code == 400


def deep_json(value: Any) -> str:
    """JSON without recursion for values that hold one other value each."""
    levels = 0
    while isinstance(value, dict):
        value, levels = value["x"], levels + 1
    return '{"x":' * levels + json.dumps(value) + "}" * levels


async def test_an_input_over_the_cap_of_a_body_is_too_large(
    client: httpx2.AsyncClient, nothing_stored: Callable[[], Any], subtests: pytest.Subtests
) -> None:
    async with nothing_stored():
        for path in (*PATHS, "/triggers"):
            with subtests.test(path):
                response = await ask(client, params(UNKNOWN, input={"x": "a" * 262_145}), path)
                check_refusal(response, 413, "body-too-large")
