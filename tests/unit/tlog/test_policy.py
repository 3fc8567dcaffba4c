"""Policies: which witnesses must have signed, and files that are refused."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st

from each_row import each_row
from muniment.protocol.log.notes import COSIGNATURE, ED25519, VerifierKey
from muniment.protocol.log.policy import GROUPS_MAX, LOGS_MAX, WITNESSES_MAX, parse_policy


def key(n: int, kind: int = COSIGNATURE) -> VerifierKey:
    return VerifierKey(f"w{n}.example", kind, n.to_bytes(32))


def witness(n: int) -> str:
    return f"witness w{n} {key(n).text}\n"


# The example of the specification tlog-policy, with keys.
EXAMPLE = (
    f"log {key(99, ED25519).text}\n\n"
    + "".join(f"witness X{n} {key(n).text}\n" for n in (1, 2, 3))
    + "group X-witnesses 2 X1 X2 X3\n\n"
    + "".join(f"witness Y{n} {key(10 + n).text}\n" for n in (1, 2, 3))
    + "group Y-witnesses any Y1 Y2 Y3\n\ngroup X-and-Y all X-witnesses Y-witnesses\nquorum X-and-Y\n"
)


@given(st.sets(st.sampled_from([1, 2, 3, 11, 12, 13, 50])))
def test_the_example_of_the_specification_wants_two_of_x_and_one_of_y(signed: set[int]) -> None:
    policy = parse_policy(EXAMPLE.encode())
    assert policy.logs == ((key(99, ED25519), None),)
    enough = len(signed & {1, 2, 3}) >= 2 and bool(signed & {11, 12, 13})
    assert policy.is_met({key(n) for n in signed}) is enough


def test_a_quorum_may_be_one_witness_or_none() -> None:
    one = parse_policy(f"{witness(1)}{witness(2)}quorum w2".encode())
    assert [one.is_met(signed) for signed in ({key(1)}, {key(2)}, set())] == [False, True, False]
    assert parse_policy(b"quorum none\n").is_met(set())


def test_spaces_comments_urls_and_letters_beyond_ascii_are_read() -> None:
    text = f"# a\n \t# quorum b\n\n\twitness \t caf\xff {key(1).text}  https://w.example/x \t\n quorum caf\xff"
    policy = parse_policy(text.encode("latin-1"))
    ((name, party),) = policy.witnesses.items()
    assert (name.encode("utf-8", "surrogateescape"), party) == (b"caf\xff", (key(1), "https://w.example/x"))
    assert policy.is_met([key(1)])


W = witness(1)
REFUSED = {
    "": "no line that begins with quorum",
    W: "no line that begins with quorum",
    "quorum none\nquorum none": "line 2 of the policy: a policy has one quorum",
    "quorum w1": "a witness or a group of an earlier line",
    f"quorum w1\n{W}": "line 1 of the policy: the quorum is `none`",
    "quorum": "quorum NAME",
    "quorum none none": "quorum NAME",
    "Quorum none": "begins with log, witness, group or quorum",
    f"{W}{W}": "line 2 of the policy: the name is `none`, or an earlier line",
    f"{W}witness w2 {key(1).text}": "an earlier line has this key",
    f"witness none {key(1).text}": "the name is `none`",
    "witness w1": "witness NAME VKEY",
    f"{W}group w1 1 w1": "the name is `none`, or an earlier line",
    f"{W}group g 0 w1": "from 1 to 1",
    f"{W}group g 2 w1": "from 1 to 1",
    f"{W}group g +1 w1": "from 1 to 1",
    f"{W}group g ١ w1": "from 1 to 1",
    f"{W}group g {'9' * 5000} w1": "from 1 to 1",
    f"{W}group g 1": "group NAME",
    "group g any w1": "a group of an earlier line",
    f"{W}group g any none": "of an earlier line",
    f"{W}group g any g": "of an earlier line",
    f"{W}group g any w1 w1": "is a member once",
    f"{W}group g any w1\ngroup h any w1": "line 3 of the policy: a witness or a group is a member once",
    f"witness w1 {key(1, ED25519).text}": "timestamped Ed25519",
    "witness w1 nokey": "NAME+ID+KEY",
    f"log {key(1).text} https://a b": "log VKEY",
    "log": "log VKEY",
    f"log {key(1).text}\nlog {key(1, 1).text}": "an earlier line has this key",
    "quorum none\r\n": "the only control characters",
    "# \x00": "the only control characters",
    "#" * 300_000: "at most 262144 bytes",
}


@each_row(("text", "reason"), REFUSED.items(), ids=range(len(REFUSED)))
def test_other_files_are_refused_with_the_line(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        parse_policy(text.encode())


@each_row(
    ("line", "most"),
    [
        (lambda n: f"log {key(n, ED25519).text}\n", LOGS_MAX),
        (witness, WITNESSES_MAX),
        (lambda n: f"group g{n} all {f'g{n - 1}' if n > 1 else 'first'}\n", GROUPS_MAX),
    ],
    ids=["logs", "witnesses", "groups"],
)  # fmt: skip
def test_a_policy_has_a_bounded_number_of_each(line: Callable[[int], str], most: int) -> None:
    first = f"witness first {key(500).text}\n" if most == GROUPS_MAX and "group" in line(1) else ""
    lines = first + "".join(line(n) for n in range(1, most + 1))
    parse_policy(f"{lines}quorum none".encode())
    with pytest.raises(ValueError, match=f"a policy has at most {most}"):
        parse_policy(f"{lines}{line(most + 1)}quorum none".encode())


def test_a_chain_of_groups_is_judged_from_its_first() -> None:
    groups = "".join(f"group g{n} all {f'g{n - 1}' if n > 1 else 'w1'}\n" for n in range(1, GROUPS_MAX + 1))
    policy = parse_policy(f"{W}{groups}quorum g{GROUPS_MAX}".encode())
    assert policy.is_met([key(1)])
    assert not policy.is_met([key(2)])
