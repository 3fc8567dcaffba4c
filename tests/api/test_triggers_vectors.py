"""POST /triggers with requests that wallets' libraries and a careless encoder made (tests/vectors/evm)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from answers import ok
from conformance import check_answer
from counted_calls import calls_within
from muniment.protocol.functions.rules import _INPUT_TYPE
from muniment.protocol.ipfs.cid import Cid, cid_v0
from muniment.service.app import Application
from muniment.service.context import Context
from without_server import InProcess

pytestmark = pytest.mark.one_engine

VECTORS = Path(__file__).parents[1] / "vectors" / "evm"
CALLS_MAX = 1_000_000  # the first one also imports


def cases(name: str) -> list[dict[str, Any]]:
    return json.loads((VECTORS / f"{name}.json").read_text("utf-8"))["cases"]


def declared(types: Any) -> Mapping[str, str]:
    """The inputs of the function that a caller means: those of its types that a manifest can declare."""
    members = types.get("Input", []) if isinstance(types, dict) else []
    if not isinstance(members, list):
        return {}
    return {member["name"]: member["type"] for member in members if _INPUT_TYPE.fullmatch(member["type"])}


def filled(case: dict[str, Any]) -> dict[str, Any]:
    """The body of a case, with its `fill` done."""
    values = case["values"]
    if fill := case.get("fill"):
        *path, last = fill["path"]
        holder = values
        for name in path:
            holder = holder[name]
        holder[last] = list(range(fill["count"]))
    typed_data = {"types": case["types"], "values": values}
    return {
        "description": case["id"],
        "typedData": typed_data,
        "sig": case.get("sig") or case["signature"],
        "signer": case["signer"],
    }


def as_bundle(body: dict[str, Any]) -> dict[str, Any]:
    """The body with the CID of a bundle: some vectors have one of a single file, which is refused before all else."""
    values = body["typedData"]["values"]
    if isinstance(values, dict) and values.get("functionCid", "").startswith("bafkrei"):
        values["functionCid"] = str(cid_v0(Cid.parse(values["functionCid"]).digest))
    return body


async def posted(context: Context, case: dict[str, Any], body: dict[str, Any]) -> httpx2.Response:
    """The answer of a registry that has just the function that the case is about."""

    async def find_inputs(_: bytes) -> Mapping[str, str]:
        return declared(case["types"])

    transport = InProcess(Application(replace(context, find_inputs=find_inputs)))
    hooks = {"response": [check_answer]}
    async with httpx2.AsyncClient(transport=transport, base_url="http://test", event_hooks=hooks) as client:
        headers = {"content-type": "application/json"}
        with calls_within(CALLS_MAX):
            return await client.post("/triggers", content=json.dumps(body), headers=headers)


# v 0 and 1 are lifted to 27 and 28, as hardware wallets count from 0.
LIFTED = {"PN14"}


@pytest.mark.parametrize("is_bundle", [False, True], ids=["as-it-is", "with-the-cid-of-a-bundle"])
async def test_hostile_vectors_are_refused_and_honest_ones_are_one_record(
    context: Context, nothing_stored: Callable[[], Any], *, is_bundle: bool
) -> None:
    def body_of(case: dict[str, Any]) -> dict[str, Any]:
        return as_bundle(filled(case)) if is_bundle else filled(case)

    answers: list[dict[str, Any]] = []
    hostile: list[dict[str, Any]] = []
    for case in cases("eip712_trigger_hostile"):
        if case["expect"]["verdict"] == "accept" or case["id"] in LIFTED:
            answers.append(ok(await posted(context, case, body_of(case))).json())
        else:
            hostile.append(case)
    assert answers == [answers[0]] * 4
    async with nothing_stored():
        for case in hostile:
            response = await posted(context, case, body_of(case))
            assert response.status_code in {400, 413}, (case["id"], response.text)
            if case["expect"]["class"] == "malformed":
                assert response.json()["code"] != "signature-mismatch", (case["id"], response.text)


# Arrays and structs of one's own are valid to sign, but no manifest declares them.
UNDECLARED = {"P13", "P14", "P15", "P16", "P17", "P25", "P28"}


async def test_valid_vectors_of_bundles_are_registered_and_shown_as_given(context: Context) -> None:
    registered = 0
    for case in cases("eip712_trigger_valid"):
        if case["id"] in UNDECLARED or not case["values"]["functionCid"].startswith("Qm"):
            continue
        body = filled(case)
        response = await posted(context, case, body)
        assert response.status_code == 200, (case["id"], response.text)
        trigger = response.json()
        shown = {name: trigger[name] for name in ("input", "config", "types")}
        values = case["values"]
        assert json.dumps(shown) == json.dumps(
            {"input": values["input"], "config": values["config"], "types": case["types"]}
        )
        registered += 1
    assert registered > 5
