"""What the console proves in the browser, beside the registry's own code and vectors of other implementations."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from builders import Wallet
from muniment.protocol.errors import Invalid
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.sign_in import read_sign_in, write_sign_in
from muniment.protocol.evm.signature import personal_digest
from muniment.protocol.evm.typed_data import Domain, compile_types, digest
from muniment.protocol.ipfs.block import block_of
from muniment.protocol.ipfs.car import car_header, car_section
from muniment.protocol.ipfs.cid import DAG_PB, SHA2_256, Cid, CidParts, decode_cid
from muniment.protocol.ipfs.dag_pb import Link, encode_node
from muniment.protocol.ipfs.unixfs import PROFILES, Import, encode_file_data, import_files
from muniment.protocol.wire import iso_time
from node_program import NODE
from proving import ASSETS, HERE, Failed, prove

VECTORS = HERE.parent / "vectors"
BUNDLES = sorted(path for path in (VECTORS / "bundles").iterdir() if path.is_dir())
DOMAIN = {"name": "Mimic Protocol - Registry", "version": "1"}

pytestmark = [pytest.mark.node, pytest.mark.skipif(NODE is None, reason="Node.js is not installed")]


def vectors(name: str) -> dict[str, Any]:
    return json.loads((VECTORS / "evm" / name).read_text("utf-8"))


def test_digests_and_signers_are_those_of_other_implementations() -> None:
    cases = vectors("eip712_trigger_valid.json")["cases"]
    assert len(cases) == 30
    data = [typed_data(case) for case in cases]
    digests = prove(*(("digest", each) for each in data))
    assert digests == [case["digest"] for case in cases]
    signers = prove(*(("signer", each, case["signature"]) for each, case in zip(data, cases, strict=True)))
    assert signers == [case["signer"] for case in cases]


def typed_data(case: dict[str, Any]) -> dict[str, Any]:
    return {"domain": DOMAIN, "primaryType": "Trigger", "types": case["types"], "message": case["values"]}


def test_signers_of_texts_are_those_of_other_implementations() -> None:
    cases = [case for case in vectors("eip191_login.json")["cases"] if case["expect"]["textOnly"] == "accept"]
    assert cases
    found = prove(*(("textSigner", case["nonce"], case["signature"]) for case in cases))
    assert found == [str(Address.parse(case["address"])) for case in cases]


def test_a_log_in_in_words_is_the_text_that_the_registry_reads() -> None:
    address, nonce, at_ms = Wallet(5).address, "0x" + "2a" * 32, 1_795_204_080_123
    urls = {
        "https://registry.example.org": "registry.example.org", "https://a.example.org:8443/b": "a.example.org:8443",
        "http://127.0.0.1:8787/": "127.0.0.1:8787", "https://[2001:db8::1]:444": "[2001:db8::1]:444",
    }  # fmt: skip
    found = prove(*(("signIn", url, f"{url.rstrip('/')}/", address, nonce, at_ms) for url in urls))
    for url, text in zip(urls, found, strict=True):
        assert text == write_sign_in(url, address=address, nonce=nonce[2:], issued_at=iso_time(at_ms))
        said = read_sign_in(text)
        assert (said.domain, said.uri, said.issued_at_ms) == (urls[url], url, at_ms)


def test_a_log_in_at_another_registry_is_not_written() -> None:
    address, nonce = Wallet(5).address, "0x" + "2a" * 32
    urls = [
        "https://other.example.org", "https://registry.example.org:8443", "https://registry.example.org/\nURI: x",
        "https://registry.example.org\t", "registry.example.org", "undefined", "https://[", "",
        "http://registry.example.org", "https://registry.example.org", "https://registry.example.org/two",
    ]  # fmt: skip
    found = prove(*(("signIn", url, "https://registry.example.org/one/", address, nonce, 0) for url in urls))
    assert all(isinstance(each, Failed) for each in found), found
    assert "Nothing was signed" in found[0]


def test_another_bit_is_another_signer() -> None:
    wallet = Wallet(5)
    signature = wallet.sign_text("hello")
    hashed = "0x" + personal_digest(b"hello").hex()
    flipped = [
        signature[:-2] + "1d",
        "0x" + "0" * 128 + "1b",
        "0x" + "f" * 128 + "1b",
        signature[:-2],
        signature + "00",
    ]
    other = [signature[:20] + ("0" if signature[20] != "0" else "1") + signature[21:]]
    first, *rest = prove(*(("signerOfHash", hashed, each) for each in [signature, *other, *flipped]))
    assert first == wallet.address
    assert rest[0] != wallet.address
    assert all(isinstance(each, Failed) for each in rest[1:])


@pytest.mark.parametrize("folder", BUNDLES, ids=lambda path: path.name)
def test_the_cid_of_a_bundle_is_that_of_other_implementations(folder: Path) -> None:
    files = {name: (folder / name).read_bytes() for name in ("manifest.json", "function.wasm")}
    asked = [("bundleCid", *("0x" + each.hex() for each in files.values()), profile) for profile in PROFILES]
    assert prove(*asked) == [str(cid_of(files, profile)) for profile in PROFILES]


def cid_of(files: dict[str, bytes], profile: str) -> Cid:
    imported = Import(import_files({name: [content] for name, content in files.items()}, PROFILES[profile]))
    assert list(imported)
    return imported.root.cid


@pytest.mark.parametrize("profile", PROFILES)
def test_a_bundle_of_two_levels_has_the_same_cid(profile: str) -> None:
    files = {"manifest.json": b"{}", "function.wasm": bytes(300_000 * 8)}
    asked = ("bundleCid", "0x" + b"{}".hex(), "0x" + files["function.wasm"].hex(), profile)
    assert prove(asked) == [str(cid_of(files, profile))]


def car_of(files: dict[str, bytes], profile: str) -> tuple[str, list[bytes]]:
    """The CID of a bundle, and the parts of its CAR: header and sections."""
    imported = Import(import_files({name: [content] for name, content in files.items()}, PROFILES[profile]))
    blocks = list(imported)
    root = decode_cid(imported.root.cid)
    sections = [car_section(replace(root, digest=block.digest), block.data) for block in reversed(blocks)]
    return str(imported.root.cid), [car_header([root]), *sections]


@pytest.mark.parametrize("profile", PROFILES)
def test_a_car_is_checked_from_its_root(profile: str) -> None:
    files = {"manifest.json": b'{"name": "x"}', "function.wasm": bytes(range(256)) * 4_000}
    cid, parts = car_of(files, profile)
    whole = b"".join(parts)
    other, _ = car_of({**files, "manifest.json": b"{}"}, profile)
    damaged = bytearray(whole)
    damaged[-1] ^= 1
    cases = [
        whole,
        bytes(damaged),
        b"".join(parts[:-1]),
        b"".join(parts[:2]),
        whole[:-1],
        whole + b"\x00",
        b"",
        b"\x80" * 40,
    ]
    first, *rest = prove(*(("checkCar", cid, "0x" + each.hex()) for each in cases))
    assert sorted(first["files"]) == [["function.wasm", 1_024_000], ["manifest.json", 13]]
    assert all(isinstance(each, Failed) for each in rest), rest
    assert isinstance(prove(("checkCar", other, "0x" + whole.hex()))[0], Failed)


def test_a_car_that_unfolds_without_end_is_refused_quickly() -> None:
    """Each level links the level below it twice: 2^30 leaves in some kilobytes."""
    block = block_of(encode_node((), encode_file_data(b"x", 1)))
    blocks, size = [block], 1
    for _ in range(30):
        parts = CidParts(0, DAG_PB, SHA2_256, block.digest)
        size *= 2
        block = block_of(encode_node([Link(parts, size)] * 2, encode_file_data(b"", size, [size // 2] * 2)))
        blocks.append(block)
    root = CidParts(0, DAG_PB, SHA2_256, block.digest)
    directory = block_of(encode_node([Link(root, size, b"function.wasm")], b"\x08\x01"))
    top = CidParts(0, DAG_PB, SHA2_256, directory.digest)
    sections = [car_section(CidParts(0, DAG_PB, SHA2_256, each.digest), each.data) for each in [directory, *blocks]]
    car = b"".join([car_header([top]), *sections])
    assert prove(("checkCar", top.text, "0x" + car.hex())) == ["The file has too many parts."]


MEMBERS = {
    "uint8": st.integers(0, 255), "int16": st.integers(-(2**15), 2**15 - 1), "bool": st.booleans(),
    "uint256": st.integers(0, 2**256 - 1).map(str), "int256": st.integers(-(2**255), 2**255 - 1).map(str),
    "string": st.text(alphabet=st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=40),
    "bytes": st.binary(max_size=70).map(lambda each: "0x" + each.hex()),
    "bytes4": st.binary(min_size=4, max_size=4).map(lambda each: "0x" + each.hex()),
    "address": st.integers(1, 2**150).map(lambda each: f"0x{each:040x}"),
}  # fmt: skip


@st.composite
def hashed(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    """Types with a struct inside, arrays of both kinds, and a message of them."""
    words = draw(st.lists(st.sampled_from(sorted(MEMBERS)), min_size=1, max_size=5))
    inner = [{"name": f"i{at}", "type": word} for at, word in enumerate(words)]
    types = {
        "Outer": [
            {"name": "one", "type": "Inner"},
            {"name": "many", "type": "Inner[]"},
            {"name": "two", "type": f"{words[0]}[2]"},
        ],
        "Inner": inner,
    }

    def made() -> dict[str, Any]:
        return {each["name"]: draw(MEMBERS[each["type"]]) for each in inner}

    message = {
        "one": made(),
        "many": [made() for _ in range(draw(st.integers(0, 2)))],
        "two": [draw(MEMBERS[words[0]]) for _ in range(2)],
    }
    return types, message


@settings(max_examples=8)
@given(st.lists(hashed(), min_size=20, max_size=25))
def test_struct_hashes_are_those_of_the_registry(cases: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    ours = ["0x" + compile_types(types, "Outer").struct_hash(message).hex() for types, message in cases]
    assert prove(*(("structHash", "Outer", types, message) for types, message in cases)) == ours


def test_hostile_typed_data_is_refused() -> None:
    cases = [case for case in vectors("eip712_trigger_hostile.json")["cases"] if "types" in case and "values" in case]
    assert len(cases) > 50
    found = prove(*(("digest", typed_data(case)) for case in cases))
    for case, answer in zip(cases, found, strict=True):
        try:
            ours = (
                "0x"
                + digest(Domain(**DOMAIN), compile_types(case["types"], "Trigger").struct_hash(case["values"])).hex()
            )
        except Invalid:
            continue  # the registry refuses it, so no record has it
        assert answer == ours


@pytest.mark.parametrize(
    "types",
    [
        {"A": [{"name": "a", "type": "A"}]}, {"A": [{"name": "a", "type": "A[]"}] * 65},
        {f"T{n}": [] for n in range(33)} | {"A": []},
        {"A": [{"name": "a", "type": "uint8[][][][][]"}]}, {"A": [{"name": "a", "type": "((((" * 9_000}]}, {}, {"A": 5},
    ],
)  # fmt: skip
def test_hostile_types_end(types: dict[str, Any]) -> None:
    value: Any = {}
    for _ in range(900):
        value = {"a": value}
    assert isinstance(prove(("structHash", "A", types, value))[0], Failed)


@settings(max_examples=5)
@given(st.lists(st.binary(max_size=60), min_size=20, max_size=30))
def test_bases_there_and_back(cases: list[bytes]) -> None:
    texts = ["0x" + each.hex() for each in cases]
    encoded = prove(*(("base58", each) for each in texts), *(("base32", each) for each in texts))
    names = ["unbase58"] * len(texts) + ["unbase32"] * len(texts)
    assert prove(*zip(names, encoded, strict=True)) == texts * 2


def test_cids_are_read_strictly() -> None:
    good = ["QmRwFzcSwmkbWJuQsFaHcAGvykRU3q82JiYfwGaswNKFG4", CidParts(1, DAG_PB, SHA2_256, b"\xab" * 32).text]
    bad = ["Qm", good[0] + "a", good[0][:-1] + "0", "b" + "a" * 58, good[1][:-1], good[1].upper(), "z" + good[0], ""]
    found = prove(*(("cid", each) for each in [*good, *bad]))
    assert found[:2] == good
    assert all(isinstance(each, Failed) for each in found[2:]), found


def test_addresses_have_their_checksum() -> None:
    right = Wallet(9).address
    wrong = right[:-1] + (
        right[-1].lower() if right[-1].isupper() else right[-1].upper() if right[-1].isalpha() else "z"
    )
    assert prove(("address", right), ("address", right.lower()), ("address", wrong), ("address", "0x12")) == [
        right,
        right,
        None,
        None,
    ]


def test_the_vendored_files_are_what_their_packages_give(tmp_path: Path) -> None:
    vendored = HERE / "vendored"
    if not (vendored / "node_modules").is_dir():
        pytest.skip("its packages are not there: run tests/e2e/install.py tests/e2e/vendored")
    subprocess.run([NODE or "node", str(vendored / "build.mjs"), str(tmp_path)], check=True, timeout=60)
    assert (tmp_path / "crypto.js").read_bytes() == (ASSETS / "proofs" / "crypto.js").read_bytes()
    assert (tmp_path / "qr-code.js").read_bytes() == (ASSETS / "qr-code.js").read_bytes()
