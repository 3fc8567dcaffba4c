"""GET /functions: filters, pages and refusals."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from answers import target_of
from builders import Bundle, Wallet, api_key_of, deploy
from muniment.protocol.ipfs.cid import CidParts, decode_cid

UNKNOWN = "QmbFMke1KXqnYyBBWxB74N4c5SBnJMVAiMNRcGu6x1AwQH"


def other_version(cid: str) -> str:
    """The CIDv1 that names the same bundle."""
    return CidParts(1, 0x70, 0x12, decode_cid(cid).digest).text


async def deploy_many(client: httpx2.AsyncClient, count: int) -> list[str]:
    headers = {"x-api-key": await api_key_of(client, Wallet())}
    bundles = [Bundle(version=f"1.0.{number}") for number in range(count)]
    answers = [await client.post("/functions", files=bundle.files, headers=headers) for bundle in bundles]
    return [answer.json()["CID"] for answer in answers]


async def listed(client: httpx2.AsyncClient, query: str = "") -> list[str]:
    response = await client.get(f"/functions{query}")
    assert response.status_code == 200, response.text
    return [record["CID"] for record in response.json()]


async def refused(client: httpx2.AsyncClient, query: str) -> tuple[str, str]:
    response = await client.get(f"/functions?{query}")
    assert response.status_code == 400
    return response.json()["code"], response.json()["errors"][0]["parameter"]


async def test_without_functions_the_list_is_empty(client: httpx2.AsyncClient) -> None:
    response = await client.get("/functions")
    assert (response.text, response.headers["content-type"]) == ("[]", "application/json")
    assert "next" not in response.links


async def test_newest_come_first_unless_sorted_otherwise(client: httpx2.AsyncClient) -> None:
    cids = await deploy_many(client, 3)
    assert await listed(client) == await listed(client, "?sort=-1") == cids[::-1]
    assert await listed(client, "?sort=1") == cids


async def test_a_page_has_ten_records_by_default(client: httpx2.AsyncClient) -> None:
    cids = await deploy_many(client, 12)
    assert await listed(client) == cids[:1:-1]
    assert await listed(client, "?limit=100") == cids[::-1]
    assert await listed(client, "?offset=10") == cids[1::-1]
    assert await listed(client, "?offset=3&limit=2&sort=1") == cids[3:5]
    assert await listed(client, "?offset=9223372036854775807") == []


@pytest.mark.parametrize("sort", [1, -1])
async def test_links_lead_over_every_record_once(client: httpx2.AsyncClient, sort: int) -> None:
    cids = await deploy_many(client, 5)
    seen: list[str] = []
    target = f"/functions?limit=2&sort={sort}&creator={Wallet(1).address}&ignored=%26"
    for _ in range(3):
        response = await client.get(target)
        seen += [record["CID"] for record in response.json()]
        if (following := target_of(response)) is None:
            break
        target = following
    assert seen == cids[::sort]


async def test_a_reader_at_the_end_asks_the_same_link_for_what_comes_later(client: httpx2.AsyncClient) -> None:
    await deploy_many(client, 2)
    link = target_of(await client.get("/functions?sort=1")) or ""
    assert (await client.get(link)).json() == []
    new = await deploy(client, Bundle("New"))
    assert [record["CID"] for record in (await client.get(link)).json()] == [new]


async def test_records_deployed_meanwhile_do_not_move_a_cursor(client: httpx2.AsyncClient) -> None:
    cids = await deploy_many(client, 4)
    link = target_of(await client.get("/functions?limit=2")) or ""
    await deploy(client, Bundle("New"))
    assert [record["CID"] for record in (await client.get(link)).json()] == cids[1::-1]


async def test_cids_select_in_either_version(client: httpx2.AsyncClient) -> None:
    cids = await deploy_many(client, 3)
    later = other_version(cids[2])
    assert later.startswith("bafybei")
    assert await listed(client, f"?cids={cids[0]}") == [cids[0]]
    assert await listed(client, f"?cids={cids[0]},{later}") == [cids[2], cids[0]]
    assert await listed(client, f"?cids={cids[2]},{later},{cids[2]}") == [cids[2]]
    assert await listed(client, f"?cids={cids[0]}%2C{later}&sort=1") == [cids[0], cids[2]]


async def test_unknown_cids_among_known_ones_are_left_out(client: httpx2.AsyncClient) -> None:
    cid = await deploy(client)
    raw = CidParts(1, 0x55, 0x12, decode_cid(cid).digest).text
    assert await listed(client, f"?cids={UNKNOWN},{cid},{raw}") == [cid]
    assert await listed(client, f"?cids={UNKNOWN}") == await listed(client, f"?cids={raw}") == []


async def test_a_hundred_cids_can_be_asked_for(client: httpx2.AsyncClient) -> None:
    cid = await deploy(client)
    digests = [number.to_bytes(32) for number in range(99)]
    many = [CidParts(1, 0x70, 0x12, digest).text for digest in digests]
    assert await listed(client, f"?cids={','.join([*many, cid])}") == [cid]
    assert await refused(client, f"cids={','.join([*many, cid, cid])}") == ("invalid-parameter", "cids")


async def test_a_creator_in_any_spelling_selects(client: httpx2.AsyncClient) -> None:
    cid = await deploy(client, Bundle("One"), Wallet(1))
    await deploy(client, Bundle("Two"), Wallet(2))
    address = Wallet(1).address
    for spelling in (address, address.lower(), "0x" + address[2:].upper()):
        assert await listed(client, f"?creator={spelling}") == [cid]


async def test_filters_hold_together(client: httpx2.AsyncClient) -> None:
    one, two = await deploy(client, Bundle("One"), Wallet(1)), await deploy(client, Bundle("Two"), Wallet(2))
    assert await listed(client, f"?cids={one},{two}&creator={Wallet(2).address}") == [two]
    assert await listed(client, f"?cids={one}&creator={Wallet(2).address}") == []


def checksum_broken(address: str) -> str:
    return address[:-1] + address[-1].swapcase() if address[-1].isalpha() else address[:2] + address[2:].swapcase()


REFUSED: dict[str, tuple[str, str, str]] = {
    "no CID": ("cids=", "invalid-cid", "cids"),
    "an empty CID among others": (f"cids={UNKNOWN},,{UNKNOWN}", "invalid-cid", "cids"),
    "an empty CID at the end": (f"cids={UNKNOWN},", "invalid-cid", "cids"),
    "a space before a CID": (f"cids={UNKNOWN},%20{UNKNOWN}", "invalid-cid", "cids"),
    "upper-case base32": (f"cids={other_version(UNKNOWN).upper()}", "invalid-cid", "cids"),
    "a letter outside of base58": (f"cids={UNKNOWN[:-1]}0", "invalid-cid", "cids"),
    "another text than a CID": ("cids=%27%20OR%201=1--", "invalid-cid", "cids"),
    "5 KB of a CID": ("cids=Qm" + "x" * 5_000, "invalid-cid", "cids"),
    "a short creator": ("creator=0x1234", "invalid-address", "creator"),
    "a wrong checksum": (f"creator={checksum_broken(Wallet(1).address)}", "invalid-address", "creator"),
    "no creator": ("creator=", "invalid-address", "creator"),
    "no name": ("name=", "invalid-text", "name"),
    "a name of one character": ("name=%C3%A9", "invalid-text", "name"),
    "a name of 101 characters": ("name=" + "%C3%A9" * 101, "invalid-text", "name"),
    "a name with U+0000": ("name=ab%00", "invalid-text", "name"),
    "a name twice": ("name=Hello&name=Hello", "invalid-parameter", "name"),
    "limit 0": ("limit=0", "invalid-parameter", "limit"),
    "limit 101": ("limit=101", "invalid-parameter", "limit"),
    "limit -1": ("limit=-1", "invalid-parameter", "limit"),
    "a limit with an exponent": ("limit=1e1", "invalid-parameter", "limit"),
    "a limit in other digits": ("limit=%D9%A3", "invalid-parameter", "limit"),
    "a limit with a space": ("limit=10%20", "invalid-parameter", "limit"),
    "a limit twice": ("limit=10&limit=10", "invalid-parameter", "limit"),
    "offset -1": ("offset=-1", "invalid-parameter", "offset"),
    "offset 2^63": (f"offset={2**63}", "invalid-parameter", "offset"),
    "sort 0": ("sort=0", "invalid-parameter", "sort"),
    "sort 2": ("sort=2", "invalid-parameter", "sort"),
    "sort by word": ("sort=asc", "invalid-parameter", "sort"),
    "a made-up cursor": ("cursor=abc", "invalid-parameter", "cursor"),
    "a cursor beside an offset": ("cursor=Zi0x&offset=1", "invalid-parameter", "cursor"),
}


@pytest.mark.one_engine
async def test_a_wrong_query_is_refused_with_its_parameter(
    client: httpx2.AsyncClient, subtests: pytest.Subtests
) -> None:
    for row, (query, *expected) in REFUSED.items():
        with subtests.test(row):
            assert await refused(client, query) == tuple(expected)


@pytest.mark.one_engine
async def test_the_wrong_element_of_a_list_is_named(client: httpx2.AsyncClient) -> None:
    response = await client.get(f"/functions?cids={UNKNOWN},{UNKNOWN},Qm")
    assert "(element 3)" in response.json()["detail"]


async def test_unknown_parameters_are_ignored(client: httpx2.AsyncClient) -> None:
    cid = await deploy(client)
    assert await listed(client, "?unknown=1&unknown=2&Limit=0&") == [cid]


async def test_doubled_leading_slashes_are_one(client: httpx2.AsyncClient) -> None:
    cid = await deploy(client)
    answers: list[Any] = [(await client.get(f"http://test{path}")).json() for path in ("//functions", "///functions")]
    assert [[record["CID"] for record in answer] for answer in answers] == [[cid], [cid]]


async def test_a_creator_who_joins_an_older_function_appears_after_the_cursor(client: httpx2.AsyncClient) -> None:
    first, second = Bundle("First"), Bundle("Second")
    await deploy(client, first, Wallet(1))
    await deploy(client, second, Wallet(2))
    mine = {"creator": Wallet(2).address, "sort": 1}
    page = await client.get("/functions", params=mine)
    assert [each["name"] for each in page.json()] == ["Second"]
    await deploy(client, first, Wallet(2))
    more = await client.get(target_of(page) or "")
    assert [each["name"] for each in more.json()] == ["First"]
    assert [each["name"] for each in (await client.get("/functions", params=mine)).json()] == ["Second", "First"]
