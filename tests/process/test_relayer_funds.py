"""A relayer tells when the wallet of an intent has less than it spends; a real chain says what the wallet has."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx2
import pytest
from structlog.testing import capture_logs

import warm
from builders import TriggerDraft, Wallet, once
from chain import CHAIN_TESTS, SECONDS_MAX, LocalChain
from guest_functions import INPUTS, bundle
from muniment.chains.catalogue import NATIVE
from muniment.client import Bundle, KeySigner, Registry as Client, Unreachable
from muniment.guest.types import GuestIntent, GuestRun, IntentKind
from muniment.outgoing import SMALL_ANSWER_BYTES_MAX
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hex import Bytes32, HexString
from muniment.protocol.evm.signature import Signature
from muniment.protocol.intents.types import FIRST, SECOND, AnyNewIntent, Generation
from muniment.protocol.runs.payloads import time_payload
from muniment.protocol.runs.texts import Engine
from muniment.protocol.runs.types import NewRun, NewRunOutput
from muniment.relayer.figures import Figures
from muniment.relayer.runner.forms import formed
from muniment.relayer.runner.funds import READS_MAX, Funds
from muniment.relayer.runner.pinning import Pins
from pinned_world import CHAIN_ID, Json, Nodal, chain, nodal
from service import Service
from watching_world import chains_file

__all__ = ["chain", "nodal"]
pytestmark = CHAIN_TESTS

SIG = Signature.parse("0x" + "11" * 64 + "1b")
OWNER, PAYER, SETTLER, OTHER = (Address.parse("0x" + pair * 20) for pair in ("ab", "ba", "22", "cc"))


def transfer(*tokens: tuple[Address, int], user: Address = OWNER) -> dict[str, Any]:
    transfers = [{"token": token, "amount": str(amount), "recipient": OTHER} for token, amount in tokens]
    return {"opType": 1, "user": user, "chainId": CHAIN_ID, "transfers": transfers}


def swap(token: Address, amount: int) -> dict[str, Any]:
    return {
        "opType": 0, "user": OWNER, "sourceChain": CHAIN_ID, "destinationChain": CHAIN_ID,
        "tokensIn": [{"token": token, "amount": str(amount)}],
        "tokensOut": [{"token": OTHER, "minAmount": "6", "recipient": OTHER}],
    }  # fmt: skip


def made(*sent: tuple[IntentKind, Mapping[str, Any]], generation: Generation = SECOND) -> list[AnyNewIntent]:
    """Intents as a function sends them, in the form of the registry."""
    intents: list[GuestIntent] = []
    for number, (kind, body) in enumerate(sent, 1):
        shared = {
            "settler": SETTLER, "deadline": "4000000000", "nonce": f"0x{number:064x}", "events": [], "user": OWNER,
            "feePayer": OWNER, "maxFees": [],
        }  # fmt: skip
        intents.append(GuestIntent(kind, {**shared, **body}))
    run, found = formed(
        GuestRun(result="intents", intents=tuple(intents)), sig=SIG, min_validations=1,
        generations={SETTLER: generation},
    )  # fmt: skip
    assert run.result == "intents", run.text
    return [each.intent for each in found]


class Registry:
    """Takes lines for the logs of intents, or is silent."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, str, str | None]] = []
        self.is_silent = False
        self.intents = self

    async def log(self, hash: str, level: str, data: str, *, id: str | None = None) -> None:
        if self.is_silent:
            raise Unreachable("nobody answers", sent=False)
        self.lines.append((hash, level, data, id))


class Told:
    """What is told of the funds of a run."""

    def __init__(self, pins: Pins) -> None:
        self.figures = Figures()
        self.registry = Registry()
        self.funds = Funds(nodes=pins.nodes, figures=self.figures, registry=self.registry)  # pyright: ignore[reportArgumentType] - as far as it is used

    async def of(self, intents: list[AnyNewIntent]) -> list[Json]:
        """The lines of the log about funds, after one run with these intents."""
        outputs = [NewRunOutput(hash=Bytes32.parse(f"0x{number:064x}")) for number in range(len(intents))]
        run = NewRun(
            trigger_sig=SIG, trigger_type=0, trigger_data=HexString.from_raw(time_payload(60_000)), timestamp=60_000,
            result="intents", engine=Engine("tests"), outputs=outputs,
        )  # fmt: skip
        with capture_logs() as lines:
            await self.funds.tell(run, intents)
        return [dict(each) for each in lines]

    @property
    def count(self) -> int:
        text = self.figures.text()
        (line,) = [
            each for each in text.splitlines() if each.startswith('muniment_relayer_failures_total{kind="funds"')
        ]
        return int(line.rpartition(" ")[2])


