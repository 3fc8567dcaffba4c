"""Checkpoints and proofs: their texts, and who signed them."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st
from tlog_trees import Nodes, entries, vectors

from each_row import each_row
from muniment.protocol.log.checkpoints import (
    Checkpoint,
    Proof,
    check_proof,
    open_checkpoint,
    parse_checkpoint,
    parse_proof,
)
from muniment.protocol.log.fields import SIZE_MAX
from muniment.protocol.log.notes import Note, keys_of_log, parse_note, sign_note
from muniment.protocol.log.tree import hashes_of, inclusion_ranges, leaf_hash, root_hash

KEY, TIME_KEY = keys_of_log("example.org/log/1", bytes(range(32)))
OTHER_KEY, _ = keys_of_log("example.org/log/2", bytes(range(32)))
ROOT = "CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I="
# The example of the specification tlog-checkpoint.
EXAMPLE = f"example.com/behind-the-sofa\n20852163\n{ROOT}\n"


def test_the_example_of_the_specification_is_read() -> None:
    found = parse_checkpoint(EXAMPLE)
    assert (found.origin, found.size, found.root.hex()[:8], found.extensions) == (
        "example.com/behind-the-sofa", 20_852_163, "0ac5186a", (),
    )  # fmt: skip
    assert found.text == EXAMPLE
    more = parse_checkpoint(EXAMPLE + "more\nand more\n")
    assert (more.extensions, more.text) == (("more", "and more"), EXAMPLE + "more\nand more\n")


@each_row(
    "text",
    [
        "",
        "a\n",
        "a\n1\n",
        f"a\n1\n{ROOT}",
        f"\n1\n{ROOT}\n",
        f"a\n\n{ROOT}\n",
        f"a\n01\n{ROOT}\n",
        f"a\n-1\n{ROOT}\n",
        f"a\n+1\n{ROOT}\n",
        f"a\n1 \n{ROOT}\n",
        f"a\n٣\n{ROOT}\n",
        f"a\n{SIZE_MAX + 1}\n{ROOT}\n",
        f"a\n{'9' * 100_000}\n{ROOT}\n",
        f"a\n1\n{ROOT[:-1]}\n",
        "a\n1\nAAAA\n",
        f"a\n1\n{ROOT[:-2]}J=\n",
        f"a\n1\n {ROOT}\n",
        f"a\n1\n{ROOT}\n\n",
        f"a\n1\n{ROOT}\nb\n\nc\n",
        f"a\x7f\n1\n{ROOT}\n",
        "a\n1\né\n",
    ],
)
def test_what_is_no_checkpoint_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="checkpoint"):
        parse_checkpoint(text)


@given(st.text(), st.integers(), st.binary(max_size=33), st.lists(st.text(), max_size=2))
def test_what_a_checkpoint_cannot_say_is_not_written(origin: str, size: int, root: bytes, more: list[str]) -> None:
    checkpoint = Checkpoint(origin, size, root, tuple(more))
    try:
        text = checkpoint.text
    except ValueError:
        return
    assert parse_checkpoint(text) == checkpoint


def test_a_checkpoint_is_opened_with_the_key_of_its_log_alone() -> None:
    checkpoint = Checkpoint(KEY.verifier.name, 5, bytes(32))
    note = sign_note(checkpoint.text, [KEY, TIME_KEY], 1)
    for key in (KEY, TIME_KEY):
        assert open_checkpoint(note, key.verifier) == checkpoint
    with pytest.raises(ValueError, match=r"is of the log example.org/log/1, not of example.org/log/2"):
        open_checkpoint(note, OTHER_KEY.verifier)
    with pytest.raises(ValueError, match=r"has no signature by example.org/log/1"):
        open_checkpoint(Note(note.text, note.signatures[1:]), KEY.verifier)
    foreign = sign_note(checkpoint._replace(origin="example.org/log/2").text, [KEY], 1)
    with pytest.raises(ValueError, match=r"is of the log example.org/log/2"):
        open_checkpoint(foreign, KEY.verifier)


def proof_of(index: int, size: int, extra: bytes | None = None) -> Proof:
    nodes = Nodes([leaf_hash(each) for each in entries(size)])
    text = Checkpoint(KEY.verifier.name, size, root_hash(size, nodes)).text
    hashes = tuple(hashes_of(inclusion_ranges(index, size), nodes))
    return Proof(index, hashes, sign_note(text, [KEY, TIME_KEY], 7), extra)


@given(st.integers(1, 40), st.data(), st.none() | st.binary(max_size=100))
def test_a_proof_is_read_and_proves_one_entry(size: int, data: st.DataObject, extra: bytes | None) -> None:
    index = data.draw(st.integers(0, size - 1))
    proof = proof_of(index, size, extra)
    assert parse_proof(proof.data) == proof
    assert check_proof(proof, leaf_hash(entries(size)[index]), KEY.verifier).size == size
    with pytest.raises(ValueError, match="leads to another root"):
        check_proof(proof, leaf_hash(b"another record"), KEY.verifier)
    with pytest.raises(ValueError, match=r"is of the log"):
        check_proof(proof, leaf_hash(entries(size)[index]), OTHER_KEY.verifier)


def test_a_proof_has_the_lines_of_the_specification() -> None:
    head, _, note = proof_of(2, 3, b"extra data").data.decode().partition("\n\n")
    kind, extra, index, *hashes = head.split("\n")
    assert (kind, extra, index, len(hashes)) == ("c2sp.org/tlog-proof@v1", "extra ZXh0cmEgZGF0YQ==", "index 2", 1)
    assert parse_note(note.encode()).text.startswith("example.org/log/1\n3\n")
    assert parse_proof(proof_of(0, 1).data).hashes == ()


NOTE = vectors("sunlight")["checkpoints"][0]["note"]
HEAD = "c2sp.org/tlog-proof@v1\n"


@each_row(
    "text",
    [
        "",
        HEAD,
        f"{HEAD}index 1\n",
        f"c2sp.org/tlog-proof@v2\nindex 1\n\n{NOTE}",
        f"{HEAD}\n{NOTE}",
        f"{HEAD}index 01\n\n{NOTE}",
        f"{HEAD}index -1\n\n{NOTE}",
        f"{HEAD}index {SIZE_MAX + 1}\n\n{NOTE}",
        f"{HEAD}index 1\nextra AAAA\n\n{NOTE}",
        f"{HEAD}extra AAAB=\nindex 1\n\n{NOTE}",
        f"{HEAD}index 1\nAAAA\n\n{NOTE}",
        f"{HEAD}index 1\n{(ROOT + chr(10)) * 64}\n{NOTE}",
        f"{HEAD}index 1\né\n\n{NOTE}",
        f"{HEAD}index 1\n\nnote",
        f"{HEAD}index 1\n\n\n{NOTE[:40]}",
        f"{HEAD}extra {'A' * 1_200_000}\nindex 1\n\n{NOTE}",
    ],
)
def test_what_is_no_proof_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"proof|note"):
        parse_proof(text.encode())


@given(st.data())
def test_no_flipped_bit_of_a_proof_is_believed(data: st.DataObject) -> None:
    proof = proof_of(3, 6).data
    bit = data.draw(st.integers(0, 8 * len(proof) - 1))
    broken = (int.from_bytes(proof) ^ 1 << bit).to_bytes(len(proof))
    try:
        checkpoint = check_proof(parse_proof(broken), leaf_hash(entries(6)[3]), KEY.verifier)
    except ValueError:
        return
    assert checkpoint == parse_checkpoint(parse_proof(proof).checkpoint.text)
    # Only the last line, with the time of the log, is no part of what the proof shows.
    assert len(proof) - 1 - bit // 8 >= proof.rindex("—".encode())
