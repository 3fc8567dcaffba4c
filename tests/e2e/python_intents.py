"""Intents of both forms with a Python client that was generated; run where the package `generated` can be imported."""
# The package is made for the test.
# pyright: reportMissingImports=false

from __future__ import annotations

import sys

from generated import AuthenticatedClient
from generated.api.intents import append_proposal, get_intent, list_intents, put_intent
from generated.models import (
    Intent,
    ListIntentsGeneration,
    NewIntent,
    NewOperationsIntent,
    NewOperationsProposal,
    NewProposal,
    Operation,
    OperationsIntent,
    OperationsProposal,
    Proposal,
)

_USER = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
_TRIGGER_SIG = "0x" + "11" * 65
_SHARED = {"settler": _USER, "nonce": "0x" + "01" * 32, "deadline": "4102444800", "max_fees": [], "min_validations": 1}


def main(url: str, key: str) -> None:
    client = AuthenticatedClient(base_url=url, token=key, prefix="", auth_header_name="x-operator-key")
    first = NewIntent(**_SHARED, op=1, user=_USER, data="0x", events=[], config_sig=_TRIGGER_SIG)
    operation = Operation(op_type=4, user=_USER, data="0x", events=[])
    second = NewOperationsIntent(**_SHARED, fee_payer=_USER, trigger_sig=_TRIGGER_SIG, operations=[operation])
    offer = {"solver": _USER, "deadline": "4102444800", "fees": []}
    for body, kind, proposal, kind_of_proposal in (
        (first, Intent, NewProposal(**offer, data="0x"), Proposal),
        (second, OperationsIntent, NewOperationsProposal(**offer, datas=["0x"]), OperationsProposal),
    ):
        computed = put_intent.sync("0x" + "00" * 32, client=client, body=body)["computed"]
        recorded = put_intent.sync(computed, client=client, body=body)
        assert isinstance(recorded, kind), recorded
        assert isinstance(append_proposal.sync(computed, client=client, body=proposal), kind_of_proposal)
        assert isinstance(get_intent.sync(computed, client=client), kind)
    assert [type(each) for each in list_intents.sync(client=client)] == [Intent]
    every = list_intents.sync(client=client, generation=ListIntentsGeneration.ALL)
    assert [(type(each), each.generation) for each in every] == [(OperationsIntent, 2), (Intent, 1)]
    assert every[0].operations[0].op_type == operation.op_type


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
