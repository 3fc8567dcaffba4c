"""Signed triggers to measure with: a cron trigger with five inputs, each another consent of one signer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from muniment.evm.signature import address_of_key, sign
from muniment.evm.typed_data import compile_types, digest
from muniment.triggers.typed_data import registry_domain, types_for
from muniment.wire import encode

KEY: Final = (7).to_bytes(32)
SIGNER: Final = str(address_of_key(KEY))
DOMAIN: Final = registry_domain("Mimic")
INPUTS: Final = {
    "token": "Token", "amount": "TokenAmount", "recipient": "address", "slippage": "uint16", "note": "string",
}  # fmt: skip
_TOKEN: Final = {"address": SIGNER, "chainId": 8453}
_VALUES: Final[dict[str, Any]] = {
    "token": _TOKEN, "amount": {"token": _TOKEN, "amount": "12.5"}, "recipient": SIGNER, "slippage": 50,
    "note": "Every six hours",
}  # fmt: skip
# The CID of the bundle that `deployed` in run.py uploads is put in; verification alone needs none that exists.
CID: Final = "QmV2xSyG76zpH98n3aZfr4FVMwC64nbKnQ13vEjyHidmMZ"


def manifest() -> dict[str, Any]:
    return {"version": "1.0.0", "name": "Benchmark", "description": "Takes five inputs", "inputs": INPUTS}


def signed_triggers(numbers: Iterable[int], cid: str = CID) -> list[bytes]:
    """Bodies of POST /triggers; those of two numbers differ in what is signed."""
    types = types_for(INPUTS, 0)
    encoder = compile_types(types, "Trigger")
    bodies: list[bytes] = []
    for number in numbers:
        values = {
            "functionCid": cid, "version": "1.0.0", "input": _VALUES,
            "config": {"type": 0, "schedule": "0 */6 * * *", "delta": "10m", "endDate": 0},
            "executionFeeLimit": str(number), "minValidations": 1,
        }  # fmt: skip
        sig = sign(digest(DOMAIN, encoder.struct_hash(values)), KEY)
        typed_data = {"types": types, "values": values}
        bodies.append(encode({"description": "Benchmark", "typedData": typed_data, "sig": sig, "signer": SIGNER}))
    return bodies


def forged(cid: str = CID) -> bytes:
    """A body whose signature is over another fee limit."""
    body = signed_triggers([10**9], cid)[0]
    return body.replace(b'"executionFeeLimit":"1000000000"', b'"executionFeeLimit":"1000000001"')
