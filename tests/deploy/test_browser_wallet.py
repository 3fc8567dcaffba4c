"""The page that asks a wallet, in a real browser with a wallet (EIP-6963): an extension that signs with a test key."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from programs import installed

from builders import Wallet
from local_server import LocalServer
from muniment.client import CannotSign, KeySigner
from muniment.client.signing.browser import BrowserSigner

WALLET = KeySigner(Wallet(71).key)
DATA: dict[str, Any] = {
    "domain": {"name": "Mimic Protocol - Registry", "version": "1"}, "primaryType": "Deactivate",
    "types": {"Deactivate": [{"name": "triggerSigs", "type": "string[]"}]},
    "message": {"triggerSigs": ["<script>alert(1)</script>"]},
}  # fmt: skip
# In the world of the page: the provider, and a person who presses the wallet's button.
_PROVIDER = """
const waiting = new Map();
let last = 0;
window.addEventListener("message", (event) => {
  if (!event.data.answered) return;
  const { resolve, reject } = waiting.get(event.data.answered);
  event.data.error ? reject(new Error(event.data.error)) : resolve(event.data.result);
});
const provider = { request: ({ method, params }) => new Promise((resolve, reject) => {
  last += 1;
  waiting.set(last, { resolve, reject });
  window.postMessage({ asked: last, method, params }, "*");
}) };
const info = { uuid: "350670db-19fa-4704-a166-e52e178b59d2", name: "Test wallet", icon: "data:,", rdns: "org.example" };
const announce = () => window.dispatchEvent(
  new CustomEvent("eip6963:announceProvider", { detail: Object.freeze({ info, provider }) }));
window.addEventListener("eip6963:requestProvider", announce);
announce();
new MutationObserver(() => {
  const button = document.querySelector("#wallets button:not([disabled])");
  if (button && !window.pressed) { window.pressed = true; button.click(); }
}).observe(document, { childList: true, subtree: true });
"""
# In the world of the extension: it asks the process that has the key.
_BRIDGE = """
window.addEventListener("message", async (event) => {
  if (!event.data.asked) return;
  const response = await fetch("WALLET_URL", { method: "POST", body: JSON.stringify(event.data) });
  window.postMessage({ answered: event.data.asked, ...(await response.json()) }, "*");
});
"""


class Keyholder:
    """The process that has the key. `asked` has the calls of the wallet."""

    def __init__(self, accounts: list[str]) -> None:
        self.asked: list[dict[str, Any]] = []
        self._accounts = accounts

    def answer(self, call: dict[str, Any]) -> object:
        if call["method"] == "eth_requestAccounts":
            return self._accounts
        if call["method"] == "personal_sign":
            return WALLET.sign_text(bytes.fromhex(call["params"][0][2:]).decode())
        data = json.loads(call["params"][1])
        data["types"].pop("EIP712Domain")
        return WALLET.sign_typed_data(data)

    @contextmanager
    def listening(self) -> Generator[str]:
        holder = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                call = json.loads(self.rfile.read(int(self.headers["content-length"])))
                holder.asked.append(call)
                content = json.dumps({"result": holder.answer(call)}).encode()
                self.send_response(200)
                self.send_header("access-control-allow-origin", "*")
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        with LocalServer(("127.0.0.1", 0), Handler) as server:
            thread = Thread(target=server.serve_forever)
            thread.start()
            try:
                yield f"http://127.0.0.1:{server.server_port}/"
            finally:
                server.shutdown()
                thread.join()


@contextmanager
def browsing(home: Path, holder: Keyholder) -> Generator[Callable[[str], None]]:
    """A function that opens a URL in Chromium with the wallet; its own files are in `home`."""
    program = installed("chromium")
    extension = home / "wallet"
    extension.mkdir(parents=True)
    started: list[subprocess.Popen[bytes]] = []
    with holder.listening() as url:
        (extension / "provider.js").write_text(_PROVIDER)
        (extension / "bridge.js").write_text(_BRIDGE.replace("WALLET_URL", url))
        (extension / "manifest.json").write_text(json.dumps({
            "manifest_version": 3, "name": "Test wallet", "version": "1.0", "host_permissions": ["http://127.0.0.1/*"],
            "content_scripts": [
                {"matches": ["http://127.0.0.1/*"], "js": ["bridge.js"], "run_at": "document_start"},
                {"matches": ["http://127.0.0.1/*"], "js": ["provider.js"], "run_at": "document_start", "world": "MAIN"},
            ],
        }))  # fmt: skip

        def opens(page: str) -> None:
            started.append(subprocess.Popen(
                [
                    program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                    "--disable-background-networking", "--no-first-run", "--remote-debugging-port=0",
                    "--disable-features=DisableLoadExtensionCommandLineSwitch", f"--load-extension={extension}",
                    f"--user-data-dir={home / str(len(started))}", page,
                ],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            ))  # fmt: skip

        try:
            yield opens
        finally:
            for process in started:
                process.terminate()
                process.wait(timeout=30)


def silent(_text: str) -> None:
    """Say nothing."""


def test_a_wallet_of_a_browser_connects_and_signs_text_and_typed_data(tmp_path: Path) -> None:
    holder = Keyholder([WALLET.address.lower()])
    with browsing(tmp_path, holder) as opens:
        signer = BrowserSigner(show=silent, opens=opens, seconds_max=60)
        assert signer.address == WALLET.address
        assert signer.sign_text("héllo") == WALLET.sign_text("héllo")
        assert signer.sign_typed_data(DATA) == WALLET.sign_typed_data(DATA)
    assert json.loads(holder.asked[-1]["params"][1])["types"]["EIP712Domain"] == [
        {"name": "name", "type": "string"}, {"name": "version", "type": "string"},
    ]  # fmt: skip


def test_a_wallet_without_the_account_is_not_asked_to_sign(tmp_path: Path) -> None:
    holder = Keyholder([Wallet(72).address])
    with browsing(tmp_path, holder) as opens:
        signer = BrowserSigner(address=WALLET.address, show=silent, opens=opens, seconds_max=10)
        with pytest.raises(CannotSign, match="within 10 seconds"):
            signer.sign_text("hello")
    assert [each["method"] for each in holder.asked] == ["eth_requestAccounts"]
