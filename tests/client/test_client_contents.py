"""Content that does not match its CID: manifests and downloads."""

from __future__ import annotations

import io
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from facades_world import draft
from lies import lies, telling
from lying_world import GIVEN, INPUTS, Lying, lying_registry

from builders import Bundle, event
from middle import Answered, Asked, Forward, always
from muniment.client import Forged, NotARegistry, Registry
from muniment.protocol.functions.rules import MANIFEST, WASM
from muniment.protocol.ipfs.block import block_of
from muniment.protocol.ipfs.car import car_header, car_section, read_car
from muniment.protocol.ipfs.cid import DAG_PB, SHA2_256, CidParts
from muniment.protocol.ipfs.dag_pb import Link, encode_node
from muniment.protocol.ipfs.unixfs import UNIXFS_V0_2015, Import, encode_file_data, import_files

Read = Callable[[Registry, Path], object]


@pytest.fixture(scope="module")
def lying(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lying]:
    with lying_registry(tmp_path_factory.mktemp("lies")) as made:
        yield made


def reads(world: Lying) -> dict[str, Read]:
    """The operations that read the content of a function."""
    return {
        "manifest": lambda registry, _: registry.functions.manifest(world.cid),
        "get": lambda registry, _: registry.functions.get(world.cid),
        "sign": lambda registry, _: registry.triggers.sign(draft(world.cid, input=GIVEN, config=event())),
        "trigger": lambda registry, _: registry.triggers.get(world.sigs[0]),
        "download": lambda registry, folder: registry.functions.download(world.cid, folder / "copy"),
        "car": lambda registry, _: registry.functions.car(world.cid),
    }


def sending(content: bytes) -> Callable[[Asked, Forward], Answered]:
    """A proxy that sends another CAR file."""

    def behave(asked: Asked, forward: Forward) -> Answered:
        answer = forward()
        return answer._replace(content=content) if asked.target.startswith("/ipfs/") else answer

    return behave


def parts(car: bytes) -> tuple[tuple[CidParts, ...], list[tuple[CidParts, bytes]]]:
    roots, sections = read_car(io.BytesIO(car))
    return roots, [*sections]


def joined(roots: tuple[CidParts, ...], sections: list[tuple[CidParts, bytes]]) -> bytes:
    return car_header(roots) + b"".join(car_section(cid, block) for cid, block in sections)


def car_of(bundle: Bundle) -> bytes:
    """The whole CAR file of a bundle."""
    made = Import(import_files({MANIFEST: [bundle.manifest], WASM: [bundle.wasm]}, UNIXFS_V0_2015))
    blocks = {block.digest: block.data for block in made}
    root = made.root.cid.parts
    held = [(CidParts(0, root.codec, root.hash_code, digest), data) for digest, data in blocks.items()]
    return joined((root,), held)


