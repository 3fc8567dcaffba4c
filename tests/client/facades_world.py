"""Both facades of the client, called alike, against a service."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import reduce
from itertools import count, islice
from typing import Any, Protocol

import httpx2

from builders import Bundle, cron
from muniment.client import AsyncRegistry, Bundle as ClientBundle, KeySigner, Registry, Retry, TriggerDraft
from muniment.protocol.forms import decode_record
from muniment.protocol.intents.hashes import intent_hash
from muniment.protocol.intents.types import AnyNewIntent, AnyNewProposal
from muniment.protocol.ipfs.cid import DAG_PB, Cid, cid_v1
from operator_client import FAR_DEADLINE, IntentDraft, OperationsDraft, operations_proposal, proposal

CHAIN_ID = 8453
# Pauses are as in production, but for their length: no test waits for one.
QUICK = Retry(chance=lambda: 0.02)
numbers = count(1_000)


class Calls(Protocol):
    """The operations of a registry by their names, such as `triggers.create`."""

    def do(self, name: str, /, *given: Any, **named: Any) -> Any:
        """Call an operation that answers once."""
        ...

    def every(self, name: str, /, **named: Any) -> list[Any]:
        """All records of a listing."""
        ...

    def pages(self, name: str, number: int, **named: Any) -> list[Any]:
        """The first pages of what is followed for ever."""
        ...

    def close(self) -> None: ...


def _reach(registry: object, name: str) -> Any:
    return reduce(getattr, name.split("."), registry)


@dataclass
class BlockingCalls:
    """`Registry`."""

    registry: Registry
    http: httpx2.Client

    def do(self, name: str, /, *given: Any, **named: Any) -> Any:
        return _reach(self.registry, name)(*given, **named)

    def every(self, name: str, /, **named: Any) -> list[Any]:
        return list(self.do(name, **named))

    def pages(self, name: str, number: int, **named: Any) -> list[Any]:
        following = self.do(name, **named)
        try:
            return list(islice(following, number))
        finally:
            following.close()

    def close(self) -> None:
        self.registry.close()
        self.http.close()


class AwaitingCalls:
    """`AsyncRegistry`, on a loop of its own."""

    def __init__(self, registry: AsyncRegistry, http: httpx2.AsyncClient) -> None:
        self.registry = registry
        self.http = http
        self.runner = asyncio.Runner()

    def do(self, name: str, /, *given: Any, **named: Any) -> Any:
        async def called() -> Any:
            return await _reach(self.registry, name)(*given, **named)

        return self.runner.run(called())

    def every(self, name: str, /, **named: Any) -> list[Any]:
        async def listed() -> list[Any]:
            return [each async for each in _reach(self.registry, name)(**named)]

        return self.runner.run(listed())

    def pages(self, name: str, number: int, **named: Any) -> list[Any]:
        async def followed() -> list[Any]:
            found: list[Any] = []
            following = _reach(self.registry, name)(**named)
            async for page in following:
                found.append(page)
                if len(found) == number:
                    break
            await following.aclose()
            return found

        return self.runner.run(followed())

    def close(self) -> None:
        self.runner.run(self.http.aclose())
        self.runner.close()


def calls_of(facade: str, url: str, **given: Any) -> Calls:
    """The facade `sync` or `aio`. It makes short pauses."""
    named: dict[str, Any] = {"retry": QUICK, **given}
    timeout_s = named.get("timeout_s", 30)
    if facade == "sync":
        http = plain_http(timeout_s)
        return BlockingCalls(Registry(url, http=http, **named), http)
    plain = httpx2.AsyncClient(verify=False, timeout=timeout_s)
    return AwaitingCalls(AsyncRegistry(url, http=plain, **named), plain)


def plain_http(timeout_s: float = 30) -> httpx2.Client:
    """An HTTP client without certificates, which take fifty milliseconds to load. No test here uses TLS."""
    return httpx2.Client(verify=False, timeout=timeout_s)


def signer(number: int = 0) -> KeySigner:
    """A wallet; without a number, an unused one."""
    return KeySigner((number or next(numbers)).to_bytes(32))


def bundle(**members: Any) -> ClientBundle:
    """A new bundle, unless `members` give its name."""
    given: dict[str, Any] = {"name": f"Function {next(numbers)}", **members}
    made = Bundle(**given)
    return ClientBundle(made.manifest, made.wasm)


def draft(cid: str, **members: Any) -> TriggerDraft:
    """A trigger to be signed."""
    own = {"description": "Every six hours", "functionCid": cid, "version": "1.0.0", "config": cron(), "input": {}}
    return decode_record({**own, **members}, TriggerDraft)


def new_intent(generation: int = 1, **members: Any) -> AnyNewIntent:
    """A new intent."""
    kind = IntentDraft if generation == 1 else OperationsDraft
    return decode_record(kind(next(numbers), FAR_DEADLINE, members).body, AnyNewIntent)


def new_proposal(generation: int = 1, number: int = 1, **members: Any) -> AnyNewProposal:
    """A proposal to an intent of the generation."""
    return decode_record((proposal if generation == 1 else operations_proposal)(number, **members), AnyNewProposal)


def spelled_v1(cid: str) -> str:
    """The same CID as a CIDv1."""
    return str(cid_v1(DAG_PB, Cid.parse(cid).digest))


def hash_of(intent: AnyNewIntent) -> str:
    return "0x" + intent_hash(intent).hex()
