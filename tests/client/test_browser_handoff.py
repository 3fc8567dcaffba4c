"""The page on this machine that asks a wallet, spoken to as a browser does. The page itself: tests/deploy."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from http.client import HTTPConnection
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from builders import Wallet
from muniment.client import CannotSign, KeySigner
from muniment.client.signing.browser import BrowserSigner

WALLET = Wallet(61)
SELF = KeySigner(WALLET.key)
DATA: dict[str, Any] = {
    "domain": {"name": "Mimic Protocol - Registry", "version": "1"}, "primaryType": "Deactivate",
    "types": {"Deactivate": [{"name": "triggerSigs", "type": "string[]"}]}, "message": {"triggerSigs": ["0x12"]},
}  # fmt: skip


class Page:
    """The URL that a person is shown, and what a browser at it sends."""

    def __init__(self, url: str) -> None:
        self.base = f"http://{urlsplit(url).netloc}"
        self.secret = urlsplit(url).fragment
        self.http = httpx2.Client(base_url=self.base, timeout=60)

    def request(self, **headers: str) -> httpx2.Response:
        return self.http.get("/request", headers={"x-secret": self.secret, **headers})

    def answer(self, body: object, **headers: str) -> httpx2.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.http.post(
            "/answer", content=content, headers={"x-secret": self.secret, "origin": self.base, **headers}
        )

    def status_with_length(self, length: str) -> int:
        """The status of an answer whose head says `length`, and whose content never comes."""
        connection = HTTPConnection(urlsplit(self.base).netloc, timeout=60)
        try:
            connection.putrequest("POST", "/answer")
            for name, value in (("x-secret", self.secret), ("origin", self.base), ("content-length", length)):
                connection.putheader(name, value.encode("latin-1"))
            connection.endheaders()
            with connection.getresponse() as response:
                return response.status
        finally:
            connection.close()


def asked(use: Callable[[BrowserSigner], str], visit: Callable[[Page], object], seconds_max: float = 60) -> str:
    """The result of `use` with a signer whose page `visit` visits."""
    errors: list[BaseException] = []

    def opens(url: str) -> None:
        def run() -> None:
            try:
                visit(Page(url))
            except BaseException as error:  # noqa: BLE001 - it is raised below
                errors.append(error)

        Thread(target=run).start()

    shown: list[str] = []
    try:
        return use(BrowserSigner(show=shown.append, opens=opens, seconds_max=seconds_max))
    finally:
        assert re.search(r"Open http://127\.0\.0\.1:\d+/#[\w-]{43} in a browser", shown[0])
        assert "paste the" in shown[0]
        assert not errors, errors


def test_the_wallet_of_a_browser_is_asked_for_its_address_and_signs() -> None:
    def visit(page: Page) -> None:
        request = page.request().json()
        if request["method"] == "address":
            result = WALLET.address.lower()
        elif request["method"] == "text":
            result = SELF.sign_text(request["text"])
        else:
            assert request["data"]["types"].pop("EIP712Domain")
            result = SELF.sign_typed_data(request["data"])
        assert page.answer({"result": result}).status_code == 204

    assert asked(lambda signer: signer.address, visit) == WALLET.address
    assert asked(lambda signer: signer.sign_text("hello"), visit) == SELF.sign_text("hello")
    assert asked(lambda signer: signer.sign_typed_data(DATA), visit) == SELF.sign_typed_data(DATA)


def test_the_page_loads_nothing_from_elsewhere_and_runs_no_inline_script() -> None:
    def visit(page: Page) -> None:
        for path in ("/", "/sign.js", "/sign.css"):
            response = page.http.get(path)
            assert response.status_code == 200
            assert "default-src 'none'" in response.headers["content-security-policy"]
            assert "frame-ancestors 'none'" in response.headers["content-security-policy"]
            assert response.headers["cache-control"] == "no-store"
            assert not re.search(r"https?://(?!www\.w3\.org)", response.text)
        assert "<script>" not in page.http.get("/").text
        assert page.http.get("/../browser.py").status_code == 404
        page.answer({"result": WALLET.address})

    asked(lambda signer: signer.address, visit)


def test_another_page_host_or_secret_reaches_nothing() -> None:
    def visit(page: Page) -> None:
        own = {"x-secret": page.secret}
        for refused in (
            page.http.get("/request"),
            page.request(**{"x-secret": "another"}),
            page.request(host="evil.example"),
            page.request(host="localhost:" + page.base.rpartition(":")[2]),
            page.request(origin="https://evil.example"),
            page.answer({"result": "0x"}, origin="https://evil.example"),
            page.answer({"result": "0x"}, origin="null"),
            page.answer({"result": "0x"}, **{"x-secret": "another"}),
            page.http.post("/answer", content=b'{"result": "0x"}', headers=own),  # without an origin
        ):
            assert refused.status_code == 403
            assert WALLET.address not in refused.text
        page.answer({"result": WALLET.address})

    assert asked(lambda signer: signer.address, visit) == WALLET.address


def test_only_the_first_answer_of_a_right_form_counts() -> None:
    def visit(page: Page) -> None:
        for body in (
            [],
            {},
            {"result": 1},
            {"result": ""},
            {"result": "x" * 2_000},
            b"\xff",
            b"{",
            b'{"result": "0x12", "result": "0x34"}',
            b'{"result": "0x12", "a": NaN}',
        ):
            assert page.answer(body).status_code == 409
        assert page.answer(b" " * 100_000).status_code == 400
        for length in ("000000001500000000", "²", "-1", ""):
            assert page.status_with_length(length) == 400
        assert page.answer({"result": WALLET.address}).status_code == 204

    assert asked(lambda signer: signer.address, visit) == WALLET.address


def test_a_refusal_and_a_silence_are_named() -> None:
    with pytest.raises(CannotSign, match="the wallet refused: the person refused"):
        asked(lambda signer: signer.address, lambda page: page.answer({"refusal": "the person refused"}))
    with pytest.raises(CannotSign, match="within 1 seconds"):
        asked(lambda signer: signer.address, lambda _page: None, seconds_max=1)


def test_a_text_that_a_terminal_would_obey_is_shown_as_json() -> None:
    shown: list[str] = []
    with pytest.raises(CannotSign, match="within 0 seconds"):
        BrowserSigner(address=WALLET.address, show=shown.append, opens=lambda _url: None, seconds_max=0).sign_text(
            "a\x1b[2J\u202eb"
        )
    assert shown[0].endswith(r'here: "a\u001b[2J\u202eb"')
