"""`sigs` and `cids`: with commas, as the same parameter again, or both, since clients write lists in either way."""

from __future__ import annotations

import httpx2
import pytest
from test_functions_list import deploy_many
from trigger_world import check_refusal

from answers import ok, target_of
from builders import TriggerDraft, deploy, register

SIG = "0x" + "1" * 128 + "1b"


async def _three(client: httpx2.AsyncClient, path: str) -> list[str]:
    """Names of three records that the listing at `path` has, newest first."""
    if path == "/functions":
        return (await deploy_many(client, 3))[::-1]
    cid = await deploy(client)
    return [(await register(client, TriggerDraft(cid, fee_limit=str(limit))))["sig"] for limit in range(3)][::-1]


@pytest.mark.parametrize(("path", "name", "member"), [("/triggers", "sigs", "sig"), ("/functions", "cids", "CID")])
async def test_a_list_is_the_same_in_every_spelling(
    client: httpx2.AsyncClient, path: str, name: str, member: str
) -> None:
    newest, middle, oldest = await _three(client, path)
    for query in (
        f"{name}={newest},{oldest}",
        f"{name}={newest}%2C{oldest}",
        f"{name}={newest}&{name}={oldest}",
        f"{name}={newest}&limit=5&{name}={oldest},{newest}",
    ):
        shown = ok(await client.get(f"{path}?{query}")).json()
        assert [each[member] for each in shown] == [newest, oldest], query
        assert middle not in query


async def test_the_link_to_the_next_page_keeps_the_whole_list(client: httpx2.AsyncClient) -> None:
    newest, middle, oldest = await _three(client, "/triggers")
    first = await client.get(f"/triggers?sigs={newest}&sigs={middle},{oldest}&limit=2")
    rest = await client.get(target_of(first) or "")
    assert [each["sig"] for each in (*first.json(), *rest.json())] == [newest, middle, oldest]


@pytest.mark.one_engine
async def test_a_list_has_at_most_a_hundred_elements_however_it_is_written(client: httpx2.AsyncClient) -> None:
    for parts in ([100], [1] * 100, [50, 50], [1, 98, 1]):
        query = "&".join("sigs=" + ",".join([SIG] * count) for count in parts)
        assert ok(await client.get(f"/triggers?{query}")).json() == [], parts
        refused = await client.get(f"/triggers?{query}&sigs={SIG}")
        check_refusal(refused, 400, "invalid-parameter", parameter="sigs")


@pytest.mark.one_engine
async def test_an_element_of_a_later_part_is_checked_too(client: httpx2.AsyncClient) -> None:
    for query in (f"sigs={SIG}&sigs=", f"sigs={SIG}&sigs={SIG},0x12"):
        check_refusal(await client.get(f"/triggers?{query}"), 400, "invalid-signature", parameter="sigs")


@pytest.mark.one_engine
async def test_a_parameter_that_is_not_a_list_comes_once(client: httpx2.AsyncClient) -> None:
    for query in ("active=true&active=true", "limit=1&limit=1", f"sigs={SIG}&sort=1&sort=1"):
        check_refusal(await client.get(f"/triggers?{query}"), 400, "invalid-parameter")
