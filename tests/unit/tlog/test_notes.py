"""Signed notes and their keys: the vectors of two other implementations, and everything that is refused."""

from __future__ import annotations

import sys

import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given, strategies as st
from tlog_trees import vectors

from each_row import each_row
from muniment.protocol.log import ed25519
from muniment.protocol.log.checkpoints import parse_checkpoint
from muniment.protocol.log.fields import base64_of
from muniment.protocol.log.notes import (
    COSIGNATURE,
    ED25519,
    NOTE_BYTES_MAX,
    SIGNATURES_MAX,
    Note,
    NoteSignature,
    SigningKey,
    VerifierKey,
    keys_of_log,
    parse_note,
    parse_verifier_key,
    sign_note,
    signing_key,
    verified,
)

VECTORS = vectors("notes")
TEXT: str = VECTORS["text"]
PETER, ENOCH = (parse_verifier_key(each["key"]) for each in VECTORS["signers"])
PETER_LINE, ENOCH_LINE = (each["line"] for each in VECTORS["signers"])
BOTH = f"{TEXT}\n{PETER_LINE}{ENOCH_LINE}".encode()
WITNESSED = vectors("sunlight")["checkpoints"]
AT_S = 1_795_204_080
KEY, TIME_KEY = keys_of_log("example.org/log/1", bytes(range(32)))


def test_the_example_of_the_specification_verifies() -> None:
    example = VECTORS["example"]
    key = parse_verifier_key(example["key"])
    note = parse_note(example["note"].encode())
    assert (note.text, verified(note, [key])) == ("This is an example message.\n", {key: 0})


def test_signatures_are_those_of_another_implementation() -> None:
    key = signing_key("PeterNeumann", ED25519, bytes.fromhex(VECTORS["private_key"]))
    assert key.verifier == PETER
    assert sign_note(TEXT, [key], 0).data.decode() == f"{TEXT}\n{PETER_LINE}"


def test_signatures_by_known_keys_are_verified_and_others_are_ignored() -> None:
    note = parse_note(BOTH)
    assert note.data == BOTH
    assert verified(note, [PETER, ENOCH]) == {PETER: 0, ENOCH: 0}
    assert verified(note, [ENOCH]) == {ENOCH: 0}
    assert verified(note, []) == {}
    assert verified(note, [PETER, PETER]) == {PETER: 0}


@each_row("case", WITNESSED, ids=["witness", "mirror", "second-witness"])
def test_timestamped_cosignatures_of_another_implementation_verify(case: dict[str, str]) -> None:
    key = parse_verifier_key(case["key"])
    note = parse_note(case["note"].encode())
    assert key.kind == COSIGNATURE
    assert verified(note, [key]) == {key: 1_767_139_200}  # 2025-12-31T00:00:00Z
    assert parse_checkpoint(note.text).size == 300


def changed(note: Note, at: int, data: bytes) -> Note:
    old = note.signatures[at]
    new = NoteSignature(old.name, old.key_id, data)
    return Note(note.text, (*note.signatures[:at], new, *note.signatures[at + 1 :]))


@given(st.integers(0, 64 * 8 - 1), st.integers(0, 72 * 8 - 1), st.sampled_from(range(40)))
def test_every_flipped_bit_of_a_signature_or_a_text_is_refused(bit: int, time_bit: int, at: int) -> None:
    note = sign_note(TEXT, [KEY, TIME_KEY], AT_S)
    assert verified(note, [KEY.verifier, TIME_KEY.verifier]) == {KEY.verifier: 0, TIME_KEY.verifier: AT_S}
    for number, flip in ((0, bit), (1, time_bit)):
        data = note.signatures[number].signature
        broken = (int.from_bytes(data) ^ 1 << flip).to_bytes(len(data))
        with pytest.raises(ValueError, match=r"the signature of example\.org/log/1 does not verify"):
            verified(changed(note, number, broken), [KEY.verifier, TIME_KEY.verifier])
        with pytest.raises(ValueError, match="does not verify"):
            verified(changed(note, number, data[:-1]), [KEY.verifier, TIME_KEY.verifier])
    other = Note(TEXT[:at] + chr(ord(TEXT[at]) ^ 1) + TEXT[at + 1 :], note.signatures)
    for key in (KEY, TIME_KEY):
        with pytest.raises(ValueError, match="does not verify"):
            verified(other, [key.verifier])


def test_a_note_whose_known_signature_is_wrong_is_worth_nothing_though_another_is_right() -> None:
    note = parse_note(BOTH)
    with pytest.raises(ValueError, match="of EnochRoot does not verify"):
        verified(changed(note, 1, note.signatures[0].signature), [PETER, ENOCH])


def test_the_first_signature_of_a_key_counts() -> None:
    first = sign_note(TEXT, [TIME_KEY], AT_S).signatures
    second = sign_note(TEXT, [TIME_KEY], AT_S + 1).signatures
    assert verified(Note(TEXT, first + second), [TIME_KEY.verifier]) == {TIME_KEY.verifier: AT_S}


def test_a_time_beyond_2_63_is_refused() -> None:
    late = NoteSignature(TIME_KEY.verifier.name, TIME_KEY.verifier.key_id, TIME_KEY.sign(TEXT, 2**63))
    with pytest.raises(ValueError, match="does not verify"):
        verified(Note(TEXT, (late,)), [TIME_KEY.verifier])


def test_two_keys_with_one_id_are_refused() -> None:
    one, another = (VerifierKey("a", ED25519, n.to_bytes(32)) for n in (65_227, 67_083))
    assert one.key_id == another.key_id
    with pytest.raises(ValueError, match="two keys of a have the same id"):
        verified(parse_note(BOTH), [one, another])


