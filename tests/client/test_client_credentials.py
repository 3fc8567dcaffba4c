"""Credentials that no header can hold, and URLs that no request can have."""

from __future__ import annotations

import socket
import ssl
from typing import Any

import httpcore2
import httpx2
import pytest

from muniment.client import AsyncRegistry, Registry, Retry, Unreachable
from muniment.client.drivers import Blocking
from muniment.client.steps import Send
from muniment.tls import _context, tls_context

# The line break is what a file has at its end.
ODD = ["a-secret\n", "a-\x00secret", "a-sécret", "a-secret\r\nx-other: 1", "a-secret "]


def test_clients_of_one_process_read_the_certificates_of_the_machine_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[ssl.SSLContext] = []

    def create(**_: Any) -> ssl.SSLContext:
        made.append(ssl.create_default_context())
        return made[-1]

    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    monkeypatch.setattr(httpcore2, "default_ssl_context", create)
    _context.cache_clear()
    for kind in (Registry, AsyncRegistry, Registry):
        kind("https://127.0.0.1:9")
    assert made == [tls_context()]


@pytest.mark.parametrize("kind", [Registry, AsyncRegistry])
@pytest.mark.parametrize("name", ["api_key", "operator_key", "token"])
@pytest.mark.parametrize("credential", ODD)
def test_a_credential_that_no_header_can_hold_is_refused_without_being_shown(
    kind: Any, name: str, credential: str
) -> None:
    with pytest.raises(ValueError, match=f"the {name} has") as raised:
        kind("http://127.0.0.1:9", **{name: credential})
    assert "cret" not in str(raised.value)
    assert kind("http://127.0.0.1:9", **{name: "a-secret"})


def test_a_field_that_cannot_be_sent_is_in_no_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, httpx2.Client() as http:
        driver = Blocking(f"http://127.0.0.1:{server.getsockname()[1]}", http)
        with pytest.raises(Unreachable, match="LocalProtocolError") as raised:
            driver.run(Retry(tries=1).reply(Send("GET", "/", headers={"x-auth-token": "a-secret\n"})))
        assert "a-secret" not in str(raised.value)


@pytest.mark.parametrize("url", ["http://h:abc", "http://h\x01", "http://é..x", "http://", "http:///x"])
def test_a_url_that_no_request_can_have_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="http://host or https://host"):
        Registry(url)
