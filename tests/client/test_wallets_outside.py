"""Wallets outside the process: commands, JSON-RPC, accounts of eth-account; and the texts that name them."""

from __future__ import annotations

import json
import socket
import sys
import time
import tracemalloc
from collections.abc import Generator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from builders import Wallet
from chain import CHAIN_TESTS, LocalChain
from eth_signing import Account
from local_server import LocalServer
from muniment.client import AccountSigner, CannotSign, KeySigner, signer_of
from muniment.client.signers import with_domain_type
from muniment.client.signing.commands import CommandSigner
from muniment.client.signing.nodes import RpcSigner
from muniment.protocol.errors import InvalidAddress

WALLET = Wallet(51)
SELF = KeySigner(WALLET.key)
DATA: dict[str, Any] = {
    "domain": {"name": "Mimic Protocol - Registry", "version": "1"}, "primaryType": "Deactivate",
    "types": {"Deactivate": [{"name": "triggerSigs", "type": "string[]"}]},
    "message": {"triggerSigs": ["0x12", "0x34"]},
}  # fmt: skip


# Loading the signer takes most of the time of a command.
SIGNER = f"from muniment.client import KeySigner\nsigner = KeySigner(bytes.fromhex('{WALLET.key.hex()}'))\n"


def script(tmp_path: Path, body: str) -> str:
    """The spec of a command that runs `body` with the request in `asked`."""
    file = tmp_path / "wallet with a space.py"
    file.write_text(f"import json, sys\nasked = json.load(sys.stdin)\n{body}\n")
    return f"command:{sys.executable} '{file}'"


def test_an_account_of_eth_account_signs_alike() -> None:
    signer = AccountSigner(Account.from_key(WALLET.key))
    assert signer.address == WALLET.address
    assert signer.sign_text("hello") == SELF.sign_text("hello")
    assert signer.sign_typed_data(DATA) == SELF.sign_typed_data(DATA)


def test_a_command_signs_text_and_typed_data_with_the_type_of_the_domain(tmp_path: Path) -> None:
    signer = signer_of(script(tmp_path, SIGNER + (
        "if asked['method'] == 'address': print(signer.address.lower())\n"
        "elif asked['method'] == 'text': print(signer.sign_text(asked['text']))\n"
        "else:\n"
        "    domain = asked['data']['types'].pop('EIP712Domain')\n"
        "    assert [each['name'] for each in domain] == ['name', 'version'], domain\n"
        "    print(signer.sign_typed_data(asked['data']))\n"
    )))  # fmt: skip
    assert signer.address == WALLET.address
    assert signer.sign_text("a 'quoted' $(text)") == SELF.sign_text("a 'quoted' $(text)")
    assert signer.sign_typed_data(DATA) == SELF.sign_typed_data(DATA)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("sys.exit('no device is connected')", "status 1: no device is connected"),
        ("print('0x12')", "gave no address: '0x12'"),
        ("print('x' * 10_000_000)", "gave no address"),
    ],
)
def test_a_command_that_fails_is_named_with_its_words(tmp_path: Path, body: str, said: str) -> None:
    with pytest.raises(CannotSign, match=said) as raised:
        _ = signer_of(script(tmp_path, body)).address
    assert len(str(raised.value)) < 1_000


def test_a_command_that_prints_too_much_costs_little_memory() -> None:
    tracemalloc.start()
    try:
        with pytest.raises(CannotSign, match="gave no address"):
            _ = signer_of("command:head -c 50000000 /dev/zero").address
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


def test_a_command_that_hangs_is_ended(tmp_path: Path) -> None:
    with pytest.raises(CannotSign, match="no signature within 5 seconds"):
        _ = CommandSigner(f"sh -c 'echo $$ > {tmp_path}/pid; exec sleep 600'", seconds_max=5).address
    assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()


def test_the_processes_of_a_command_that_hangs_end_with_it(tmp_path: Path) -> None:
    line = f"sh -c 'sleep 600 & echo $! > {tmp_path}/pid; wait'"
    with pytest.raises(CannotSign, match="no signature within 5 seconds"):
        _ = CommandSigner(line, seconds_max=5).address
    stat = Path("/proc", (tmp_path / "pid").read_text().strip(), "stat")

    def is_running() -> bool:
        """Whether the process has not ended; its new parent may not have asked for its status yet."""
        try:
            return stat.read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
        except (FileNotFoundError, ProcessLookupError):
            return False

    until = time.monotonic() + 30
    while is_running():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_long_request_reaches_a_command_that_does_not_read_it() -> None:
    with pytest.raises(CannotSign, match="ended with status 1"):
        CommandSigner("false", address=WALLET.address).sign_text("x" * 1_000_000)


def test_no_shell_reads_a_command(tmp_path: Path) -> None:
    with pytest.raises(CannotSign):
        _ = signer_of(f"command:/bin/cat /dev/null; touch {tmp_path}/made").address
    assert not (tmp_path / "made").exists()
    with pytest.raises(CannotSign, match="cannot be run"):
        _ = signer_of("command:/nowhere").address


