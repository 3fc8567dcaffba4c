"""Functions: deploy a bundle, find one, read its manifest, download it."""

from __future__ import annotations

import hashlib
import secrets
from codecs import BOM_UTF8
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from muniment.client import proof
from muniment.client.answers import Page, decode
from muniment.client.failures import Forged
from muniment.client.flows.listing import proved_page
from muniment.client.flows.login import api_key
from muniment.client.flows.session import JSON, check_same, target
from muniment.client.steps import Flow, Send
from muniment.protocol.errors import Refusal
from muniment.protocol.functions.rules import MANIFEST, WASM, has_lasting_key, name_key, read_manifest
from muniment.protocol.functions.types import Function, NamePrefix
from muniment.protocol.ipfs.cid import BundleCid, Cid
from muniment.protocol.ipfs.unixfs import UNIXFS_V0_2015, UNIXFS_V1_2025, Import, import_files

if TYPE_CHECKING:
    from muniment.client.flows.session import Session
    from muniment.protocol.functions.rules import Manifest

_PIECE: Final = 256 * 1024
_CAR: Final = {"accept": "application/vnd.ipld.car"}


@dataclass(frozen=True, slots=True)
class Bundle:
    """The two files of a function."""

    manifest: bytes
    wasm: bytes

    @classmethod
    def read(cls, folder: Path | str) -> Self:
        """The bundle in a folder. Raises `OSError`."""
        return cls((Path(folder) / MANIFEST).read_bytes(), (Path(folder) / WASM).read_bytes())

    def cids(self) -> tuple[Cid, Cid]:
        """Its CIDs under both UnixFS profiles: CIDv0, then CIDv1."""
        first, second = (
            Import(import_files({MANIFEST: [self.manifest], WASM: _pieces(self.wasm)}, profile))
            for profile in (UNIXFS_V0_2015, UNIXFS_V1_2025)
        )
        for each in (first, second):
            for _ in each:
                pass
        return first.root.cid, second.root.cid

    def write(self, folder: Path) -> None:
        """Write both files into a new folder: both or neither. Raises `OSError`, also for an existing folder."""
        part = folder.with_name(f".{folder.name}-{secrets.token_hex(4)}")
        part.mkdir(parents=True)
        try:
            (part / MANIFEST).write_bytes(self.manifest)
            (part / WASM).write_bytes(self.wasm)
            part.rename(folder)
        except OSError:
            for name in (MANIFEST, WASM):
                (part / name).unlink(missing_ok=True)
            part.rmdir()
            raise


def deploy(session: Session, bundle: Bundle) -> Flow[Function]:
    """Upload a bundle. Raises `Forged` if the service answers another CID.

    Raises `ValueError` for a manifest with a byte-order mark, which no service takes: its CID would cover the mark.
    """
    if bundle.manifest.startswith(BOM_UTF8):
        raise ValueError(f"{MANIFEST} begins with a byte-order mark (bytes EF BB BF): save it as UTF-8 without BOM")
    own = bundle.cids()
    boundary = hashlib.sha256(bundle.manifest + bundle.wasm).hexdigest()
    parts = [
        f'--{boundary}\r\ncontent-disposition: form-data; name="file"; filename="{name}"\r\n\r\n'.encode() + data
        for name, data in ((MANIFEST, bundle.manifest), (WASM, bundle.wasm))
    ]
    body = b"\r\n".join([*parts, f"--{boundary}--\r\n".encode()])
    key = session.api_key or (yield from api_key(session))
    headers = {**JSON, "content-type": f"multipart/form-data; boundary={boundary}", "x-api-key": key}
    function = decode((yield from session.answered(Send("POST", "/functions", body, headers))), Function)
    if function.cid not in own:
        raise Forged(f"the service answered the CID {function.cid}, but this bundle has {own[0]} or {own[1]}")
    if session.verifies:
        with suppress(Refusal):  # a later release may take a manifest that this one does not read
            _check_manifest(function, read_manifest(bundle.manifest))
    return function


def get(session: Session, cid: str) -> Flow[Function]:
    """A function as the service claims; its manifest proves name, version and description."""
    asked = Cid.parse(cid)
    function = yield from session.read(target("/functions/{}", asked), Function)
    check_same(function.cid, asked, "function")
    if session.verifies:
        _check_manifest(function, (yield from manifest(session, asked)))
    return function


def _check_manifest(function: Function, manifest_: Manifest) -> None:
    """Check a record against the manifest of the function."""
    claimed = (function.name, function.version, function.description)
    check_same(claimed, (manifest_.name, manifest_.version, manifest_.description), "manifest's members")


def page(
    session: Session,
    cursor: str | None,
    *,
    cids: list[str] | None = None,
    creator: str | None = None,
    name: str | None = None,
    sort: int = 1,
    limit: int = 100,
) -> Flow[Page[Function]]:
    """A page of functions. Their members are claims.

    `sort` is 1 for the oldest first, -1 for the newest first.
    `creator` also finds functions that this wallet uploaded after another wallet, which their records name. `name` is
    the beginning of the name. Raises `InvalidText` for a name of another length.
    """
    digests = None if cids is None else {Cid.parse(each).digest for each in cids}
    prefix = "" if name is None else NamePrefix.parse(name)

    def check(function: Function) -> Flow[None]:
        yield from ()  # nothing is asked
        if digests is not None and function.cid.digest not in digests:
            raise Forged(f"function {function.cid} was not asked for")
        is_named = name_key(function.name).startswith(name_key(prefix))
        if not is_named and has_lasting_key(function.name) and has_lasting_key(prefix):
            raise Forged(f"function {function.cid} has another name than was asked for: {function.name!r}")

    asked = target("/functions", sort=sort, limit=limit, cids=cids, creator=creator, name=name, cursor=cursor)
    return proved_page(session, asked, limit, lambda reply: decode(reply, list[Function]), check, None)


def manifest(session: Session, cid: str) -> Flow[Manifest]:
    """The manifest of a function, proved by its CID: its inputs are what a trigger signs. The module is not read."""
    if (kept := session.manifests.get(cid)) is not None:
        return kept
    asked = BundleCid.parse(cid)
    if session.verifies:
        asked_car = target("/ipfs/{}/{}", asked, MANIFEST, format="car")
        reply = yield from session.answered(Send("GET", asked_car, headers=_CAR))
        found = proof.manifest_in(reply.content, asked)
    else:
        reply = yield from session.answered(Send("GET", target("/functions/{}/manifest", asked)))
        found = proof.read_manifest_bytes(reply.content)
    session.keep_manifest(asked, found)
    return found


def car(session: Session, cid: str) -> Flow[bytes]:
    """The bundle of a function as a CAR file; every block is checked, even without `verify`."""
    asked = BundleCid.parse(cid)
    content = yield from _car(session, asked)
    proof.check_car(content, asked)
    return content


def download(session: Session, cid: str) -> Flow[Bundle]:
    """The files of a function; every block is checked, even without `verify`."""
    asked = BundleCid.parse(cid)
    content = yield from _car(session, asked)
    return Bundle(*(proof.file_in(content, asked, name) for name in (MANIFEST, WASM)))


def _car(session: Session, cid: Cid) -> Flow[bytes]:
    reply = yield from session.answered(Send("GET", target("/ipfs/{}", cid, format="car"), headers=_CAR))
    return reply.content


def _pieces(data: bytes) -> list[bytes]:
    return [data[start : start + _PIECE] for start in range(0, len(data), _PIECE)]
