"""`muniment demo`: the main job, done over HTTP with a throw-away wallet, one line a step."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from decimal import Decimal
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from muniment.chains.catalogue import load_chains
from muniment.cli.http_client import Client, RequestFailed
from muniment.evm.signature import address_of_key, personal_digest, sign
from muniment.evm.typed_data import Domain, compile_types, digest

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from muniment.settings import Settings

# A cold start on a slow disk; a warm one takes well under a second.
START_SECONDS_MAX = 30
_BALANCES_SHOWN = 5
_ENDS_IN_MS = 30 * 86_400_000


@dataclass(frozen=True, slots=True)
class Wallet:
    """A key made for this walk and forgotten after it."""

    key: bytes

    @property
    def address(self) -> str:
        """The wallet's address."""
        return address_of_key(self.key)

    def sign_text(self, text: str) -> str:
        """What `personal_sign` of a wallet gives (EIP-191)."""
        return sign(personal_digest(text.encode()), self.key)

    def sign_typed_data(self, params: dict[str, Any]) -> str:
        """What `eth_signTypedData_v4` of a wallet gives (EIP-712)."""
        encoder = compile_types(params["types"], params["primaryType"])
        return sign(digest(Domain(**params["domain"]), encoder.struct_hash(params["message"])), self.key)


def run(settings: Settings, url: str | None) -> None:
    """Walk through the service at `url`, or through one that is started here and stays up until Ctrl-C."""
    try:
        if url is not None:
            walk(Client(url))
            return
        with _service(settings) as (service, client):
            walk(client, _development_nodes(settings))
            click.echo(f"\n{_where_next(client.url)}\n\nThe service stays up; Ctrl-C stops it.")
            service.wait()
    except RequestFailed as error:
        raise click.ClickException(str(error)) from error


