"""A wallet with a JSON-RPC interface: a desktop wallet such as Frame, or a development node."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, cast

import httpx2

from muniment.client.failures import CannotSign
from muniment.client.signers import with_domain_type
from muniment.deadlines import Connections
from muniment.protocol.errors import InvalidAddress, InvalidJson
from muniment.protocol.evm.address import Address
from muniment.protocol.json_text import parse_json
from muniment.tls import tls_context

# A person reads the request and agrees.
_SECONDS_MAX: Final = 300.0
# A signature has 132 characters, and a wallet has a few hundred accounts at most.
_ANSWER_BYTES_MAX: Final = 64 * 1024
_SHOWN_MAX: Final = 300


class RpcSigner:
    """A signer that asks a wallet at a URL: `eth_accounts`, `personal_sign` and `eth_signTypedData_v4`."""

    def __init__(self, url: str, *, address: str | None = None, seconds_max: float = _SECONDS_MAX) -> None:
        """Ask the wallet at `url`; without `address` its first account signs. Raises `CannotSign` for another URL."""
        if not url.startswith(("http://", "https://")):
            raise CannotSign("rpc: needs a URL that begins with http:// or https://")
        self._url = url
        self._seconds_max = seconds_max
        self._address = None if address is None else Address.parse(address)

    @property
    def address(self) -> Address:
        """The address; the wallet is asked for it once."""
        if self._address is None:
            accounts = self._call("eth_accounts")
            first = cast("list[object]", accounts)[0] if isinstance(accounts, list) and accounts else None
            if not isinstance(first, str):
                raise CannotSign("the wallet offers no account: unlock it, and allow this connection")
            try:
                # Many wallets write addresses in lower case.
                self._address = Address.parse(first)
            except InvalidAddress as error:
                raise CannotSign(f"the wallet's first account is not an address: {error.detail}") from error
        return self._address

    def sign_text(self, text: str) -> str:
        """As `Signer`."""
        return self._signature("personal_sign", "0x" + text.encode().hex(), self.address)

    def sign_typed_data(self, data: Mapping[str, Any]) -> str:
        """As `Signer`."""
        return self._signature("eth_signTypedData_v4", self.address, json.dumps(with_domain_type(data)))

    def _signature(self, method: str, *parameters: str) -> str:
        signature = self._call(method, *parameters)
        if not isinstance(signature, str):
            raise CannotSign(f"the wallet answered {method} without a signature")
        return signature

    def _call(self, method: str, *parameters: str) -> object:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters}
        content = b""
        exchange = Connections().exchange(self._seconds_max)
        extensions: dict[str, Any] = {"trace": exchange.trace}
        try:
            with (
                exchange.watched(),
                httpx2.Client(timeout=self._seconds_max, verify=tls_context()) as http,
                http.stream("POST", self._url, json=body, extensions=extensions) as response,
            ):
                exchange.begin(response.extensions)
                for piece in response.iter_bytes():
                    content += piece
                    if len(content) > _ANSWER_BYTES_MAX:
                        raise CannotSign("the wallet's answer is too long")
        except (httpx2.RequestError, httpx2.InvalidURL) as error:
            if not exchange.is_over:
                # The URL may have a token of the wallet in it.
                raise CannotSign(f"the wallet does not answer: {type(error).__name__}") from error
        if exchange.is_over:
            raise CannotSign(f"the wallet did not answer within {self._seconds_max:.0f} seconds")
        try:
            answer = parse_json(content)
        except InvalidJson:
            answer = None
        if not isinstance(answer, dict):
            raise CannotSign(f"the wallet's answer is not JSON-RPC: {content[:_SHOWN_MAX]!r}")
        found = cast("dict[str, Any]", answer)
        if found.get("error"):
            error_ = found["error"]
            text = cast("dict[str, Any]", error_).get("message") if isinstance(error_, dict) else error_
            raise CannotSign(f"the wallet refused {method}: {str(text)[:_SHOWN_MAX]}")
        return found.get("result")