def token_of(nodal: Nodal, balance: int, allowance: int, wallet: Address = OWNER) -> Address:
    token = nodal.chain.deploy("MockERC20", "Test", "T", 6)
    nodal.chain.mint(token, wallet, balance)
    nodal.chain.approve(token, wallet, SETTLER, allowance)
    return token


async def test_a_balance_or_an_allowance_that_is_too_small_is_told(nodal: Nodal) -> None:
    poor, closed, empty, enough = (
        token_of(nodal, *each) for each in ((5, 100), (100, 6), (0, 100), (7, 7))
    )  # fmt: skip
    url = nodal.node()
    told = Told(nodal.pins(url))
    lines = await told.of(
        made(("intent", {"operations": [transfer(*((each, 7) for each in (poor, closed, empty, enough)))]}))
    )
    shared = {
        "event": "a wallet has too little for an intent", "log_level": "warning", "trigger": SIG, "chain": CHAIN_ID,
        "user": OWNER, "settler": SETTLER,
    }  # fmt: skip
    assert lines == [
        {**shared, "token": poor, "funds": {"needs": "7", "balance": "5", "allowance": "100"}},
        {**shared, "token": closed, "funds": {"needs": "7", "balance": "100", "allowance": "6"}},
        {**shared, "token": empty, "funds": {"needs": "7", "balance": "0"}},  # the reader asks no further
    ]
    assert told.count == 3
    assert sum(each["method"] == "eth_call" for calls in nodal.proxies[0].requests for each in calls) == 1
    # The intent gets the same words, so its owner and webhooks learn of it.
    assert [(hash_, level) for hash_, level, _, _ in told.registry.lines] == [("0x" + "00" * 32, "warning")] * 3
    assert told.registry.lines[0][2] == (
        f"{OWNER} needs 7 of {poor} on chain {CHAIN_ID}, has 5, and lets {SETTLER} take 100"
    )
    assert len({id_ for _, _, _, id_ in told.registry.lines}) == 3


@pytest.mark.parametrize("generation", [FIRST, SECOND])
async def test_what_several_intents_and_their_fees_spend_is_added(nodal: Nodal, generation: Generation) -> None:
    token = token_of(nodal, 100, 59)
    fees = [{"token": token, "amount": "10"}]
    intents = made(
        ("transfer", {**transfer((token, 20)), "maxFees": fees}), ("swap", {**swap(token, 30)}), generation=generation
    )
    told = Told(nodal.pins())
    (line,) = await told.of(intents)
    assert line["funds"] == {"needs": "60", "balance": "100", "allowance": "59"}
    nodal.chain.approve(token, OWNER, SETTLER, 60)
    assert await told.of(intents) == []


async def test_fees_are_those_of_the_payer(nodal: Nodal) -> None:
    token = token_of(nodal, 5, 5)
    nodal.chain.mint(token, PAYER, 9)
    body = {"operations": [transfer((token, 5))], "feePayer": PAYER, "maxFees": [{"token": token, "amount": "9"}]}
    (line,) = await Told(nodal.pins()).of(made(("intent", body)))
    assert (line["user"], line["funds"]) == (PAYER, {"needs": "9", "balance": "9", "allowance": "0"})


async def test_of_the_native_coin_only_the_balance_counts(nodal: Nodal) -> None:
    nodal.chain.set_balance(OWNER, 6)
    intents = made(("intent", {"operations": [transfer((NATIVE, 6))]}))
    told = Told(nodal.pins())
    assert await told.of(intents) == []
    nodal.chain.set_balance(OWNER, 5)
    (line,) = await told.of(intents)
    assert (line["token"], line["funds"]) == (NATIVE, {"needs": "6", "balance": "5"})