class Rpc:
    """A wallet at a URL, whose answers a test says. `asked` has the requests."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.answers: dict[str, Any] = {"eth_accounts": {"result": [WALLET.address.lower()]}}
        self.content: bytes | None = None

    @contextmanager
    def serving(self) -> Generator[str]:
        rpc = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
                rpc.asked.append(asked)
                content = (
                    rpc.content or json.dumps(rpc.answers.get(asked["method"], {"error": {"code": 4001}})).encode()
                )
                self.send_response(200)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        with LocalServer(("127.0.0.1", 0), Handler) as server:
            thread = Thread(target=server.serve_forever, args=(0.02,))
            thread.start()
            try:
                yield f"http://127.0.0.1:{server.server_port}/token-of-the-wallet"
            finally:
                server.shutdown()
                thread.join()


def test_a_wallet_at_a_url_gets_the_type_of_the_domain() -> None:
    rpc = Rpc()
    rpc.answers["eth_signTypedData_v4"] = {"result": SELF.sign_typed_data(DATA)}
    with rpc.serving() as url:
        signer = signer_of(f"rpc:{url}")
        assert signer.address == WALLET.address
        assert signer.sign_typed_data(DATA) == SELF.sign_typed_data(DATA)
    address, data = rpc.asked[-1]["params"]
    assert address == WALLET.address
    assert json.loads(data) == with_domain_type(DATA)
    assert json.loads(data)["types"]["EIP712Domain"] == [
        {"name": "name", "type": "string"}, {"name": "version", "type": "string"},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"result": []}', "no account"), (b'{"result": ["0x12"]}', "not an address"), (b"<html>", "not JSON-RPC"),
        (b'{"result": ["0x%b"], "result": ["0x%b"]}' % (b"1" * 40, b"2" * 40), "not JSON-RPC"),
        (b'{"result": NaN}', "not JSON-RPC"),
        (b'{"error": {"code": 4001, "message": "User rejected"}}', "refused eth_accounts: User rejected"),
        (b"x" * 1_000_000, "too long"),
    ],
)  # fmt: skip
def test_a_wallet_that_gives_no_account_is_named(content: bytes, said: str) -> None:
    rpc = Rpc()
    rpc.content = content
    with rpc.serving() as url, pytest.raises(CannotSign, match=said) as raised:
        _ = signer_of(f"rpc:{url}").address
    assert "token-of-the-wallet" not in str(raised.value)


def test_a_wallet_that_is_not_there_is_named_without_its_url() -> None:
    with pytest.raises(CannotSign, match="does not answer") as raised:
        _ = signer_of("rpc:http://127.0.0.1:9/token-of-the-wallet").address
    assert "token" not in str(raised.value)


@pytest.mark.parametrize("url", ["http://127.0.0.1:x/token", "http://user:token@[::1/x"])
def test_a_text_that_is_no_url_of_a_wallet_is_named_without_it(url: str) -> None:
    with pytest.raises(CannotSign, match="does not answer") as raised:
        _ = signer_of(f"rpc:{url}").address
    assert "token" not in str(raised.value)


@pytest.mark.parametrize(
    ("begin", "more", "pause_s"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 60000\r\n\r\n", b" ", 0.05),
        (b"", b"HTTP/1.1 103 x\r\n\r\n", 0),
        (b"HTTP/1.1 200 OK\r\n", b"a: b\r\n", 0.05),
    ],
    ids=["content", "103", "fields"],
)
def test_a_wallet_whose_answer_does_not_end_is_left(begin: bytes, more: bytes, pause_s: float) -> None:
    def drip(listener: socket.socket) -> None:
        with listener.accept()[0] as connection:
            connection.recv(65_536)
            with suppress(OSError):  # the client leaves
                connection.sendall(begin)
                while True:
                    connection.sendall(more)
                    time.sleep(pause_s)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = Thread(target=drip, args=(listener,))
        thread.start()
        with pytest.raises(CannotSign, match="did not answer within 1 seconds"):
            _ = RpcSigner(f"http://127.0.0.1:{listener.getsockname()[1]}", seconds_max=1).address
        thread.join()


def test_an_account_of_a_wallet_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    other = Wallet(52).address
    assert signer_of(f"rpc:http://127.0.0.1:9#{other}", address=WALLET.address).address == other
    assert signer_of(f"browser:{other}", address=WALLET.address).address == other
    assert signer_of("browser", address=WALLET.address).address == WALLET.address
    for spec in ("rpc:http://127.0.0.1:9#0x12", "browser:0x12"):
        with pytest.raises(InvalidAddress):
            signer_of(spec)


class TestAnvil:
    pytestmark = CHAIN_TESTS

    def test_a_development_node_signs_as_the_key_does(self) -> None:
        # The first account of anvil: its key is in anvil's own manual.
        own = KeySigner(bytes.fromhex("ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80"))
        with LocalChain() as chain:
            signer = signer_of(f"rpc:{chain.url}")
            assert signer.address == own.address
            assert signer.sign_text("hello") == own.sign_text("hello")
            assert signer.sign_typed_data(DATA) == own.sign_typed_data(DATA)


@pytest.mark.parametrize("spec", ["", "key:", "keystore:", "rpc:", "command:", "browser:", "ledger", "KEY"])
def test_another_text_names_no_signer(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MUNIMENT_PRIVATE_KEY", raising=False)
    with pytest.raises((ValueError, CannotSign)):
        signer_of(spec)
