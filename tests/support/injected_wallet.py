"""A wallet for a page under test: it announces itself by EIP-6963, and signs with eth-account."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlencode

from playwright.async_api import BrowserContext, Page

from browsing import Watch, Window, watched
from console_world import Registry
from eth_signing import Account, encode_defunct, encode_typed_data

Mode = Literal["signs", "rejects", "pending", "unauthorised", "empty domain", "contract"]
THRESHOLD = {"chainId": "8453", "limit": "1000000000000000000"}
_CODES = {"rejects": 4001, "pending": -32002, "unauthorised": 4100}
_PROVIDER = """
(() => {
  const listeners = new Map();
  const provider = {
    on: (name, listener) => listeners.set(name, listener),
    request: async ({ method, params }) => {
      const answer = JSON.parse(await window.NAME(JSON.stringify({ method, params: params ?? [] })));
      if (answer.code) throw Object.assign(new Error("as the test wants"), { code: answer.code });
      return answer.result;
    },
  };
  window.NAME_emit = (name, given) => listeners.get(name)?.(given);
  const icon = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg'/%3E";
  const info = { uuid: "UUID", name: "TITLE", icon, rdns: "org.example.NAME" };
  const announce = () => window.dispatchEvent(
    new CustomEvent("eip6963:announceProvider", { detail: Object.freeze({ info, provider }) }));
  setTimeout(() => {
    window.addEventListener("eip6963:requestProvider", announce);
    announce();
  }, LATE);
})();
"""


@dataclass
class InjectedWallet:
    """One wallet. `asked` has every call of the page."""

    key: bytes
    title: str = "Test wallet"
    mode: Mode = "signs"
    late_ms: int = 0
    # The key that signs, when it is not that of the address that the wallet gives.
    signing_key: bytes | None = None
    # Whether its owner has let the page see the account.
    is_allowed: bool = False
    asked: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    address: str = field(init=False)

    def __post_init__(self) -> None:
        self.address = str(Account.from_key(self.key).address)

    @asynccontextmanager
    async def joined(self, context: BrowserContext, name: str) -> AsyncGenerator[None]:
        """Inject the wallet into every page of the context."""
        script = _PROVIDER.replace("NAME", name).replace("UUID", f"350670db-19fa-4704-a166-{name:_<12}")
        script = script.replace("TITLE", self.title).replace("LATE", str(self.late_ms))
        async with await context.expose_function(name, self._answer), await context.add_init_script(script):
            yield

    def _answer(self, text: str) -> str:
        call = json.loads(text)
        self.asked.append(call)
        if self.mode in _CODES and call["method"] != "eth_chainId":
            return json.dumps({"code": _CODES[self.mode]})
        return json.dumps({"result": self.result(call["method"], call["params"])})

    def given(self, method: str) -> list[Any]:
        """The parameters of the last call of this method."""
        return next(each["params"] for each in reversed(self.asked) if each["method"] == method)

    def result(self, method: str, params: list[Any]) -> Any:
        if method in {"eth_requestAccounts", "eth_accounts"}:
            self.is_allowed = self.is_allowed or method == "eth_requestAccounts"
            return [self.address.lower()] if self.is_allowed else []
        if method == "eth_chainId":
            return "0x2105"
        if self.mode == "contract":
            return "0x" + "ab" * 96
        if method == "personal_sign":
            return self._signed(encode_defunct(hexstr=params[0]))
        assert method == "eth_signTypedData_v4", method
        data = json.loads(params[1])
        if self.mode == "empty domain":
            data = {**data, "domain": {}, "types": {**data["types"], "EIP712Domain": []}}
        return self._signed(encode_typed_data(full_message=data))

    def _signed(self, message: Any) -> str:
        return "0x" + Account.sign_message(message, self.signing_key or self.key).signature.hex().removeprefix("0x")


@asynccontextmanager
async def opened(window: Window, path: str, *wallets: InjectedWallet) -> AsyncGenerator[tuple[Page, Watch]]:
    """A page of the console with these wallets."""
    async with AsyncExitStack() as joined, watched(window) as (page, watch):
        for number, wallet in enumerate(wallets):
            await joined.enter_async_context(wallet.joined(window.context, f"testWallet{number}"))
        await page.goto(path)
        yield page, watch


async def choose(page: Page, wallet: InjectedWallet) -> None:
    """Choose a wallet in the dialog."""
    await page.get_by_role("dialog").get_by_role("button", name=wallet.title).click()


def wizard_of(registry: Registry, **given: Any) -> str:
    """The address of the wizard, filled in for the function Threshold unless `given` says otherwise."""
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in given.items()}
    known = {"functionCid": registry.world.cids["Threshold"], "input": json.dumps(THRESHOLD)}
    return f"console/triggers/new?{urlencode({**known, **texts})}"
