"""CID texts: one spelling each, everything else refused as `InvalidCid`."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, strategies as st
from ipfs_vectors import CID_TEXTS

from counted_calls import calls_within
from each_row import each_row
from muniment.protocol.errors import InvalidCid
from muniment.protocol.ipfs.cid import DAG_PB, IDENTITY, RAW, BundleCid, Cid, CidParts, cid_v0, cid_v1, decode_cid

# What the vectors leave to us: other bases and letter cases are refused, other hashes only by the allow-list.
WELL_FORMED_ONLY = {"v1-truncated-digest", "v1-sha512-len", "v1-identity-empty", "v1-dagcbor"}
WELL_FORMED = [case for case in CID_TEXTS if case["accept"] is True or case["kind"] in WELL_FORMED_ONLY]
MALFORMED = [case for case in CID_TEXTS if case not in WELL_FORMED]
V0 = "QmV2xSyG76zpH98n3aZfr4FVMwC64nbKnQ13vEjyHidmMZ"
digests = st.binary(min_size=32, max_size=32)


@each_row("case", WELL_FORMED, ids=lambda case: case["kind"])
def test_a_well_formed_cid_is_taken_apart_and_put_together_again(case: dict[str, Any]) -> None:
    parts, decoded = decode_cid(case["cid"]), case.get("decoded") or {}
    assert parts.text == case["cid"]
    if decoded:
        assert (parts.version, hex(parts.codec), parts.multihash.hex()) == (
            decoded["version"], decoded["codec"], decoded["multihashHex"],
        )  # fmt: skip


@each_row("case", MALFORMED, ids=lambda case: case["kind"])
def test_any_other_text_is_refused(case: dict[str, Any]) -> None:
    with pytest.raises(InvalidCid):
        decode_cid(case["cid"])


@given(st.binary(max_size=128), st.sampled_from("aq"))
def test_a_character_too_many_is_refused(digest: bytes, letter: str) -> None:
    with pytest.raises(InvalidCid):
        decode_cid(CidParts(1, RAW, IDENTITY, digest).text + letter)


def test_the_vectors_are_all_sorted_into_taken_and_refused() -> None:
    assert (len(WELL_FORMED), len(MALFORMED)) == (8, 33)


@each_row("case", [case for case in WELL_FORMED if case["kind"] in WELL_FORMED_ONLY], ids=lambda c: c["kind"])
def test_another_hash_or_codec_is_well_formed_and_not_on_the_allow_list(case: dict[str, Any]) -> None:
    with pytest.raises(InvalidCid, match="a CID here must use"):
        Cid.parse(case["cid"])


def test_both_spellings_of_a_dag_pb_cid_name_the_same_thing() -> None:
    v1 = "bafybeiddpfuvscw3s64wo7gxslbvv2qwre2ybt25ygms6htecynyyi5eba"
    first, second = Cid.parse(V0), Cid.parse(v1)
    assert (first.version, second.version) == (0, 1)
    assert (first.codec, first.digest) == (second.codec, second.digest) == (DAG_PB, decode_cid(V0).digest)
    assert (first, second) == (V0, v1)


def test_a_bundle_cid_is_dag_pb() -> None:
    assert BundleCid.parse(V0) == V0
    with pytest.raises(InvalidCid, match="codec dag-pb, not 0x55"):
        BundleCid.parse(cid_v1(RAW, bytes(32)))


def test_the_gateway_probe_is_an_identity_cid() -> None:
    assert decode_cid("bafkqaaa") == CidParts(1, RAW, IDENTITY, b"")


@each_row("text", ["b" + "a" * 5000, "Qm" + "1" * 5000, "b" + "7" * 240, "b" * 241])
def test_an_overlong_cid_is_refused_before_it_is_decoded(text: str) -> None:
    with calls_within(10_000), pytest.raises(InvalidCid, match="at most 240"):
        decode_cid(text)


@each_row("length", [128, 129])
def test_a_digest_has_at_most_128_bytes(length: int) -> None:
    text = CidParts(1, 2**63 - 1, IDENTITY, bytes(length)).text
    if length == 128:
        assert decode_cid(text).digest == bytes(128)
    else:
        with pytest.raises(InvalidCid, match="at most 128 bytes"):
            decode_cid(text)


@given(digests, st.sampled_from([DAG_PB, RAW]))
def test_text_and_digest_lead_to_each_other(digest: bytes, codec: int) -> None:
    for cid in (cid_v0(digest), cid_v1(codec, digest)):
        assert Cid.parse(str(cid)).digest == digest
        assert re.search(Cid.schema["pattern"], cid)
        assert len(cid) <= Cid.schema["maxLength"]
    assert re.search(BundleCid.schema["pattern"], cid_v1(codec, digest)) is not None or codec == RAW


@given(st.text(max_size=250) | st.text(alphabet="bafkyeizQm123457", max_size=250))
def test_an_accepted_cid_has_one_spelling(text: str) -> None:
    try:
        parts = decode_cid(text)
    except InvalidCid:
        return
    assert parts.text == text


@given(digests, st.integers(0, 58), st.sampled_from("abcdefghijklmnopqrstuvwxyz234567ABQ01="))
def test_a_changed_letter_is_refused_or_names_something_else(digest: bytes, at: int, letter: str) -> None:
    text = str(cid_v1(DAG_PB, digest))
    changed = text[:at] + letter + text[at + 1 :]
    try:
        parts = decode_cid(changed)
    except InvalidCid:
        return
    assert changed == text or parts != decode_cid(text)
