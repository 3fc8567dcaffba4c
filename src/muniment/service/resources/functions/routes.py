"""The operations of functions: upload, listing and content."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

import msgspec

from muniment.protocol import errors
from muniment.protocol.errors import FunctionNotFound
from muniment.protocol.functions.rules import MANIFEST, WASM, Bundle, profile_of, read_bundle
from muniment.protocol.functions.types import Function
from muniment.protocol.ipfs.cid import RAW, Cid
from muniment.protocol.ipfs.unixfs import PROFILES
from muniment.protocol.wire import decode_text, encode, iso_time
from muniment.service.auth.caller import KeyCaller
from muniment.service.context import Context
from muniment.service.http.openapi import LISTED
from muniment.service.http.operation import operation
from muniment.service.http.paging import answer_page
from muniment.service.http.reply import Ready, Streamed
from muniment.service.http.request import Request
from muniment.service.http.uploads import FileDue, receive_files
from muniment.service.resources.functions import gateway, store
from muniment.service.resources.functions.checking import Checks
from muniment.service.resources.functions.content import FILE_HEADERS_READ, bundle_file, file_answers
from muniment.service.running.limits.costs import FILE, PAGE, READ, UPLOAD, Shed
from muniment.service.running.limits.policies import NEW_FUNCTION

if TYPE_CHECKING:
    from muniment.protocol.evm.address import Address
    from muniment.service.blocks.store import Spool
    from muniment.service.running.limits.disk import DiskReserve
    from muniment.service.running.metrics.recorder import Metrics

# Concurrent stores of small (in memory) and of large (on disk) uploads in a process. Each kind has its own
# threads, so that an upload of 100 KB does not wait for one of 16 MiB.
_STORED_CONCURRENT_MAX: Final = 4
_small: Final = ThreadPoolExecutor(_STORED_CONCURRENT_MAX, thread_name_prefix="small-bundle")
_large: Final = ThreadPoolExecutor(_STORED_CONCURRENT_MAX, thread_name_prefix="large-bundle")
# Bytes of an upload between two checks of the free disk space.
_LOOK_BYTES: Final = 2**20
# Two checks of each kind, so that one creator does not block another. A module of 16 MiB takes some 35 MiB.
_small_checks: Final = Checks(2, "small-check")
_large_checks: Final = Checks(2, "large-check")


@dataclass(frozen=True, slots=True)
class BundleUpload:
    """A request with a form of exactly two files, which the handler receives after authentication."""

    request: Request

    refuses_with: ClassVar[tuple[type[errors.Refusal], ...]] = (
        errors.InvalidUpload, errors.BodyTooLarge, errors.UnsupportedMediaType, errors.RequestTimeout,
    )  # fmt: skip
    request_body: ClassVar[dict[str, Any]] = {
        "required": True,
        "description": "Exactly two files, both under the field name `file`: manifest.json and function.wasm",
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {
                        "file": {
                            "type": "array", "minItems": 2, "maxItems": 2,
                            "items": {
                                "type": "string", "format": "binary", "contentMediaType": "application/octet-stream",
                            },
                        }
                    },
                }
            }
        },
    }  # fmt: skip

    @classmethod
    def from_request(cls, request: Request) -> Self:
        """The upload, before its body is read."""
        return cls(request)


class _Arriving:
    """The sink of an uploaded file, which refuses when the disk has no room for uploads."""

    def __init__(self, spool: Spool, disk: DiskReserve) -> None:
        """Write to `spool`; the disk was checked just before."""
        self._spool = spool
        self._disk = disk
        self._bytes_left = _LOOK_BYTES

    def write(self, data: memoryview) -> None:
        """Append `data`. Raises `DiskAlmostFull`, and `StorageUnavailable`."""
        self._bytes_left -= len(data)
        if self._bytes_left < 0:
            self._disk.require_for_upload()
            self._bytes_left = _LOOK_BYTES
        self._spool.write(data)


@operation("GET", "/functions", cost=PAGE, sheds=Shed.PAGE, answers=LISTED)
async def list_functions(
    context: Context, request: Request, query: store.FunctionQuery
) -> Ready[list[Function]] | Streamed:
    """List functions.

    Newest first unless `sort=1`. `creator` finds the functions that this wallet uploaded, as the first or not. `name`
    finds those whose name begins so. A page after a `cursor` has at most 1 MiB and may have fewer records than its
    limit: a `next` link leads on.
    """
    reader = context.list_reader()
    numbers = context.epochs.numbers(reader, store.table_of_numbers(query))
    client = context.clients.address(request)
    return await answer_page(request, query, numbers, lambda: store.search(reader, query, client))


@operation(
    "POST",
    "/functions",
    cost=UPLOAD,
    sheds=Shed.EARLY,
    refuses=(
        errors.InvalidManifest,
        errors.InvalidWasm,
        errors.VersionTaken,
        errors.TooManyUploads,
        errors.StorageUnavailable,
        errors.ClockInDoubt,
        errors.DiskAlmostFull,
    ),
)
async def create_function(context: Context, caller: KeyCaller, upload: BundleUpload) -> Ready[Function]:
    """Deploy a function.

    The server computes the bundle's CID from the uploaded bytes. The same bytes are the same function: a repeated
    upload, by any wallet, returns the first record.
    """
    settings = context.settings
    context.disk.require_for_upload()
    with context.blocks.open_spool() as wasm, io.BytesIO() as manifest:
        due = {
            MANIFEST: FileDue(settings.manifest_bytes_max, manifest),
            WASM: FileDue(settings.wasm_bytes_max, _Arriving(wasm, context.disk)),
        }
        await receive_files(upload.request, "file", due)
        record = await _register(context, upload.request, caller.address, read_bundle(manifest.getvalue(), wasm))
    return Ready(record.encode())


async def _register(context: Context, request: Request, creator: Address, bundle: Bundle) -> str:
    """Store the blocks, then the row: a crash in between leaves blocks without a row, never a row without blocks."""
    manifest = bundle.manifest
    name, version = manifest.name, str(manifest.version)
    known = await store.find_content(context.database, bundle.content)
    owner = context.limiter.owner(creator.raw)
    if known is None:
        context.clock.require()
        owner.check(NEW_FUNCTION)
    taken = await store.find_taken(context.database, creator, name, version, bundle.content)
    blocks = bundle.blocks(profile_of(_decoded(known).cid) if known else PROFILES[context.settings.unixfs_profile])

    threads, checks = (_large, _large_checks) if bundle.wasm.is_on_disk else (_small, _small_checks)
    if known is None:  # known bytes were checked at their first upload
        await checks.run(creator, _charged(request, bundle.check_module, context.metrics))
    if taken:
        raise taken
    context.disk.require_for_upload()
    if known is None:
        request.client.charge_stored(request.received)
    # Also for a known bundle: this repairs lost blocks.
    await asyncio.get_running_loop().run_in_executor(threads, context.blocks.put_many, blocks)
    now_ms = context.clock.now_ms()
    function = Function(
        cid=blocks.root.cid, name=name, version=manifest.version, description=manifest.description,
        created_at=iso_time(now_ms), creator=creator,
    )  # fmt: skip
    new = store.NewFunction(
        function.cid.digest, bundle.content, dict(manifest.inputs), now_ms, encode(function).decode(),
    )  # fmt: skip
    record = await context.database.write(lambda tx: store.insert(tx, new, creator, name, version))
    if known is None:
        owner.owe(NEW_FUNCTION)
    return record


def _charged(request: Request, check: Callable[[], None], metrics: Metrics) -> Callable[[], None]:
    """`check`, with its CPU time charged to the client or wallet of the request, and its time measured."""
    times, loop = metrics.histogram("wasm_validation_seconds"), asyncio.get_running_loop()

    def charged() -> None:
        begun, started = time.perf_counter(), time.thread_time_ns()
        try:
            check()
        finally:
            with suppress(RuntimeError):  # the loop is closed: the process ends
                loop.call_soon_threadsafe(times.observe, time.perf_counter() - begun)
            if request.key is not None:
                request.key.owe(UPLOAD.owed(cpu_ns=time.thread_time_ns() - started))

    return charged


@operation("GET", "/functions/{cid}", cost=READ, sheds=Shed.READ, refuses=(FunctionNotFound,))
async def get_function(context: Context, cid: Cid) -> Ready[Function]:
    """Read a function.

    A CIDv0 and the CIDv1 of the same multihash name the same function.
    """
    return Ready((await _record(context, cid)).encode())


_CONTENT_REFUSALS = (FunctionNotFound, errors.RangeNotSatisfiable, errors.Integrity, errors.StorageUnavailable)


@operation(
    "GET", "/functions/{cid}/manifest", cost=FILE, sheds=Shed.MIDDLE,
    refuses=_CONTENT_REFUSALS, answers=file_answers("application/json"), headers_read=FILE_HEADERS_READ,
)  # fmt: skip
async def get_manifest(context: Context, request: Request, cid: Cid) -> Ready[bytes] | Streamed:
    """Read a function's manifest.json.

    The exact bytes that were uploaded.
    """
    return await _file(context, request, cid, MANIFEST)


@operation(
    "GET", "/functions/{cid}/wasm", cost=FILE, sheds=Shed.MIDDLE,
    refuses=_CONTENT_REFUSALS, answers=file_answers("application/wasm"), headers_read=FILE_HEADERS_READ,
)  # fmt: skip
async def get_wasm(context: Context, request: Request, cid: Cid) -> Ready[bytes] | Streamed:
    """Read a function's function.wasm.

    The exact bytes that were uploaded.
    """
    return await _file(context, request, cid, WASM)


async def _file(context: Context, request: Request, cid: Cid, name: str) -> Ready[bytes] | Streamed:
    """A file of a registered function; missing content is an error of the service."""
    await _record(context, cid)
    try:
        return await bundle_file(context, request, cid, name)
    except errors.ContentNotFound as refusal:
        raise errors.Integrity(f"the content of a registered function is missing: {refusal.detail}") from refusal


async def _record(context: Context, cid: Cid) -> str:
    if cid.codec == RAW:
        raise FunctionNotFound(
            "this is the CID of a single file; a function has the CID of its bundle, see GET /functions"
        )
    record = await store.find_record(context.database, cid.digest)
    if record is None:
        raise FunctionNotFound("no function is registered under this CID")
    return record


def _decoded(record: str) -> Function:
    return msgspec.json.decode(record, type=Function, dec_hook=decode_text)


OPERATIONS = (get_function, list_functions, create_function, get_manifest, get_wasm, *gateway.OPERATIONS)
