"""A local chain: anvil on a free port, with the contracts of tests/vectors/contracts."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Self

import httpx2
import pytest

from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hashing import keccak256
from ports import free_port

ANVIL = Path(__file__).parents[1] / "e2e/node_modules/@foundry-rs/anvil-linux-amd64/bin/anvil"
CONTRACTS = Path(__file__).parents[1] / "vectors" / "contracts"
MULTICALL3 = Address("0xcA11bde05977b3631167028862bE2a173976CA11")
# These end a hang of anvil, however busy the machine is.
SECONDS_MAX = 60

# For `pytestmark`: these tests are left out for one reason only.
CHAIN_TESTS = [
    pytest.mark.node,
    pytest.mark.skipif(
        not ANVIL.exists(),
        reason=f"anvil is not there for {platform.system()} {platform.machine()}: run tests/e2e/install.py",
    ),
]


def selector(signature: str) -> bytes:
    return keccak256(signature.encode())[:4]


def encoded(arguments: tuple[object, ...]) -> bytes:
    """Arguments by the Solidity ABI: integers, addresses and texts."""
    heads: list[bytes | None] = []
    tails: list[bytes] = []
    for argument in arguments:
        if isinstance(argument, Address):
            heads.append(argument.raw.rjust(32, b"\0"))
        elif isinstance(argument, str):
            text = argument.encode()
            heads.append(None)
            tails.append(len(text).to_bytes(32) + text + b"\0" * (-len(text) % 32))
        else:
            assert isinstance(argument, int)
            heads.append(argument.to_bytes(32, signed=argument < 0))
    at, words = 32 * len(heads), []
    left = iter(tails)
    for head in heads:
        if head is None:
            words.append(at.to_bytes(32))
            at += len(next(left))
        else:
            words.append(head)
    return b"".join(words + tails)


class LocalChain:
    """anvil, mining each transaction at once, with a Multicall3 at its canonical address.

    With a file for its `state` it keeps URL and state over `interrupt` and `start`.
    """

    def __init__(self, chain_id: int = 8453, state: Path | None = None) -> None:
        self.chain_id = chain_id
        self._state = state
        self._port = 0
        self.process: subprocess.Popen[bytes] | None = None
        self.url = ""
        self._client = httpx2.Client(timeout=SECONDS_MAX, trust_env=False)
        self._accounts: list[str] = []

    def start(self) -> Self:
        self._port = self._port or free_port()
        command = [
            str(ANVIL), "--host", "127.0.0.1", "--port", str(self._port), "--chain-id", str(self.chain_id), "--silent",
            *(("--state", str(self._state)) if self._state else ()),
        ]  # fmt: skip
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        self.url = f"http://127.0.0.1:{self._port}"
        try:
            self._wait_until_it_answers(self.process)
            self.set_code(MULTICALL3, "MiniMulticall3")
        except BaseException:
            self.stop()
            raise
        return self

    def _wait_until_it_answers(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        while True:
            try:
                self._accounts = self.ask("eth_accounts")
            except httpx2.TransportError:
                assert process.poll() is None, "anvil ended"
                assert time.monotonic() < deadline, "anvil did not start"
                time.sleep(0.05)
            else:
                return

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()  # SIGKILL ends a paused process too
            self.process.wait(timeout=SECONDS_MAX)
            self.process = None
        self._client.close()

    def interrupt(self) -> None:
        """Stop and keep the state for the next `start`."""
        assert self.process is not None
        self.process.terminate()
        self.process.wait(timeout=SECONDS_MAX)
        self.process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def pause(self) -> None:
        """Freeze: neither answer nor close connections, like a hanging machine."""
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGSTOP)
        # Its threads stop one after the other, and one that still runs would answer.
        _, status = os.waitpid(self.process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), "anvil ended"

    def resume(self) -> None:
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGCONT)

    def ask(self, method: str, *params: object) -> Any:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer = self._client.post(self.url, json=body).json()
        assert "error" not in answer, answer["error"]
        return answer["result"]

    def send(self, data: bytes, to: Address | None = None, sender: Address | None = None) -> dict[str, Any]:
        """Send a transaction; its receipt. A `sender` other than anvil's account is funded and impersonated."""
        if sender is not None:
            self.ask("anvil_impersonateAccount", sender)
            self.ask("anvil_setBalance", sender, hex(10**18))
        transaction = {"from": sender or self._accounts[0], "data": "0x" + data.hex(), "gas": hex(8_000_000)}
        done = self.ask("eth_sendTransaction", {**transaction, **({} if to is None else {"to": to})})
        deadline = time.monotonic() + SECONDS_MAX
        while (receipt := self.ask("eth_getTransactionReceipt", done)) is None:
            assert time.monotonic() < deadline, "the transaction was not mined"
            time.sleep(0.01)
        assert receipt["status"] == "0x1", "the transaction failed"
        return receipt

    def deploy(self, name: str, *arguments: object) -> Address:
        code = bytes.fromhex(self._artifact(name)["bytecode"][2:])
        return Address.parse(self.send(code + encoded(arguments))["contractAddress"])

    def call(self, to: Address, signature: str, *arguments: object) -> bytes:
        data = selector(signature) + encoded(arguments)
        return bytes.fromhex(self.ask("eth_call", {"to": to, "data": "0x" + data.hex()}, "latest")[2:])

    def mint(self, token: Address, to: Address, amount: int) -> None:
        self.send(selector("mint(address,uint256)") + encoded((to, amount)), token)

    def approve(self, token: Address, owner: Address, spender: Address, amount: int) -> None:
        self.send(selector("approve(address,uint256)") + encoded((spender, amount)), token, owner)

    def set_code(self, address: Address, name: str) -> None:
        self.ask("anvil_setCode", address, self._artifact(name)["deployedBytecode"])

    def set_balance(self, wallet: Address, amount: int) -> None:
        self.ask("anvil_setBalance", wallet, hex(amount))

    @staticmethod
    def _artifact(name: str) -> dict[str, Any]:
        return json.loads((CONTRACTS / f"{name}.json").read_text())
