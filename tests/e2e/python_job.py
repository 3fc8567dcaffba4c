"""The main job with a Python client that was generated; it is run where the package `generated` can be imported."""
# The package is made for the test.
# pyright: reportMissingImports=false

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

from eth_account import Account
from eth_account.messages import encode_defunct, encode_typed_data
from generated import AuthenticatedClient, Client
from generated.api.functions import create_function, get_manifest, list_functions
from generated.api.triggers import (
    create_trigger,
    deactivate_triggers,
    get_deactivation_sign_params,
    get_sign_params,
    get_trigger,
    list_triggers,
)
from generated.api.users import authenticate, get_api_key, request_nonce
from generated.models import (
    CreateFunctionBody,
    CronConfig,
    Deactivation,
    DeactivationParams,
    Function,
    Input,
    ListTriggersSort,
    Login,
    Manifest,
    NewTrigger,
    NonceRequest,
    TriggerParams,
    TypedData,
)
from generated.types import File

_DOMAIN_TYPES = [{"name": "name", "type": "string"}, {"name": "version", "type": "string"}]


def hexed(signature: bytes) -> str:
    return "0x" + signature.hex()


def signed(account: Any, params: dict[str, Any]) -> str:
    """The signature over typed data as the service answers it, by a wallet that wants the domain's type beside."""
    full = {**params, "types": {"EIP712Domain": _DOMAIN_TYPES, **params["types"]}}
    return hexed(account.sign_message(encode_typed_data(full_message=full)).signature)


def deploy(url: str, account: Any, bundle: Path) -> str:
    public = Client(base_url=url, raise_on_unexpected_status=True)
    nonce = request_nonce.sync(client=public, body=NonceRequest(address=account.address)).nonce
    signature = hexed(account.sign_message(encode_defunct(text=nonce)).signature)
    token = authenticate.sync(client=public, body=Login(address=account.address, signature=signature)).token
    mine = AuthenticatedClient(base_url=url, token=token, prefix="", auth_header_name="x-auth-token")
    key = get_api_key.sync(client=mine).api_key
    deployer = AuthenticatedClient(base_url=url, token=key, prefix="", auth_header_name="x-api-key")
    files = [
        File(payload=io.BytesIO((bundle / name).read_bytes()), file_name=name)
        for name in ("manifest.json", "function.wasm")
    ]
    function = create_function.sync(client=deployer, body=CreateFunctionBody(file=files))
    assert isinstance(function, Function), function
    manifest = get_manifest.sync(function.cid, client=public)
    assert isinstance(manifest, Manifest), manifest
    assert (manifest.name, manifest.version) == (function.name, function.version)
    listed = list_functions.sync(client=public, cids=[function.cid, function.cid])
    assert [each.cid for each in listed] == [function.cid]
    return function.cid


def sign_trigger(client: Client, account: Any, cid: str) -> str:
    token, recipient = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913", "0x" + "11" * 20
    amounts = {"amount": "1000000", "fee": "10000"}
    values = Input.from_dict({"chainId": 8453, "token": token, "recipient": recipient, **amounts})
    config = CronConfig(type_=0, schedule="0 */6 * * *", delta="10m", end_date=0)
    params = get_sign_params.sync(
        client=client, body=TriggerParams(function_cid=cid, version="1.0.0", config=config, input_=values)
    )
    assert (params.message.min_validations, params.message.execution_fee_limit) == (1, "0")
    new = NewTrigger(
        description="By a generated client",
        typed_data=TypedData(types=params.types, values=params.message),
        sig=signed(account, params.to_dict()),
        signer=account.address,
    )
    return create_trigger.sync(client=client, body=new).sig


def main(url: str, bundle: Path) -> None:
    account = Account.create()
    client = Client(base_url=url, raise_on_unexpected_status=True)
    cid = deploy(url, account, bundle)
    sig, other = sign_trigger(client, account, cid), "0x" + "1" * 128 + "1b"

    listed = list_triggers.sync(client=client, sigs=[sig, other], sort=ListTriggersSort.VALUE_1)
    assert [each.sig for each in listed] == [sig]
    consent = get_deactivation_sign_params.sync(client=client, body=DeactivationParams(trigger_sigs=[sig]))
    signature = signed(account, consent.typed_data.to_dict())
    body = Deactivation(trigger_sigs=[sig], signature=signature)
    assert deactivate_triggers.sync_detailed(client=client, body=body).status_code == 204
    assert list_triggers.sync(client=client, sigs=[sig], active=True) == []
    assert get_trigger.sync(sig, client=client).deactivate_sig == signature

    refused = get_trigger.sync(other, client=client)
    assert refused.code == "trigger-not-found"
    sys.stdout.write(json.dumps({"cid": cid, "sig": sig, "signer": account.address}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
