"""Where the service listens: on one address, or on every one."""

from __future__ import annotations

import socket

import pytest

from each_row import each_row
from muniment.service.server.run import listen

needs_ipv6 = pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")


def answers_at(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=5).close()
    except ConnectionRefusedError:
        return False
    return True


@needs_ipv6
@pytest.mark.allow_hosts(["127.0.0.1", "::1"])
@each_row(
    ("host", "ipv4", "ipv6"),
    [
        ("::", True, True), ("0::0", True, True), ("::1", False, True), ("127.0.0.1", True, False),
        ("0.0.0.0", True, False),  # noqa: S104 - for a moment
        ("localhost", True, False), ("", True, False),
    ],
)  # fmt: skip
def test_only_the_unspecified_address_of_ipv6_is_one_of_both_families(host: str, *, ipv4: bool, ipv6: bool) -> None:
    with listen(host, 0) as listener:
        port = listener.getsockname()[1]
        assert (answers_at("127.0.0.1", port), answers_at("::1", port)) == (ipv4, ipv6)


@needs_ipv6
@each_row(("families", "expected"), [((6,), "::1"), ((6, 4), "127.0.0.1"), ((4, 6), "127.0.0.1")])
def test_a_name_listens_at_its_address_of_ipv4_or_at_that_of_ipv6(
    families: tuple[int, ...], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {4: (socket.AF_INET, ("127.0.0.1", 0)), 6: (socket.AF_INET6, ("::1", 0, 0, 0))}
    addresses = [(known[each][0], socket.SOCK_STREAM, 6, "", known[each][1]) for each in families]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: addresses)
    with listen("registry.example", 0) as listener:
        assert listener.getsockname()[0] == expected


def test_a_name_that_nobody_knows_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(OSError, match=r"cannot listen on registry\.example port 1: Name or service not known"):
        listen("registry.example", 1)