async def test_a_node_that_fails_is_left_for_the_next_and_none_means_no_line(nodal: Nodal) -> None:
    poor = token_of(nodal, 5, 5)

    def broken(call: Json, answer: Json) -> Json:
        return {**answer, "result": "0x12"} if call["method"] == "eth_call" else answer

    def long(call: Json, answer: Json) -> Json:  # thirty-two wallets may be read at once
        return {**answer, "more": "x" * SMALL_ANSWER_BYTES_MAX} if call["method"] == "eth_call" else answer

    intents = made(("intent", {"operations": [transfer((poor, 7))]}))
    for urls, count in (
        ((nodal.node(broken),), 0),
        ((nodal.node(long),), 0),
        (("http://127.0.0.1:9",), 0),
        ((nodal.node(broken), nodal.chain.url), 1),
    ):
        told = Told(nodal.pins(*urls))
        assert len(await told.of(intents)) == count
    elsewhere = {**transfer((poor, 7)), "chainId": 1}
    assert await told.of(made(("intent", {"operations": [elsewhere]}))) == []


async def test_a_token_that_tells_nothing_is_passed_over(nodal: Nodal) -> None:
    poor, reverting = token_of(nodal, 5, 5), nodal.chain.deploy("RevertingToken")
    intents = made(("intent", {"operations": [transfer((reverting, 7), (OTHER, 7), (poor, 7))]}))
    (line,) = await Told(nodal.pins()).of(intents)
    assert line["token"] == poor


async def test_a_registry_that_takes_no_line_changes_nothing(nodal: Nodal) -> None:
    poor = token_of(nodal, 5, 5)
    told = Told(nodal.pins())
    told.registry.is_silent = True
    assert len(await told.of(made(("intent", {"operations": [transfer((poor, 7))]})))) == 1


async def test_a_run_with_many_tokens_and_wallets_costs_a_bounded_number_of_reads(nodal: Nodal) -> None:
    poor = token_of(nodal, 0, 0)
    wallets = [Address.parse("0x" + bytes([number] * 20).hex()) for number in range(1, 33)]
    body = {"operations": [transfer((poor, 7), (NATIVE, 10**30), user=each) for each in wallets]}
    url = nodal.node()
    lines = await Told(nodal.pins(url)).of(made(("intent", body)))
    asked = sum(each["method"] == "eth_call" for calls in nodal.proxies[0].requests for each in calls)
    assert asked == READS_MAX // 2  # one call for the two tokens of each wallet
    assert 0 < len(lines) <= READS_MAX  # fewer where a busy machine answers late


def test_the_program_tells_it_in_its_own_log_and_in_that_of_the_intent(chain: LocalChain, tmp_path: Path) -> None:
    owner, settler = Wallet(1), chain.deploy("MiniSettlerLegacy")
    token = chain.deploy("MockERC20", "Test", "T", 6)
    chain.mint(token, Address.parse(owner.address), 5)
    chains_file(tmp_path, {CHAIN_ID: (settler, [chain.url])})
    made = bundle("transfer", "B")
    with Service(tmp_path / "data") as service, httpx2.Client(verify=False, timeout=60) as http:
        with Client(service.url, signer=KeySigner((7).to_bytes(32))) as registry:
            cid = str(registry.functions.deploy(Bundle(made.manifest, made.wasm)).cid)
        draft = TriggerDraft(
            cid, config=once(startDate=0, delta="1h"), wallet=owner, inputs={**INPUTS["transfer"]},
            input={"chainId": CHAIN_ID, "token": token, "amount": "4", "recipient": OTHER, "fee": "2"},
        )  # fmt: skip
        assert http.post(f"{service.url}/triggers", json=draft.signed()).status_code == 200
        (tmp_path / "relayer.key").write_text(service.run("operators", "add", "relayer"))
        (tmp_path / "relayer.toml").write_text(
            f'[relayer]\nregistry = "{service.url}"\noperator_key_file = "relayer.key"\nchains_file = "chains.toml"\n'
        )
        done = warm.run("relayer", "--config", str(tmp_path / "relayer.toml"), "--any", "--once", timeout=SECONDS_MAX)
        assert done.returncode == 0, done.stderr
        (intent,) = http.get(f"{service.url}/intents", params={"generation": "all"}).json()
    (line,) = [each for each in done.stderr.splitlines() if "a wallet has too little for an intent" in each]
    assert "funds={'needs': '6', 'balance': '5', 'allowance': '0'}" in line
    said = f"{owner.address} needs 6 of {token} on chain {CHAIN_ID}, has 5, and lets {settler} take 0"
    assert said in [each["data"] for each in intent["logs"] if each["level"] == "warning"]