def forgeries(car: bytes) -> Iterator[tuple[str, bytes]]:
    """CAR files that are not the content: each block in turn changed or missing, and files of other forms."""
    roots, sections = parts(car)
    for n, (cid, block) in enumerate(sections):
        for at in {0, len(block) // 2, len(block) - 1}:
            changed = block[:at] + bytes((block[at] ^ 1,)) + block[at + 1 :]
            yield f"block {n} changed at {at}", joined(roots, [*sections[:n], (cid, changed), *sections[n + 1 :]])
        yield f"block {n} missing", joined(roots, [*sections[:n], *sections[n + 1 :]])
    for at in range(1, len(car), 97):
        yield f"cut at {at}", car[:at]
    header = car_header(roots)
    yield "nothing", b""
    yield "no block", header
    yield "a page", b"<html>"
    yield "a length of terabytes", header + b"\xff\xff\xff\xff\xff\x7f"
    yield "an endless length", header + b"\xff" * 1_000_000
    yield "a length of nothing", header + b"\x00" * 1_000
    yield "another function", car_of(Bundle(inputs={**INPUTS, "to": "bytes32"}))


@pytest.mark.parametrize("name", ["manifest", "get", "sign", "trigger", "download", "car"])
def test_content_with_another_cid_is_refused(lying: Lying, name: str, tmp_path: Path) -> None:
    read = reads(lying)[name]
    with lying.registry() as registry:
        read(registry, tmp_path)
        targets = [asked.target for asked in lying.middle.asked if asked.target.startswith(f"/ipfs/{lying.cid}")]
    car = lying.middle.forward(Asked("GET", targets[-1], {"accept": "application/vnd.ipld.car"}, b"")).content
    assert parts(car)[1]
    found: list[str] = []
    folder = tmp_path / "second"
    for told, forged in forgeries(car):
        with lying.registry() as registry, lying.middle.behaving(sending(forged)):
            try:
                read(registry, folder)
            except (Forged, NotARegistry):  # a file without the head of a CAR
                continue
            found.append(told)
    assert found == []
    assert not folder.exists(), "a download writes nothing before all is checked"


def test_a_car_is_the_whole_bundle_and_has_nothing_else(lying: Lying) -> None:
    with lying.registry() as registry:
        car = registry.functions.car(lying.cid)
    roots, sections = parts(car)
    (root,), (first, *others) = roots, sections
    other = CidParts(1, root.codec, root.hash_code, root.digest)
    found: list[str] = []
    for told, forged in {
        "a block of another function after it": joined(roots, [*sections, *parts(car_of(Bundle("Other")))[1]]),
        "a block twice": joined(roots, [*sections, first]),
        "another order": joined(roots, [first, *others[::-1]]),
        "two roots": joined((root, others[0][0]), sections),
        "no root": joined((), sections),
        "the other version of the root": joined((other,), sections),
        "a block under another version of its CID": joined(roots, [(other, first[1]), *others]),
    }.items():
        with lying.registry(verify=False) as registry, lying.middle.behaving(sending(forged)):
            try:
                registry.functions.car(lying.cid)
            except Forged:
                continue
            found.append(told)
    assert found == []
    assert joined(roots, sections) == car


def test_the_manifest_needs_no_module(lying: Lying) -> None:
    with lying.registry() as registry:
        registry.functions.manifest(lying.cid)
        asked = lying.middle.asked[-1]
    car = lying.middle.forward(asked).content
    assert len(car) < 1_000
    assert len(parts(car)[1]) == 2


def test_a_download_is_checked_without_verifying_too(lying: Lying, tmp_path: Path) -> None:
    with lying.registry(verify=False) as registry, lying.middle.behaving(sending(car_of(Bundle("Other")))):
        with pytest.raises(Forged):
            registry.functions.download(lying.cid, tmp_path / "copy")
        assert registry.functions.manifest(lying.cid).inputs == INPUTS


@pytest.mark.parametrize("name", ["cid", "name", "version", "description"])
def test_the_members_of_a_function_that_its_manifest_has_are_proved(lying: Lying, name: str) -> None:
    truth = lying.truth(f"/functions/{lying.cid}")
    told = dict(lies(truth))
    shown = "CID" if name == "cid" else name
    lie = {**told[f"{shown} changed"]} if shown != "CID" else {**truth, "CID": lying.other_cid}
    with (
        lying.registry() as registry,
        lying.middle.behaving(telling(lambda _: lie, path="/functions")),
        pytest.raises(Forged),
    ):
        registry.functions.get(lying.cid)


@pytest.mark.parametrize("name", ["creator", "createdAt"])
def test_what_a_function_only_claims_may_be_anything(lying: Lying, name: str) -> None:
    values = {
        "creator": lying.truth(f"/triggers/{lying.sigs[0]}")["config"]["contract"],
        "createdAt": "2001-01-01T00:00:00.000Z",
    }
    lie = {**lying.truth(f"/functions/{lying.cid}"), name: values[name]}
    with lying.registry() as registry, lying.middle.behaving(telling(lambda _: lie, path="/functions")):
        registry.functions.get(lying.cid)


def bomb(leaf: bytes, levels: int, fan_out: int) -> tuple[str, bytes]:
    """The CID and the CAR of a function whose files are one leaf again and again: some kilobytes, unpacked exabytes."""
    blocks = [block_of(encode_node((), encode_file_data(leaf, len(leaf))))]
    size = len(leaf)
    for _ in range(levels):
        links = [Link(_parts(blocks[-1].digest), 0)] * fan_out
        blocks.append(block_of(encode_node(links, encode_file_data(b"", size * fan_out, [size] * fan_out))))
        size *= fan_out
    file = Link(_parts(blocks[-1].digest), 0)
    root = block_of(
        encode_node([replace(file, name=WASM.encode()), replace(file, name=MANIFEST.encode())], b"\x08\x01")
    )
    held = [(_parts(block.digest), block.data) for block in (*blocks, root)]
    return _parts(root.digest).text, joined((_parts(root.digest),), held)


def _parts(digest: bytes) -> CidParts:
    return CidParts(0, DAG_PB, SHA2_256, digest)


@pytest.mark.parametrize(("leaf", "levels", "fan_out"), [(b"x" * 1024, 7, 100), (b"x", 3, 174), (b"x" * 2**19, 1, 129)])
def test_a_small_answer_does_not_become_a_large_file(
    lying: Lying, tmp_path: Path, leaf: bytes, levels: int, fan_out: int
) -> None:
    cid, car = bomb(leaf, levels, fan_out)
    assert len(car) < 2**20  # read piece by piece, it would not end
    behave = always(Answered(200, {"content-type": "application/vnd.ipld.car"}, car))
    tracemalloc.start()
    try:
        with lying.registry() as registry, lying.middle.behaving(behave):
            with pytest.raises(Forged, match="any registry"):
                registry.functions.download(cid, tmp_path / "copy")
            with pytest.raises(Forged, match="any registry"):
                registry.functions.manifest(cid)
        assert tracemalloc.get_traced_memory()[1] < 32 * 2**20
    finally:
        tracemalloc.stop()
