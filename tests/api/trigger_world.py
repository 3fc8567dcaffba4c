"""For tests of triggers over HTTP: refusals, pages and links, and signatures that no honest wallet makes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import httpx2
import pytest
from btclib_secp256k1.keys import pubkey_from_prvkey

from answers import target_of
from builders import DOMAIN, Wallet
from muniment.protocol.evm.typed_data import compile_types, digest
from muniment.service.storage.database import Database, Work

# SEC 2 section 2.4.1: the order of secp256k1.
ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141


def digest_of(body: dict[str, Any]) -> bytes:
    """The digest that the signature of a body of POST /triggers is over."""
    typed_data = body["typedData"]
    return digest(DOMAIN, compile_types(typed_data["types"], "Trigger").struct_hash(typed_data["values"]))


def sign_with_nonce(signed: bytes, wallet: Wallet, nonce: int) -> str:
    """ECDSA with a nonce of one's choice (SEC 1 section 4.1.3): each gives another valid signature, low s."""
    point = pubkey_from_prvkey(nonce, compressed=False)
    r, parity = int.from_bytes(point[1:33]) % ORDER, point[64] & 1
    s = pow(nonce, -1, ORDER) * (int.from_bytes(signed) + r * wallet.number) % ORDER
    if s > ORDER // 2:
        s, parity = ORDER - s, parity ^ 1
    return "0x" + r.to_bytes(32).hex() + s.to_bytes(32).hex() + bytes([27 + parity]).hex()


def high_twin(sig: str) -> str:
    """The other signature that recovers to the same key: n - s, and v of the other parity."""
    s, v = int(sig[66:130], 16), int(sig[130:], 16)
    return sig[:66] + (ORDER - s).to_bytes(32).hex() + bytes([55 - v]).hex()


def check_refusal(
    response: httpx2.Response, status: int, code: str, *, pointer: str | None = None, parameter: str | None = None
) -> dict[str, Any]:
    """Assert that `response` refuses with these, and give its problem document."""
    problem = response.json()
    assert (response.status_code, problem["code"]) == (status, code), problem
    if pointer is not None:
        assert pointer in [fault.get("pointer") for fault in problem["errors"]], problem
    if parameter is not None:
        assert parameter in [fault.get("parameter") for fault in problem["errors"]], problem
    return problem


def next_of(response: httpx2.Response) -> str | None:
    """The target of the next link."""
    return target_of(response)


def prev_of(response: httpx2.Response) -> str | None:
    """The target of the link to the rows that come later."""
    return target_of(response, "prev")


async def read_page(client: httpx2.AsyncClient, target: str) -> tuple[list[Any], str | None]:
    """The rows of a page, and the target of the next one."""
    response = await client.get(target)
    assert response.status_code == 200, response.text
    return response.json(), next_of(response)


async def walk(client: httpx2.AsyncClient, target: str) -> list[Any]:
    """Every row from `target` on, page by page along the next links until a page is empty or the last."""
    rows: list[Any] = []
    following: str | None = target
    while following is not None:
        page, following = await read_page(client, following)
        rows += page
        if not page:
            break
    return rows


async def at_once(database: Database, *calls: Awaitable[httpx2.Response]) -> list[httpx2.Response]:
    """The answers to calls each of which writes, and all of which have read before the first one writes."""
    return await _gathered(database, calls, asyncio.Semaphore(len(calls)))


async def in_turn(database: Database, *calls: Awaitable[httpx2.Response]) -> list[httpx2.Response]:
    """Likewise, and they write one after the other in the order of the calls."""
    return await _gathered(database, calls, asyncio.Semaphore(1))


async def _gathered(
    database: Database, calls: tuple[Awaitable[httpx2.Response], ...], turn: asyncio.Semaphore
) -> list[httpx2.Response]:
    write, waiting = database.write, asyncio.Semaphore(0)
    go_on = asyncio.Event()

    async def write_after_the_others(work: Work[Any], *, order: bytes = b"", urgent: bool = False) -> Any:
        waiting.release()
        await go_on.wait()
        async with turn:
            return await write(work, order=order, urgent=urgent)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "write", write_after_the_others)
        answering: list[asyncio.Future[httpx2.Response]] = []
        async with asyncio.timeout(60):
            for call in calls:  # an event and a semaphore wake those who wait in the order in which they came
                answering.append(asyncio.ensure_future(call))
                await waiting.acquire()
        go_on.set()
        return await asyncio.gather(*answering)
