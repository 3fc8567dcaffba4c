"""Signed triggers to measure with: cron triggers with five inputs, of a hundred signers in turn."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import islice, permutations, product
from typing import Any, Final

from muniment.protocol.evm.address import Address
from muniment.protocol.evm.signature import address_of_key, personal_digest, sign
from muniment.protocol.evm.typed_data import Encoder, compile_types, digest
from muniment.protocol.triggers.typed_data import registry_domain, types_for
from muniment.protocol.wire import encode

KEYS: Final = [number.to_bytes(32) for number in range(7, 107)]
SIGNERS: Final = [str(address_of_key(key)) for key in KEYS]
KEY, SIGNER = KEYS[0], SIGNERS[0]
DOMAIN: Final = registry_domain("Mimic")
INPUTS: Final = {
    "token": "Token", "amount": "TokenAmount", "recipient": "address", "slippage": "uint16", "note": "string",
}  # fmt: skip
_TOKEN: Final = {"address": SIGNER, "chainId": 8453}
_VALUES: Final[dict[str, Any]] = {
    "token": _TOKEN, "amount": {"token": _TOKEN, "amount": "12.5"}, "recipient": SIGNER, "slippage": 50,
    "note": "Every six hours",
}  # fmt: skip
# The CID of the bundle that `deploy` in ours.py uploads is put in; verification alone needs none that exists.
CID: Final = "QmV2xSyG76zpH98n3aZfr4FVMwC64nbKnQ13vEjyHidmMZ"


def manifest() -> dict[str, Any]:
    return {"version": "1.0.0", "name": "Benchmark", "description": "Takes five inputs", "inputs": INPUTS}


def signed_triggers(numbers: Iterable[int], cid: str = CID) -> list[bytes]:
    """Bodies of POST /triggers; those of two numbers differ in what is signed."""
    types = types_for(INPUTS, 0)
    encoder = compile_types(types, "Trigger")
    return [_signed(number, types, _values(number, cid), encoder) for number in numbers]


def consent(body: bytes) -> bytes:
    """The body of POST /triggers/deactivate for a trigger of the first signer."""
    sig = json.loads(body)["sig"]
    return encode({"triggerSigs": [sig], "signature": sign(personal_digest(sig.encode()), KEY)})


def with_types_of_their_own(count: int) -> list[bytes]:
    """Bodies of which no two have the same types: members of Trigger and Config in orders of their own."""
    types, bodies = types_for(INPUTS, 0), list[bytes]()
    orders = product(permutations(types["Trigger"]), permutations(types["Config"]))
    for number, (trigger, config) in enumerate(islice(orders, count)):
        own = {**types, "Trigger": [*trigger], "Config": [*config]}
        bodies.append(_signed(number, own, _values(number, CID), compile_types(own, "Trigger")))
    return bodies


def with_values_of_their_own(count: int) -> list[bytes]:
    """Bodies for one function of which no two share an address, a text, an amount or a time."""
    types = types_for(INPUTS, 0)
    encoder = compile_types(types, "Trigger")
    return [_signed(number, types, _unlike_values(number), encoder) for number in range(count)]


def _signed(number: int, types: dict[str, Any], values: dict[str, Any], encoder: Encoder) -> bytes:
    signer = number % len(SIGNERS)
    sig = sign(digest(DOMAIN, encoder.struct_hash(values)), KEYS[signer])
    typed_data = {"types": types, "values": values}
    return encode({"description": "Benchmark", "typedData": typed_data, "sig": sig, "signer": SIGNERS[signer]})


def _values(number: int, cid: str) -> dict[str, Any]:
    return {
        "functionCid": cid, "version": "1.0.0", "input": _VALUES,
        "config": {"type": 0, "schedule": "0 */6 * * *", "delta": "10m", "endDate": 0},
        "executionFeeLimit": str(number), "minValidations": 1,
    }  # fmt: skip


def _unlike_values(number: int) -> dict[str, Any]:
    first, second, third = (str(Address.from_raw((3 * number + place).to_bytes(20))) for place in range(3))
    spent = {"token": {"address": second, "chainId": 8453}, "amount": f"{number}.5"}
    note = f"Every six hours, as agreed in {number}"
    given = {"address": first, "chainId": 8453}
    return {
        "functionCid": CID, "version": "1.0.0",
        "input": {"token": given, "amount": spent, "recipient": third, "slippage": number % 1000, "note": note},
        "config": {"type": 0, "schedule": f"0 */{number + 1} * * *", "delta": f"{number}m", "endDate": number},
        "executionFeeLimit": str(number), "minValidations": 1,
    }  # fmt: skip


def forged(cid: str = CID) -> bytes:
    """A body whose signature is over another fee limit."""
    body = signed_triggers([10**9], cid)[0]
    return body.replace(b'"executionFeeLimit":"1000000000"', b'"executionFeeLimit":"1000000001"')
