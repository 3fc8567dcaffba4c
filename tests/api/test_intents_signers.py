"""The signers and transactions of proposals to intents of both forms: `verified`, `signers`, `transactionHash`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from builders import Wallet
from muniment.chains.catalogue import Chain
from muniment.protocol.evm.address import Address
from muniment.service.context import Context
from muniment.service.running.settings import Settings
from operator_client import (
    SETTLER,
    SOLVER,
    IntentDraft,
    OperationsDraft,
    OperatorClient,
    operations_proposal,
    operator_key,
    proposal,
    signed,
)

ALLOWED, STRANGER = Wallet(80), Wallet(81)
NEWER = Address.parse(Wallet(82).address)
# The tests' settler is the older one of this chain.
BASE = Chain(8453, "Base", settlers=(NEWER, Address.parse(SETTLER)), proposal_signers=(Address.parse(ALLOWED.address),))
# Another chain with the same settler; its file lists no signers.
OPTIMISM = Chain(10, "OP", settlers=(Address.parse(SETTLER),))
FORMS = {"one operation": (IntentDraft(), proposal()), "operations": (OperationsDraft(), operations_proposal())}

pytestmark = pytest.mark.parametrize(("draft", "body"), FORMS.values(), ids=FORMS)


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    chains = tmp_path / "chains.toml"
    chains.write_text(
        f'[[chains]]\nid = 8453\nsettlers = ["{NEWER}", "{SETTLER}"]\nproposal_signers = ["{ALLOWED.address}"]\n'
        f'[[chains]]\nid = 10\nsettler = "{SETTLER}"\n'
    )
    return replace(settings, chains_file=str(chains))


@pytest.fixture
async def operator(client: httpx2.AsyncClient, context: Context) -> OperatorClient:
    return OperatorClient(client, await operator_key(context))


def by(to: str, body: dict[str, Any], chain: Chain, *wallets: Wallet) -> dict[str, Any]:
    """The proposal with a signature of each wallet under the domain of the tests' settler on that chain."""
    for wallet in wallets:
        body = signed(to, body, replace(chain, settlers=(Address.parse(SETTLER),)), wallet)
    return body


@pytest.mark.one_engine
@pytest.mark.parametrize(
    ("wallets", "verified"),
    [
        ([SOLVER], True), ([ALLOWED], True), ([SOLVER, ALLOWED], True), ([ALLOWED, ALLOWED], True),
        ([STRANGER], False), ([SOLVER, STRANGER], False), ([STRANGER, ALLOWED], False),
    ],
    ids=["solver", "allowed", "both", "allowed twice", "stranger", "solver and stranger", "stranger and allowed"],
)  # fmt: skip
async def test_a_proposal_is_verified_when_each_signer_is_its_solver_or_a_signer_of_the_chain(
    operator: OperatorClient,
    draft: IntentDraft,
    body: dict[str, Any],
    wallets: list[Wallet],
    verified: bool,  # noqa: FBT001 - a column of the table
) -> None:
    of = await operator.recorded(draft)
    sent = by(of, body, BASE, *wallets)
    shown = (await operator.append(of, "proposals", sent)).json()
    assert (shown["verified"], shown["signatures"]) == (verified, sent["signatures"])
    # Where the first signature counts on no chain, nothing says under which chain's domain its signer signed.
    if wallets[0] is not STRANGER:
        assert shown["signers"] == list(dict.fromkeys(wallet.address for wallet in wallets))
    assert (await operator.read(of))["proposals"] == [shown]


async def test_a_signer_of_one_chain_counts_on_no_other(
    operator: OperatorClient, draft: IntentDraft, body: dict[str, Any]
) -> None:
    of = await operator.recorded(draft)
    shown = (await operator.append(of, "proposals", by(of, body, OPTIMISM, ALLOWED))).json()
    assert shown["verified"] is False


async def test_a_transaction_of_the_intent_is_also_that_of_its_one_proposal_under_way(
    operator: OperatorClient, draft: IntentDraft, body: dict[str, Any]
) -> None:
    of = await operator.recorded(draft.saying(status="enqueued", proposals=[{**body, "status": "accepted"}]))
    transaction = "0x" + "ab" * 32
    answer = (await operator.move(of, "submitted", transactionHash=transaction)).json()
    assert (answer["transactionHash"], answer["proposals"][0]["transactionHash"]) == (transaction, transaction)
    assert (answer["status"], answer["proposals"][0]["status"]) == ("submitted", "accepted")