@contextmanager
def _service(settings: Settings) -> Generator[tuple[subprocess.Popen[str], Client]]:
    """A service in a process of its own, which is stopped in the end."""
    environment = {**os.environ, **settings.environment(), "MUNIMENT_LOG_LEVEL": "warning"}
    command = [sys.executable, "-m", "muniment", "serve"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as service:  # noqa: S603 - ourselves
        assert service.stdout is not None  # noqa: S101 - it is a pipe

        # A supervisor's SIGTERM must reach the service; Ctrl-C reaches it by itself, as a process of the same terminal.
        def stop(*_: object) -> None:
            service.terminate()

        signal.signal(signal.SIGTERM, stop)
        try:
            said = service.stdout.readline()
            if "listens on " not in said:
                raise RequestFailed("the service did not start; what it said is above")
            client = Client(said.partition("listens on ")[2].split()[0])
            _wait_until_ready(client)
            click.echo(said.strip())
            yield service, client
        except KeyboardInterrupt:
            click.echo("\nStopping.")
        finally:
            service.terminate()


def _wait_until_ready(client: Client) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            client.get("/readyz")
        except RequestFailed:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


def _development_nodes(settings: Settings) -> list[str]:
    """The RPC URLs on this machine: a node that a developer runs, and that gives coins to who asks."""
    chains = load_chains(Path(settings.chains_file) if settings.chains_file else None).values()
    urls = [url for chain in chains for url in chain.rpc_urls]
    return [url for url in urls if urlsplit(url).hostname in {"127.0.0.1", "localhost", "::1"}]


def walk(client: Client, nodes: Sequence[str] = ()) -> None:
    """Log in, deploy, sign a trigger, list it, deactivate it, list it again; with some coins where `nodes` give any."""
    wallet = Wallet(secrets.token_bytes(32))
    for url in nodes:
        with suppress(RequestFailed):
            call = {"method": "hardhat_setBalance", "params": [wallet.address, hex(10**18)]}  # anvil knows it too
            Client(url).post("/", {"jsonrpc": "2.0", "id": 1, **call})
    _say("wallet", f"{wallet.address} (made for this walk, forgotten after it)")
    token = _log_in(client, wallet)
    _show_balances(client, token)
    api_key = _read_api_key(client, token)
    cid = _deploy(client, api_key)
    sig = _sign_trigger(client, wallet, cid)
    _list(client, wallet, "active")
    _deactivate(client, wallet, sig)
    _list(client, wallet, "deactivated")


def _log_in(client: Client, wallet: Wallet) -> str:
    nonce = client.post("/users/nonce", {"address": wallet.address})["nonce"]
    _say("nonce", f"{nonce[:18]}… to sign, good for one login")
    login = {"address": wallet.address, "signature": wallet.sign_text(nonce)}
    token = client.post("/users/authenticate", login)["token"]
    _say("login", f"the signature proves the address; token {token[:12]}…, good for a day")
    return token


def _show_balances(client: Client, token: str) -> None:
    """Only where chains are configured: a registry works without."""
    balances = client.get("/users/tokens", x_auth_token=token)
    for each in balances[:_BALANCES_SHOWN]:
        amount = Decimal(each["balance"]).scaleb(-each["decimals"]).normalize()
        price = f"at {each['price']} US dollars" if each["price"] else "at an unknown price"
        _say("balance", f"{amount:f} {each['symbol']} on chain {each['chainId']}, {price}")


def _read_api_key(client: Client, token: str) -> str:
    api_key = client.get("/users/api-key", x_auth_token=token)["apiKey"]
    _say("API key", f"{api_key[:16]}…, for deploying")
    return api_key


def _deploy(client: Client, api_key: str) -> str:
    sample = files("muniment.cli") / "sample"
    bundle = {name: (sample / name).read_bytes() for name in ("manifest.json", "function.wasm")}
    function = client.post_files("/functions", bundle, x_api_key=api_key)
    _say("deploy", f"{function['name']} {function['version']} is {function['CID']}")
    return function["CID"]


def _sign_trigger(client: Client, wallet: Wallet, cid: str) -> str:
    params = client.post("/triggers/sign-params", {
        "functionCid": cid, "version": "1.0.0", "input": {"chainId": 8453, "limit": "1000000000000000000"},
        "config": {
            "type": 0, "schedule": "0 */6 * * *", "delta": "10m",
            "endDate": time.time_ns() // 1_000_000 + _ENDS_IN_MS,
        },
        "executionFeeLimit": "5000000000000000",
    })  # fmt: skip
    _say("sign-params", f"typed data under '{params['domain']['name']}': every six hours, for thirty days")
    sig = wallet.sign_typed_data(params)
    _say("signature", f"{sig[:18]}…, which is also the trigger's id")
    trigger = client.post("/triggers", {
        "description": "Every six hours, from the walk-through", "sig": sig, "signer": wallet.address,
        "typedData": {"types": params["types"], "values": params["message"]},
    })  # fmt: skip
    _say("trigger", f"registered at {trigger['createdAt']}")
    return sig


def _list(client: Client, wallet: Wallet, expected: str) -> None:
    active = client.get(f"/triggers?signer={wallet.address}&active=true")
    known = client.get(f"/triggers?signer={wallet.address}")
    _say("list", f"{len(active)} active of {len(known)} by this wallet: it is {expected}")


def _deactivate(client: Client, wallet: Wallet, sig: str) -> None:
    params = client.post("/triggers/deactivate/sign-params", {"triggerSigs": [sig]})
    consent = {"triggerSigs": [sig], "signature": wallet.sign_typed_data(params["typedData"])}
    client.post("/triggers/deactivate", consent)
    _say("deactivate", "signed by the owner, for ever")


def _say(step: str, what: str) -> None:
    click.echo(f"  {step:<12} {what}")


def _where_next(url: str) -> str:
    return (
        f"Where to look next:\n  {url}/docs in a browser: every operation and error\n"
        f"  curl {url}/functions\n  curl '{url}/triggers?active=false'\n  curl {url}/openapi.json"
    )
