"""Whom a request is charged to."""

from __future__ import annotations

import pytest
from limited import Clock, make_limiter

from each_row import each_row
from muniment.service.running.limits.buckets import Key
from muniment.service.running.limits.limiter import Limiter

WALLET, OTHER = b"\1" * 20, b"\2" * 20


@pytest.fixture
def limiter() -> Limiter:
    return make_limiter(Clock())


def taken(key: Key) -> int:
    """How many times 10 units are admitted, until one is refused."""
    count = 0
    while key.charge(10) == 0:
        count += 1
    return count


def test_an_address_has_the_quota_for_itself(limiter: Limiter) -> None:
    assert taken(limiter.client("192.0.2.1").client) == 10
    assert taken(limiter.client("192.0.2.2").client) == 10


@pytest.mark.parametrize(
    "same", [("192.0.2.1", "::ffff:192.0.2.1"), ("2001:db8::1", "2001:db8:0:0:ffff::9"), ("", "not-an-address")]
)
def test_addresses_of_one_client_share_it(limiter: Limiter, same: tuple[str, str]) -> None:
    assert limiter.client(same[0]).name == limiter.client(same[1]).name
    assert taken(limiter.client(same[0]).client) == 10
    assert taken(limiter.client(same[1]).client) == 0


def test_the_networks_of_a_site_have_16_times_the_quota_together(limiter: Limiter) -> None:
    taken_by_each = [taken(limiter.client(f"2001:db8:0:{number:x}::1").client) for number in range(20)]
    assert taken_by_each == [10] * 16 + [0] * 4
    assert taken(limiter.client("2001:db8:1::1").client) == 10


def test_each_policy_counts_for_itself(limiter: Limiter) -> None:
    client = limiter.client("192.0.2.1")
    assert [taken(client.client), taken(client.login), taken(client.stop)] == [10, 5, 1]


def test_signed_work_is_not_charged_to_the_address_of_strangers(limiter: Limiter) -> None:
    client = limiter.client("192.0.2.1")
    assert taken(client.client) == 10
    assert taken(client.signed(WALLET)) == 40
    assert taken(limiter.client("192.0.2.2").signed(WALLET)) == 0


def test_wallets_are_free_so_their_address_has_16_times_the_quota_for_all(limiter: Limiter) -> None:
    client = limiter.client("192.0.2.1")
    assert [taken(client.signed(bytes([number]) * 20)) for number in range(6)] == [40] * 4 + [0] * 2


def test_a_site_with_free_wallets_is_bound_as_well(limiter: Limiter) -> None:
    total = sum(
        taken(limiter.client(f"2001:db8:0:{network:x}::1").signed(bytes([network, number]) * 10))
        for network in range(20)
        for number in range(5)
    )
    assert total == 16 * 16 * 10


def test_what_a_wallet_adds_is_counted_wherever_it_comes_from(limiter: Limiter) -> None:
    assert taken(limiter.owner(WALLET)) == 3
    assert taken(limiter.owner(WALLET)) == 0
    assert taken(limiter.owner(OTHER)) == 3


@pytest.mark.parametrize("peer", ["127.0.0.1", "10.2.3.4", "192.168.1.1", "::1", "fd00::1", "::ffff:127.0.0.1"])
def test_those_whom_a_forgotten_proxy_forwards_share_one_wide_bucket(
    limiter: Limiter, peer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert taken(limiter.forwarder(peer).client) == 640
    assert taken(limiter.forwarder(peer).client) == 0
    assert taken(limiter.client(peer).client) == 10  # a peer that does not forward is a client like all
    limiter.forwarder("10.99.99.99")
    assert capsys.readouterr().out.count("trusted_proxies") == 1


def test_signed_work_behind_a_forgotten_proxy_is_bound_by_its_wide_bucket(limiter: Limiter) -> None:
    total = sum(taken(limiter.forwarder("10.0.0.1").signed(bytes([number]) * 20)) for number in range(20))
    assert total == 640


@pytest.mark.parametrize("peer", ["198.41.0.4", "2620:fe::fe", "100.128.0.1"])
def test_a_stranger_is_no_proxy_whatever_it_sends(
    limiter: Limiter, peer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert taken(limiter.forwarder(peer).client) == 10
    assert taken(limiter.client(peer).client) == 0
    assert capsys.readouterr().out == ""


@each_row("address", ["10.1.2.3", "::ffff:10.1.2.3"])
def test_exempt_networks_have_no_limit(address: str) -> None:
    limiter = make_limiter(Clock(), exempt="10.0.0.0/8")
    client = limiter.client(address)
    keys = [client.client, client.login, client.stop, client.signed(WALLET), limiter.forwarder(address).client]
    assert [key.charge(10**9) for key in keys for _ in range(3)] == [0] * 15
    assert {key.lines for key in keys} == {b""}
    assert taken(limiter.client("192.0.2.1").client) == 10


def test_a_policy_that_is_off_limits_no_client_and_adds_no_header() -> None:
    client = make_limiter(Clock(), client="off").client("192.0.2.1")
    assert [client.client.charge(10**9) for _ in range(3)] == [0, 0, 0]
    assert client.client.lines == b""
    assert client.signed(WALLET).charge(10**9) == 0
    assert taken(client.login) == 5
