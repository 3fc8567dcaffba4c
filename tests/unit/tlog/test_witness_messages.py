"""What is said to a witness, and what it answers, byte for byte."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from each_row import each_row
from muniment.protocol.log.checkpoints import parse_checkpoint
from muniment.protocol.log.fields import hash_of
from muniment.protocol.log.notes import COSIGNATURE, parse_note, sign_note, signing_key
from muniment.service.resources.log.witnesses import (
    checkpoint_path,
    parse_cosignature,
    parse_size,
    read_policy,
    request_body,
    witnesses_of,
)
from muniment.service.running.settings import Settings

# The example of the specification tlog-witness, section "add-checkpoint" (github.com/C2SP/C2SP, commit
# 055270b5928827a49ee84620903e141c2e97d79f): a request, and the answer to it.
REQUEST = """old 20852014
PlRNCrwHpqhGrupue0L7gxbjbMiKA9temvuZZDDpkaw=
jrJZDmY8Y7SyJE0MWLpLozkIVMSMZcD5kvuKxPC3swk=
5+pKlUdi2LeF/BcMHBn+Ku6yhPGNCswZZD1X/6QgPd8=
/6WVhPs2CwSsb5rYBH5cjHV/wSmA79abXAwhXw3Kj/0=

example.com/behind-the-sofa
20852163
CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=

\u2014 example.com/behind-the-sofa Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=
\u2014 example.com/behind-the-sofa opLqBQsREYCgu6xQkYQwJr9fo45a62DN9EdmHXnZdXNqlcVGlCum2Wks+49/V6267UEjw6QUXTS5Rovnzv++qbSzm9Q=
"""  # noqa: E501 - as it stands there
ANSWER = """\u2014 witness.example/w1 CMp+6LWBU0anHGH5aNDTJkH/gj79sG+T6+iP2ThYN5krrDJbR1HDnucjL39QsZTSvVjyQLrdk3DXDqI5G2HgLatVs0pWh6Up69HVOw==
\u2014 witness.example/w1 I7rEps0pvK2UqkS2gSpVUDhrhVtQV9lgF6pRrWAvjJHjyWpW7VcE3SiOlVlbQNt64vWhO+DlkL0+UfzuOBMh9ChdMkP1vi/lCAsmlw==
\u2014 witness.example/w2 AWui8Sk55XjYLOijihBjhqEH6nS1ndDymE0a+6idX7pLcnoB+dhnz0854aLZgrrKbYKA7nC3HNJhm/kWl7oJlqU3rXXvpysAdyP3wQ==
"""  # noqa: E501 - as it stands there
TEXT = parse_note(REQUEST.split("\n\n", 1)[1].encode()).text
KEY = signing_key("witness.example/w1", COSIGNATURE, b"\x01" * 32)
NOW_S = 1_679_315_147


def test_a_request_is_as_the_specification_has_it() -> None:
    head, note = REQUEST.split("\n\n", 1)
    proof = [hash_of(line, "a hash") for line in head.split("\n")[1:]]
    assert request_body(20852014, proof, parse_note(note.encode())) == REQUEST.encode()
    body = request_body(0, [], parse_note(note.encode()))
    assert body == f"old 0\n\n{note}".encode()


def test_of_an_answer_the_line_by_the_key_of_the_witness_counts() -> None:
    with pytest.raises(ValueError, match="the answer has no signature by the key of the witness"):
        parse_cosignature(ANSWER.encode(), TEXT, KEY.verifier, NOW_S)
    (signed,) = sign_note(TEXT, [KEY], NOW_S).signatures
    content = ANSWER.encode() + signed.line.encode()
    assert parse_cosignature(content, TEXT, KEY.verifier, NOW_S) == signed
    for apart_s in (-900, 900):
        assert parse_cosignature(content, TEXT, KEY.verifier, NOW_S + apart_s) == signed
    for apart_s in (-901, 901):
        with pytest.raises(ValueError, match="the time of the signature is 901 s away from ours"):
            parse_cosignature(content, TEXT, KEY.verifier, NOW_S + apart_s)
    with pytest.raises(ValueError, match="the signature of the witness does not verify"):
        parse_cosignature(content, TEXT.replace("20852163", "20852164"), KEY.verifier, NOW_S)


@each_row("content", [b"", b"\n", b"\xff\n", b"more\n", ANSWER.encode()[:-1], b"a\n\n" + ANSWER.encode()])
def test_other_answers_are_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"a note is|a signature is|a line with|the answer has"):
        parse_cosignature(content, TEXT, KEY.verifier, NOW_S)


# Contents of `TestProcessConflictResponse` of sigsum.org/sigsum-go, pkg/client/client_test.go; after them our own.
SIZES = {
    b"": None, b"0\n": 0, b"50\n": 50, b"50": None, b"050\n": None,
    b"9223372036854775807\n": 2**63 - 1, b"9223372036854775808\n": None, b"-1\n": None, b"1 \n": None, b"1\n\n": None,
    b"\xb2\n": None, b"1" * 100 + b"\n": None,
}  # fmt: skip


@each_row("content", SIZES)
def test_the_size_that_a_witness_has(content: bytes) -> None:
    if (size := SIZES[content]) is not None:
        assert parse_size(content) == size
        return
    with pytest.raises(ValueError, match="the size in the answer of a witness is"):
        parse_size(content)


def test_the_last_checkpoint_stands_at_the_hash_of_the_origin() -> None:
    origin = parse_checkpoint(TEXT).origin
    assert checkpoint_path(origin) == f"/{hashlib.sha256(origin.encode()).hexdigest()}/checkpoint"


def test_the_witnesses_of_a_policy_are_those_with_a_url(tmp_path: Path) -> None:
    keys = [signing_key(f"w{n}", COSIGNATURE, bytes((n,)) * 32).verifier for n in (1, 2)]
    path = tmp_path / "policy"
    settings = Settings(tlog_policy=str(path))
    assert read_policy(Settings()) is None
    path.write_bytes(b"witness a\xff %b http://w1.example/x/\nwitness b %b\nquorum a\xff\n" % tuple(
        key.text.encode() for key in keys
    ))  # fmt: skip
    policy = read_policy(settings)
    assert policy
    assert witnesses_of(policy) == [("a\ufffd", keys[0], "http://w1.example/x")]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "tlog_policy cannot be read: .*: No such file or directory"),
        ("quorum", "line 1 of the policy: the quorum is: quorum NAME"),
        ("witness w KEY ftp://w.example\nquorum w", "the URL of the witness w is not an http or https URL"),
        ("witness w KEY http://a:b@w.example\nquorum w", "the URL of the witness w is not an http or https URL"),
        ("witness w KEY\nquorum w", "the witnesses with a URL are too few for the quorum"),
    ],
)
def test_a_policy_file_of_no_use_is_an_error(tmp_path: Path, content: str | None, why: str) -> None:
    path = tmp_path / "policy"
    if content is not None:
        path.write_text(content.replace("KEY", KEY.verifier.text) + "\n")
    with pytest.raises(ValueError, match=why):
        read_policy(Settings(tlog_policy=str(path)))
