"""A local chain with settlement contracts, and a registry whose watcher follows it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

import intent_bodies
from applications import wait_for_postgres
from chain import LocalChain
from migrated import migrated_directory
from muniment.operate.watch.events import TOPICS, event_in
from muniment.operate.watch.follower import Step
from muniment.operate.watch.heartbeat import Heartbeat
from muniment.operate.watch.limits import WATCH_LIMITS, WatchLimits
from muniment.operate.watch.watcher import Start, Watcher
from muniment.protocol.evm.address import Address
from muniment.protocol.forms import decode_record
from muniment.protocol.intents import rules
from muniment.protocol.intents.lifecycle import Moment
from muniment.protocol.intents.types import AnyNewIntent, AnyNewProposal, StatusChange
from muniment.protocol.wire import decode_text
from muniment.service.app import build_context
from muniment.service.context import Context
from muniment.service.resources.intents import recording, store
from muniment.service.running.settings import Settings
from settler import encode_fulfil, encode_fulfil_operations

CHAIN_ID = 8453
SOLVER = Address.parse("0x" + "50" * 20)
USER = "0x" + "aa" * 20
DEADLINE = "4000000000"
GRACE_S = 3_600


def proposal_body(number: int = 1, **members: Any) -> dict[str, Any]:
    own = {"solver": SOLVER, "data": f"0x{number:02x}", "deadline": DEADLINE, "fees": ["7"]}
    return intent_bodies.proposal_body(number, **{**own, **members})


def intent_body(settler: Address, nonce: int, *, events: int = 1, **members: Any) -> dict[str, Any]:
    """An intent that operators submitted, with one proposal."""
    own = {
        "user": USER, "settler": settler, "deadline": DEADLINE, "data": "0x1234",
        "events": [{"topic": f"0x{number:064x}", "data": "0x"} for number in range(events)],
        "configSig": "0x" + "1b" * 65, "status": "submitted", "proposals": [proposal_body()],
    }  # fmt: skip
    return intent_bodies.intent_body(nonce, **{**own, **members})


def operations_proposal(number: int = 1, operations: int = 2, **members: Any) -> dict[str, Any]:
    """A proposal to an intent of generation 2 with so many operations."""
    body = proposal_body(number, **members)
    return {"datas": [body.pop("data")] * operations, **body}


def operations_body(
    settler: Address, nonce: int, *, operations: int = 2, events: int = 1, **members: Any
) -> dict[str, Any]:
    """An intent of generation 2 that operators submitted, with one proposal; each operation has so many events."""
    operation = {
        "opType": 1, "user": USER, "data": "0x1234",
        "events": [{"topic": f"0x{number:064x}", "data": "0x"} for number in range(events)],
    }  # fmt: skip
    return {
        "feePayer": USER, "settler": settler, "nonce": f"0x{nonce:064x}", "deadline": DEADLINE, "maxFees": [],
        "triggerSig": "0x" + "1b" * 65, "minValidations": 1, "operations": [operation] * operations,
        "status": "submitted", "proposals": [operations_proposal(operations=operations)], **members,
    }  # fmt: skip


def chains_file(
    directory: Path, settlers: Mapping[int, tuple[Address | Sequence[Address], list[str]]], **members: Any
) -> Path:
    """A chains file with settlers, newest first, and URLs of each chain. A single settler has the short form."""
    lines: list[str] = []
    for chain_id, (listed, urls) in settlers.items():
        settler = {"settler": listed} if isinstance(listed, Address) else {"settlers": list(listed)}
        lines += ["[[chains]]", f"id = {chain_id}", f"rpc_urls = {json.dumps(urls)}"]
        lines += [f"{name} = {json.dumps(value)}" for name, value in settler.items()]
        lines += [f"{name} = {value}" for name, value in {"settler_block": 0, "confirmations": 0, **members}.items()]
    path = directory / "chains.toml"
    path.write_text("\n".join(lines))
    return path


def settings_of(directory: Path, file: Path, **settings: Any) -> Settings:
    # A watcher reads no block, so nobody makes directories for them.
    own = {"data_dir": directory / "data", "log_level": "warning", "blocks_url": "database:"}
    given: dict[str, Any] = {**own, **settings}
    return Settings(chains_file=str(file), allow_private_networks=True, settlement_grace_s=GRACE_S, **given)


@dataclass
class Registry:
    """A registry with a watcher that follows to the head on demand."""

    context: Context
    limits: WatchLimits = WATCH_LIMITS
    steps: list[Step] = field(default_factory=list[Step])

    @property
    def now(self) -> Moment:
        return Moment(self.context.clock.now_ms(), GRACE_S)

    async def record(self, body: dict[str, Any]) -> str:
        context, now = self.context, self.now
        new = decode_record(body, AnyNewIntent)
        protocol = context.settings.protocol_name
        checked = rules.check_intent(new, None, protocol=protocol, chains=context.chains, now_ms=now.now_ms)
        await context.database.write(lambda tx: recording.record(tx, checked, "tests", now))
        return "0x" + checked.hash.hex()

    async def propose(self, intent: str, body: dict[str, Any], settler: Address) -> None:
        context, now, raw = self.context, self.now, bytes.fromhex(intent[2:])
        new = decode_record(body, AnyNewProposal)
        protocol, operations = context.settings.protocol_name, len(body["datas"]) if "datas" in body else None
        checked = rules.check_proposal(
            raw, settler, new, operations=operations, protocol=protocol, chains=context.chains
        )
        await context.database.write(lambda tx: recording.append_proposal(tx, raw, checked, "tests", now))

    async def move(self, intent: str, **members: Any) -> None:
        change = msgspec.convert(members, StatusChange, dec_hook=decode_text)
        raw, now = bytes.fromhex(intent[2:]), self.now
        await self.context.database.write(lambda tx: recording.move(tx, raw, change, "tests", now))

    async def find(self, intent: str) -> dict[str, Any]:
        shown = await store.shown(self.context.database, bytes.fromhex(intent[2:]), self.now)
        return json.loads(shown)

    async def status(self, intent: str) -> str:
        return (await self.find(intent))["status"]

    async def follow(self) -> bool:
        """Follow every chain to its head; each step is in `steps`."""
        self.steps.clear()
        return await self.watcher(once=True).watch()

    def watcher(self, *, once: bool = False, start: Start | None = None) -> Watcher:
        """A watcher whose steps go to `steps`."""
        return Watcher(
            context=self.context,
            heartbeat=Heartbeat(self.context, 0.1),
            once=once,
            interval_s=0.1,
            on_step=self.steps.append,
            start=start,
            limits=self.limits,
        )

    async def executions(self, chain_id: int = CHAIN_ID) -> list[tuple[int, bytes, bytes, int, bytes]]:
        return await self.context.database.fetch(
            """SELECT block_number, block_hash, transaction_hash, log_index, subject FROM executions
               WHERE chain_id = ? AND log_index >= 0 ORDER BY block_number, log_index""",
            (chain_id,),
        )  # pyright: ignore[reportReturnType] - rows of these columns


@asynccontextmanager
async def registry(
    directory: Path, file: Path, *, limits: WatchLimits = WATCH_LIMITS, **settings: Any
) -> AsyncGenerator[Registry]:
    migrated_directory(directory / "data")
    with pytest.MonkeyPatch.context() as patch:
        wait_for_postgres(patch)
        context = build_context(settings_of(directory, file, **settings))
        await context.database.migrate()
        try:
            yield Registry(context, limits)
        finally:
            await context.outgoing.close()
            await context.database.close()


@pytest.fixture(scope="module")
def chain() -> Iterator[LocalChain]:
    with LocalChain(CHAIN_ID) as chain:
        yield chain


@pytest.fixture
def settler(chain: LocalChain) -> Address:
    """A new settlement contract for each test, on a shared chain."""
    return chain.deploy("MiniSettlerLegacy")


@pytest.fixture
def node_url(chain: LocalChain) -> str:
    """The URL that the watcher asks; a test module may override this fixture."""
    return chain.url


@pytest.fixture
async def watched(tmp_path: Path, node_url: str, settler: Address, database_url: str) -> AsyncIterator[Registry]:
    file = chains_file(tmp_path, {CHAIN_ID: (settler, [node_url])})
    async with registry(tmp_path, file, database_url=database_url) as made:
        yield made


def canonical(chain: LocalChain, settler: Address) -> list[tuple[int, bytes, bytes, int, bytes]]:
    """Events of the chain, read again in one request."""
    asked = {"address": settler, "fromBlock": "0x0", "toBlock": "latest", "topics": [list(TOPICS)]}
    events = [event_in(log) for log in chain.ask("eth_getLogs", asked)]
    return sorted(
        (event.block_number, event.block_hash, event.transaction_hash, event.log_index, event.subject)
        for event in events
        if event is not None
    )


def execute(chain: LocalChain, body: dict[str, Any], proposal: int = 0, *, settler: Address | None = None) -> str:
    """Execute an intent by one of its proposals, at its settler or another one; the transaction's hash."""
    chosen = body["proposals"][proposal]
    if "operations" in body:
        data = encode_fulfil_operations(body, chosen, [b""] * len(body["operations"]))
    else:
        data = encode_fulfil(body, chosen)
    return chain.send(data, settler or Address(body["settler"]), SOLVER)["transactionHash"]


def fail(chain: LocalChain, to: Address) -> str:
    """Mine a transaction that fails; its hash."""
    sender = chain.ask("eth_accounts")[1]
    done = chain.ask("eth_sendTransaction", {"from": sender, "to": to, "data": "0xdeadbeef", "gas": hex(100_000)})
    while (receipt := chain.ask("eth_getTransactionReceipt", done)) is None:
        pass
    assert receipt["status"] == "0x0"
    return done