# The first eight as in note_test.go.
NO_NOTES = {
    TEXT: "an empty line",
    f"{TEXT}\n": "an empty line",
    f"{TEXT}\n{PETER_LINE[:-1]}": "an empty line",
    f"\x01{TEXT}\n{PETER_LINE}": "no control characters",
    f"{TEXT}\n— Bad Name {PETER_LINE[15:]}": "not base64",
    f"{TEXT}\n{PETER_LINE}Unexpected line.\n": "a dash, the name of a key",
    f"{TEXT}\n{PETER_LINE * 101}": "at most 100 signatures",
    "": "an empty line",
    "\n\n": "an empty line",
    f"\n{PETER_LINE}": "an empty line",
    f"{TEXT}{PETER_LINE}": "an empty line",
    f"{TEXT}\t\n{PETER_LINE}": "no control characters",
    f"{TEXT}\n— a+b {PETER_LINE[15:]}": "no space, no plus",
    f"{TEXT}\n—  {PETER_LINE[15:]}": "no space, no plus",
    f"{TEXT}\n— a\u3000b {PETER_LINE[15:]}": "no space, no plus",
    f"{TEXT}\n— a AAAAAA==\n": "four bytes that name the key",
    f"{TEXT}\n— a AAAAAAB=\n": "not base64",
    f"{TEXT}\n- a AAAAAAA=\n": "a dash, the name of a key",
    f"{TEXT}\n— a\n": "a dash, the name of a key",
    f"{TEXT}\n— a AAAA\rAAA=\n": "no control characters",
    f"{TEXT}\n— a AAAAAA é\n": "not base64",
}


@each_row(("text", "reason"), NO_NOTES.items())
def test_what_is_no_note_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_note(text.encode())


def test_a_note_is_utf_8_and_has_a_megabyte_at_most() -> None:
    with pytest.raises(ValueError, match="is UTF-8"):
        parse_note(b"\xff" + BOTH)
    with pytest.raises(ValueError, match="at most 1000000 bytes"):
        parse_note(b"a" * (NOTE_BYTES_MAX + 1 - len(BOTH)) + BOTH)
    assert len(parse_note(b"a" * (NOTE_BYTES_MAX - len(BOTH)) + BOTH).signatures) == 2
    assert len(parse_note(f"{TEXT}\n{PETER_LINE * SIGNATURES_MAX}".encode()).signatures) == SIGNATURES_MAX


def test_the_last_empty_line_ends_the_text() -> None:
    text = f"\n\n{TEXT}\n{ENOCH_LINE}"
    assert parse_note(f"{text}\n{PETER_LINE}".encode()).text == text


@each_row("text", ["abc", "", "a\tb\n", "\x00\n"])
def test_a_text_that_no_note_has_is_not_signed(text: str) -> None:
    with pytest.raises(ValueError, match="ends in a newline"):
        sign_note(text, [KEY], AT_S)


def test_every_mangled_verifier_key_is_refused() -> None:
    text = PETER.text
    pieces = {text[i:j] for i in range(len(text)) for j in range(i + 1, len(text) + 1)} - {text}
    shifted = {text[:i] + chr(ord(text[i]) + 1) + text[i + 1 :] for i in range(len(text))}
    others = {text.upper(), text + "\n", "é" + text, "a" * 1001 + text, *VECTORS["bad_keys"]}
    for key in ("", "+", "++", "a b+00000000+AAAA", f"+c74f20a3+{text[-44:]}", *pieces, *shifted, *others):
        with pytest.raises(ValueError, match=r"a verifier key|the verifier key|an Ed25519 key|the name of a key"):
            parse_verifier_key(key)


@given(st.text(), st.sampled_from([ED25519, COSIGNATURE]), st.binary(min_size=32, max_size=32))
def test_a_verifier_key_is_read_as_what_it_was_made_of(name: str, kind: int, public_key: bytes) -> None:
    try:
        key = SigningKey(VerifierKey(name, kind, public_key), b"").verifier
        assert parse_verifier_key(key.text) == key
    except (ValueError, UnicodeEncodeError):
        assert not name or any(each.isspace() or each == "+" or not each.isprintable() for each in name)


def test_the_two_keys_of_a_log_differ_and_their_secret_is_not_shown() -> None:
    assert (KEY.verifier.kind, TIME_KEY.verifier.kind) == (ED25519, COSIGNATURE)
    assert KEY.private_key != TIME_KEY.private_key
    for key, info in ((KEY, b"muniment log checkpoint"), (TIME_KEY, b"muniment log time")):
        assert HKDF(SHA256(), 32, None, info).derive(bytes(range(32))) == key.private_key
        assert repr(key) == f"SigningKey({key.verifier.text!r})"
        assert key.private_key.hex() not in repr(key)
        assert base64_of(key.private_key) not in repr(key)


def test_without_the_library_a_note_is_read_and_its_signature_is_an_error_that_says_what_to_type(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [each for each in sys.modules if each.startswith("cryptography")]:
        monkeypatch.setitem(sys.modules, name, None)
    note = parse_note(BOTH)
    for use in (
        lambda: verified(note, [PETER]), lambda: signing_key("a", ED25519, bytes(32)), lambda: KEY.sign(TEXT, 0),
    ):  # fmt: skip
        with pytest.raises(ed25519.LibraryMissing, match=r"pip install 'muniment\[tlog\]'"):
            use()
