"""Recorded runs on a local chain, and what it takes to make them again."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest_asyncio

import guest_functions
from chain import LocalChain
from guest_modules import NEW, PIN, Texts, module
from muniment.chains.catalogue import FIRST_SETTLER, Chain
from muniment.chains.settlers import KNOWN
from muniment.guest.sandbox import Sandbox
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hex import Bytes32, HexString
from muniment.protocol.evm.signature import Signature
from muniment.protocol.intents.types import Generation
from muniment.protocol.runs.hashes import evidence, hash_of
from muniment.protocol.runs.payloads import EventPayload, event_payload, time_payload
from muniment.protocol.runs.types import NewRun, Run, RunAnswer, RunContext, RunRecord, RunToken
from muniment.protocol.triggers.types import Trigger
from muniment.protocol.wire import decode_text, encode, iso_time
from muniment.relayer.runner.answers import Answers
from muniment.relayer.runner.attempt import Consent, Function, Settling, attempt
from muniment.relayer.runner.context import settlers_of
from muniment.relayer.runner.engine import this_engine
from muniment.relayer.runner.notes import missed
from muniment.relayer.runner.record import recorded_run
from muniment.relayer.runner.settlers import Generations
from muniment.relayer.schedule.due import Due, Gap, Occurrence
from muniment.relayer.verify.report import Verification
from muniment.relayer.verify.verifying import Verifier
from pinned_world import CHAIN_ID, Nodal, nodal_of

SIG = Signature.parse("0x" + "11" * 64 + "1b")
OWNER = Address.parse("0x" + "ab" * 20)
RECIPIENT = Address.parse("0x" + "cd" * 20)
RELAYER = Address.parse("0x" + "ee" * 20)
MINUTE = 60
EVERY_MINUTE = {"type": 0, "schedule": "* * * * *", "delta": "10m", "endDate": 0}
FEE_LIMIT = 1_000
# What is allocated comes after any texts.
_RUNTIME = NEW.replace("65536", "3000000") + PIN


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox.open() as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def nodal(chain: LocalChain) -> AsyncIterator[Nodal]:
    async with nodal_of(chain) as made:
        yield made


@dataclass
class Recorded:
    """A run as a relayer made and recorded it, and what it takes to make it again."""

    nodal: Nodal
    sandbox: Sandbox
    run: Run
    trigger: Trigger
    function: Function
    chain: dict[str, Any]

    async def verify(
        self, *urls: str, run: Run | None = None, offline: bool = False, others: Sequence[Chain] = (), **members: Any
    ) -> Verification:
        """What comes of a record, by default the true one; `others` are chains of the chains file without a node."""
        pins = self.nodal.pins(*urls, **{**self.chain, **members})
        chains = {each.id: each for each in (*others, *(nodes.chain for nodes in pins.nodes.values()))}
        verifier = Verifier(
            sandbox=self.sandbox, chains=chains, pins=None if offline else pins,
            now_ms=lambda: 1_000 * self.nodal.newest_s, engine=this_engine(),
        )  # fmt: skip
        return await verifier.verify(run or self.run, self.trigger, self.function)

    @property
    def settler(self) -> RunToken:
        """The one settlement contract that the function was told."""
        assert isinstance(self.run.context, RunContext)
        (found,) = self.run.context.settlers
        return found

    def changed(self, **members: Any) -> Run:
        """The record with other members, and with the hash and the evidence that go with them."""
        return proved(msgspec.structs.replace(self.run, **members))

    def at_block(self, number: int | None = None, **members: Any) -> Run:
        """The record with another block, wherever it names its one block."""
        (block,) = self.run.blocks
        if number is not None:
            found = self.nodal.chain.ask("eth_getBlockByNumber", hex(number), False)
            members = {"number": number, "hash": Bytes32.parse(found["hash"]), **members}
        other = msgspec.structs.replace(block, **members)
        plain = encode(self.run).replace(encode(block), encode(other))
        return proved(msgspec.json.decode(plain, type=Run, dec_hook=decode_text))

    def asked(self, place: int = 0, **members: Any) -> Run:
        """The record with other members of one of its questions."""
        assert isinstance(self.run.inputs, list)
        inputs = [*self.run.inputs]
        inputs[place] = msgspec.structs.replace(inputs[place], **members)
        return self.changed(inputs=inputs)

    def with_answer(self, place: int = 0, **members: Any) -> Run:
        """The record with another answer to one of its questions."""
        return self.asked(place, answer=msgspec.convert(members, RunAnswer, dec_hook=decode_text))


def trigger_of(config: dict[str, Any], input: dict[str, Any], created_s: int) -> Trigger:
    example = {
        **Trigger.example, "sig": SIG, "signer": OWNER, "config": config, "input": input, "endDate": 0,
        "executionFeeLimit": str(FEE_LIMIT), "createdAt": iso_time(1_000 * created_s),
    }  # fmt: skip
    return msgspec.convert(example, Trigger, dec_hook=decode_text)


async def recorded(
    nodal: Nodal, sandbox: Sandbox, name: str, input: dict[str, Any], *, due: Due, config: dict[str, Any], **chain: Any
) -> Recorded:
    """A run of a sample function as a relayer makes it, with the one node of the chain."""
    wasm, inputs = guest_functions.kept(name), guest_functions.INPUTS[name]
    return await recorded_of(nodal, sandbox, wasm, inputs, input, due=due, config=config, **chain)


async def recorded_of(
    nodal: Nodal, sandbox: Sandbox, wasm: bytes, inputs: Any, input: dict[str, Any], *, due: Due,
    config: dict[str, Any], generations: Mapping[Address, Generation] = KNOWN, **chain: Any,
) -> Recorded:  # fmt: skip
    """The same of any module. By default the settlement contract is a published one, which is not asked.

    `generations` are those of settlement contracts that the relayer does not ask.
    """
    nodal.mine(due.timestamp_ms // 1_000 + 600)
    chain = {"settlers": (FIRST_SETTLER,), **chain}
    pins = nodal.pins(**chain)
    settlers = settlers_of([pins.nodes[CHAIN_ID].chain])
    function = Function(await sandbox.compile_module(wasm), inputs)
    trigger = trigger_of(config, input, due.timestamp_ms // 1_000 - 3_600)
    event = None if due.event is None else due.event.log
    answers = Answers(pins=pins, timestamp_ms=due.timestamp_ms, event=event)
    made, intents = await attempt(
        due, Consent.of(trigger), function, sandbox=sandbox, answers=answers,
        settling=Settling(settlers=settlers, generations=Generations(pins.nodes, {**generations})),
    )  # fmt: skip
    new, _ = recorded_run(due, made, intents, answers=answers, settlers=settlers, engine=this_engine())
    return Recorded(nodal, sandbox, shown(new), trigger, function, chain)


def proved(run: Run) -> Run:
    """A record with its hash and the evidence of its one relayer, as a registry computes them."""
    assert isinstance(run.inputs, list)
    assert isinstance(run.context, RunContext)
    found = Bytes32.from_raw(evidence(run.context, run.inputs, run.blocks))
    records = [RunRecord(relayer=run.relayer, evidence=found, created_at=iso_time(0))]
    return msgspec.structs.replace(run, hash=Bytes32.from_raw(hash_of(run)), records=records)


def shown(new: NewRun) -> Run:
    """A record as the registry shows it."""
    members: dict[str, Any] = {
        name: value for name, value in msgspec.json.decode(encode(new)).items() if value is not None
    }
    if not members["logsCut"]:
        del members["logsCut"]
    members["outputs"] = [{**each, "recorded": True} for each in members["outputs"]]
    own: dict[str, Any] = {"relayer": RELAYER, "status": "valid", "validations": 1, "records": [], "conflicts": []}
    own["hash"] = Bytes32.from_raw(hash_of(new))
    return proved(msgspec.convert({**members, **own, "createdAt": iso_time(0)}, Run, dec_hook=decode_text))


def next_minute(nodal: Nodal) -> int:
    return (nodal.newest_s // MINUTE + 2) * MINUTE


def cron(second: int) -> Due:
    return Due(SIG, 0, time_payload(1_000 * second), 1_000 * second, 1_000 * second)


async def balance_run(nodal: Nodal, sandbox: Sandbox, **chain: Any) -> Recorded:
    """A run that asked a contract for a balance, and sent a transfer."""
    token = nodal.chain.deploy("MockERC20", "Test", "T", 6)
    nodal.chain.mint(token, OWNER, 5)
    second = next_minute(nodal)
    nodal.mine(second - 10)
    values = {"amount": "1", "recipient": str(RECIPIENT), "fee": "1", "above": "4"}
    input = {"chainId": CHAIN_ID, "token": str(token), **values}
    return await recorded(nodal, sandbox, "balance", input, due=cron(second), config=EVERY_MINUTE, **chain)


async def price_run(nodal: Nodal, sandbox: Sandbox, **chain: Any) -> Recorded:
    """A run that asked for a price, which a feed gives, and sent a transfer."""
    token = nodal.chain.deploy("MockERC20", "Test", "T", 6)
    feed = nodal.feed(10**8, nodal.newest_s)
    second = next_minute(nodal)
    nodal.mine(second - 1)
    values = {"amount": "1", "recipient": str(RECIPIENT), "fee": "1", "below": str(2 * 10**18)}
    input = {"chainId": CHAIN_ID, "token": str(token), **values}
    feeds = {token: (feed, 3_600)}
    made = cron(second)
    return await recorded(nodal, sandbox, "price", input, due=made, config=EVERY_MINUTE, feeds=feeds, **chain)


async def event_run(nodal: Nodal, sandbox: Sandbox, name: str = "event", *, is_there: bool = True) -> Recorded:
    """A run of a sample function for an event, which `is_there`, or was made up."""
    feed = nodal.feed(1, 1)
    head = nodal.newest
    block = nodal.chain.ask("eth_getBlockByNumber", hex(head), False)
    (log,) = nodal.chain.ask("eth_getLogs", {"fromBlock": hex(head), "toBlock": hex(head), "address": feed})
    topics = [*log["topics"][:-1], log["topics"][-1] if is_there else "0x" + "66" * 32]
    payload = EventPayload(
        CHAIN_ID, Bytes32.parse(block["hash"]), int(log["logIndex"], 16), feed,
        tuple(Bytes32.parse(each) for each in topics), HexString.parse(log["data"]),
    )  # fmt: skip
    at_ms = 1_000 * int(block["timestamp"], 16)
    occurrence = Occurrence(payload, head, at_ms // 1_000, Bytes32.parse(log["transactionHash"]), 0)
    due = Due(SIG, 1, event_payload(payload), at_ms, at_ms, occurrence)
    config = {"type": 1, "chainId": CHAIN_ID, "contract": str(feed), "topics": [], "delta": "1h", "endDate": 0}
    input = {"feeToken": str(RECIPIENT), "fee": "1"}
    return await recorded(nodal, sandbox, name, input, due=due, config=config)


def asking(*questions: tuple[str, dict[str, Any]], lines: Sequence[str] = (), abort: str = "") -> bytes:
    """A function that logs lines, asks and logs each answer, and then aborts with a text, if one is given."""
    texts = Texts()
    body = [f"(call $log._log (i32.const 3) {texts.at(line)})" for line in lines]
    body += [
        f"(call $log._log (i32.const 3) (call $environment._{query}Query {texts.at(json.dumps(params))}))"
        for query, params in questions
    ]
    if abort:
        body.append(f"(call $env.abort {texts.at(abort)} (i32.const 0) (i32.const 0) (i32.const 0))")
    named = dict.fromkeys(f"environment._{query}Query" for query, _ in questions)
    return module(
        " ".join(body), imports=["log._log", *named, *(["env.abort"] if abort else [])], texts=texts, runtime=_RUNTIME
    )


async def abort_run(nodal: Nodal, sandbox: Sandbox) -> Recorded:
    """A run that asked for balances, and a contract that failed, and then aborted."""
    token = nodal.chain.deploy("MockERC20", "Test", "T", 6)
    nodal.chain.mint(token, OWNER, 5)
    listed = [{"address": token.lower(), "chainId": CHAIN_ID}]
    balances = {"owner": OWNER, "chainIds": [CHAIN_ID], "usdMinAmount": "0", "tokens": listed, "tokenFilter": 0}
    failing = {"to": token.lower(), "chainId": CHAIN_ID, "data": "0x12345678"}
    wasm = asking(("relevantTokens", balances), ("evmCall", failing), abort="enough")
    return await asking_run(nodal, sandbox, wasm)


async def asking_run(nodal: Nodal, sandbox: Sandbox, wasm: bytes) -> Recorded:
    """A run of a module without inputs."""
    second = next_minute(nodal)
    nodal.mine(second - 5)
    return await recorded_of(nodal, sandbox, wasm, {}, {}, due=cron(second), config=EVERY_MINUTE)


async def missed_run(nodal: Nodal, sandbox: Sandbox) -> Recorded:
    """A note of two ticks that a relayer missed."""
    second = next_minute(nodal)
    made = await recorded(nodal, sandbox, "nothing", {}, due=cron(second), config=EVERY_MINUTE)
    due = cron(second)
    gap = Gap(SIG, 0, due.payload, 2, due.timestamp_ms - 1_000 * MINUTE, due.timestamp_ms)
    made.run = shown(missed(gap, "gap", this_engine()))
    return made
