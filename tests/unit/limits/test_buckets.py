"""Charges that a bucket admits, against a plain model."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from hypothesis import given, strategies as st
from limited import SECOND_NS, Clock, make_limiter

from each_row import each_row
from muniment.service.running.limits.buckets import Bucket, Rate, Times
from muniment.service.running.limits.policies import Policy, parse_policy

STEPS = st.lists(st.tuples(st.integers(0, 12 * SECOND_NS), st.integers(1, 150)), min_size=1, max_size=60)
POLICIES = st.builds(Policy, st.just("client"), st.integers(1, 1_000), st.integers(1, 60))


class LeakyBucket:
    """The plain model: a level that drains by time, in exact fractions."""

    def __init__(self, policy: Policy) -> None:
        self.rate = Fraction(policy.quota, policy.window_ns)
        self.quota = policy.quota
        self.level = Fraction(0)
        self.at_ns = 0

    def charge(self, units: int, now_ns: int) -> bool:
        self.level = max(self.level - self.rate * (now_ns - self.at_ns), Fraction(0))
        self.at_ns = now_ns
        units = min(units, self.quota)
        if self.level + units > self.quota:
            return False
        self.level += units
        return True


def bucket_of(policy: Policy, clock: Clock) -> Bucket:
    return Bucket(Times(), "192.0.2.1", Rate(policy, 1), clock)


@given(policy=POLICIES, steps=STEPS)
def test_a_bucket_admits_what_a_leaky_bucket_does(policy: Policy, steps: list[tuple[int, int]]) -> None:
    clock, model = Clock(), LeakyBucket(policy)
    bucket = bucket_of(policy, clock)
    for passed_ns, units in steps:
        clock.now_ns += passed_ns
        wait_ns = bucket.charge(units)
        admitted = model.charge(units, clock.now_ns)
        if admitted != (wait_ns == 0):  # units are rounded up to whole nanoseconds: it may be so much later
            assert admitted
            assert wait_ns <= 2 * policy.quota
            model.level -= min(units, policy.quota)


@given(policy=POLICIES, steps=STEPS)
def test_never_more_than_the_quota_and_what_drained_is_admitted(policy: Policy, steps: list[tuple[int, int]]) -> None:
    clock = Clock()
    bucket = bucket_of(policy, clock)
    admitted: list[tuple[int, int]] = []
    for passed_ns, units in steps:
        clock.now_ns += passed_ns
        if bucket.charge(units) == 0:
            admitted.append((clock.now_ns, min(units, policy.quota)))
    for place, (since_ns, _) in enumerate(admitted):
        total = 0
        for at_ns, units in admitted[place:]:
            total += units
            assert total <= policy.quota + Fraction(policy.quota * (at_ns - since_ns), policy.window_ns)


@given(policy=POLICIES, units=st.lists(st.integers(1, 60), min_size=1, max_size=20))
def test_the_wait_that_is_told_is_enough_and_not_a_nanosecond_too_long(policy: Policy, units: list[int]) -> None:
    clock = Clock()
    bucket = bucket_of(policy, clock)
    for count in units:
        if wait_ns := bucket.charge(count):
            assert bucket.wait_ns(count) == wait_ns
            clock.now_ns += wait_ns - 1
            assert bucket.charge(count) == 1
            clock.now_ns += 1
            assert bucket.charge(count) == 0


def test_the_whole_quota_may_come_at_once_where_it_does_not_divide_the_window() -> None:
    clock = Clock()
    bucket = bucket_of(Policy("client", 7, 1), clock)
    assert [bucket.charge(1) for _ in range(7)] == [0] * 7
    assert bucket.charge(1) > 0


def test_a_refusal_takes_nothing() -> None:
    clock = Clock()
    bucket = bucket_of(Policy("client", 10, 10), clock)
    assert bucket.charge(8) == 0
    assert {bucket.charge(3) for _ in range(1_000)} == {SECOND_NS}
    assert bucket.charge(2) == 0


def test_more_than_the_quota_is_charged_as_the_quota() -> None:
    clock = Clock()
    bucket = bucket_of(Policy("client", 10, 10), clock)
    assert bucket.charge(400) == 0
    assert bucket.charge(400) == 10 * SECOND_NS
    clock.advance(10)
    assert bucket.charge(400) == 0


def test_a_debt_refuses_nothing_and_is_waited_for_later() -> None:
    clock = Clock()
    bucket = bucket_of(Policy("client", 10, 10), clock)
    bucket.owe(15)
    assert bucket.charge(1) == 6 * SECOND_NS


def test_no_client_waits_for_a_debt_of_more_than_the_quota() -> None:
    clock = Clock()
    bucket = bucket_of(Policy("client", 10, 10), clock)
    for _ in range(100):
        bucket.owe(1_000)
    assert bucket.charge(1) == 11 * SECOND_NS
    assert bucket.charge(10) == 20 * SECOND_NS


@each_row("address", ["192.0.2.1", "2001:db8::1"])
def test_a_joint_key_tells_the_longest_wait_and_a_refusal_takes_from_none(address: str) -> None:
    clock = Clock()
    limiter = make_limiter(clock)
    client = limiter.client(address)
    wallet, other = b"\1" * 20, b"\2" * 20
    while client.signed(wallet).charge(100) == 0:
        pass
    wait_ns = client.signed(wallet).charge(100)
    assert 0 < wait_ns <= 10 * SECOND_NS
    assert client.signed(wallet).wait_ns(100) == wait_ns
    for _ in range(12):  # the address has 16 times the quota, of which the first wallet took 4
        assert client.signed(other).wait_ns(100) == 0 or client.signed(other).charge(100) > 0
        other = bytes([other[0] + 1]) * 20
        assert client.signed(other).charge(100) == 0
    assert client.signed(b"\x77" * 20).charge(100) > 0


def test_the_lines_tell_what_remains_rounded_down_and_when_all_is_back_rounded_up() -> None:
    clock = Clock()
    policy = parse_policy("client", "20000/20s")
    assert policy is not None
    bucket = bucket_of(policy, clock)
    bucket.charge(1)
    assert bucket.lines == b'ratelimit-policy: "client";q=20000;w=20\r\nratelimit: "client";r=19687;t=1\r\n'
    bucket.charge(9_999)
    assert bucket.lines == b'ratelimit-policy: "client";q=20000;w=20\r\nratelimit: "client";r=10000;t=10\r\n'
    bucket.charge(10_000)
    assert bucket.lines.endswith(b'ratelimit: "client";r=0;t=20\r\n')
    bucket.owe(5_000)
    assert bucket.lines.endswith(b'ratelimit: "client";r=0;t=20\r\n')


@given(units=st.lists(st.integers(1, 400), min_size=1, max_size=100))
def test_what_is_told_to_remain_is_there(units: list[int]) -> None:
    clock = Clock()
    policy = parse_policy("client", "1000/10s")
    assert policy is not None
    bucket = bucket_of(policy, clock)
    for count in units:
        bucket.charge(count)
    told: Any = int(bucket.lines.partition(b"r=")[2].partition(b";")[0])
    assert told == 0 or bucket.charge(told) == 0


def test_a_refusal_says_what_was_used_up_and_when_to_come_again() -> None:
    clock = Clock()
    bucket = bucket_of(Policy("login", 10, 60), clock)
    bucket.charge(10)
    refusal = bucket.refusal(bucket.charge(1) + 1)
    assert refusal.facts == {
        "policy": "login", "quota": 10, "window": 60, "retryAfter": 7, "violated-policies": ["login"],
    }  # fmt: skip
