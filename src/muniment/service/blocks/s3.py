"""Blocks as objects of an S3 bucket: `<prefix>/ab/cdef…`, the layout of the files, so that either can be copied.

An object is made on the condition that it does not exist (`If-None-Match: *`), so no writer replaces a good block. The
credentials, region and endpoint come from the environment (`AWS_ACCESS_KEY_ID` and so on), as in other S3 clients.
Decision 0043 lists the faults of a server that this module handles.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import S3Store

from muniment import durable
from muniment.protocol.errors import ContentNotFound, Integrity, StorageUnavailable
from muniment.protocol.ipfs.block import BLOCK_SIZE_MAX, check_block
from muniment.service.blocks.store import Spool, disk_failures
from muniment.text_files import read_text_file

# A slower failure is an outage. A quick failure occupies no thread, so the next request may try at once.
SLOW_SECONDS: Final = 1.0
# A server that works again answers the trial within this time: a request takes some milliseconds.
_TRIAL_SECONDS: Final = 0.25


class Outage:
    """The outages of one server. During an outage one request at a time tries it, and the others are refused soon.

    Many threads may use an `Outage` concurrently.
    """

    def __init__(self) -> None:
        """Begin without an outage."""
        self._lasts = False
        self._trial = threading.Lock()

    @contextmanager
    def trying(self, *, always: bool = False) -> Generator[None]:
        """Send one request in this block, which raises `StorageUnavailable` when the server fails.

        Raises `StorageUnavailable` soon while another request tries a server that was too slow. With `always` the
        request is sent all the same.
        """
        is_trial = self._lasts and not always
        if is_trial and not self._trial.acquire(timeout=_TRIAL_SECONDS):
            raise StorageUnavailable("the block store does not answer: the S3 server was too slow a moment ago")
        if is_trial and not self._lasts:  # the trial of another request has succeeded
            self._trial.release()
            is_trial = False
        began, is_failure = time.monotonic(), False
        try:
            yield
        except StorageUnavailable:
            is_failure = True
            raise
        finally:
            self._lasts = is_failure and time.monotonic() - began >= SLOW_SECONDS
            if is_trial:
                self._trial.release()


# Requests of one `put_many` at the same time; as many blocks are in memory, at most 32 MiB.
_PUTS_AT_ONCE: Final = 16
# A request of a block takes some milliseconds in a data centre. It is tried again once within this time.
REQUEST_SECONDS_MAX: Final = 5.0
# Less than the time of the readiness check, so that its answer names the cause.
CHECK_SECONDS_MAX: Final = 2.0
_BUCKET: Final = re.compile("[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PREFIX: Final = re.compile("[A-Za-z0-9._=-]+(/[A-Za-z0-9._=-]+)*")
_OBJECT: Final = re.compile("([0-9a-f]{2})/([0-9a-f]{62})")
# Objects in one of the 256 folders: a listing beyond them is endless. Real blocks would be 16 TiB at least.
OBJECTS_PER_FOLDER_MAX: Final = 2**20
# The library reads these from the environment. With the suffix `_FILE`, a variable names a file with the value.
_CREDENTIALS: Final = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
# No block has this name, so the answer is short.
_ABSENT: Final = "readiness"
# The library reads these too. It does not refuse a value of another form, or an empty one: it panics at the first
# request.
_ENDPOINTS: Final = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT")
_ENDPOINT: Final = re.compile(r"https?://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?(/[A-Za-z0-9._~/-]*)?")
_PORT_MAX: Final = 65_535
_SILENT: Final = "the block store does not answer"
_STATUS: Final = re.compile("status code: ([0-9]{3})")


class S3BlockStore:
    """A `BlockStore` in a bucket, which processes on many machines may share."""

    def __init__(self, url: str, *, spools: Path, request_seconds_max: float = REQUEST_SECONDS_MAX) -> None:
        """Use the bucket of `url`, `s3://bucket/prefix`; nothing is sent yet.

        Uploads wait in the directory `spools`, which is made if it does not exist. Raises `ValueError` for another
        form of URL or of the endpoint, and for credentials that cannot be read, and
        `StorageUnavailable`.
        """
        bucket, prefix = _place(url)
        _check_server()
        self._outage = Outage()
        self._spools = spools
        self._store = _opened(bucket, prefix, seconds_max=request_seconds_max, retries=1)
        self._probed = _opened(bucket, prefix, seconds_max=min(CHECK_SECONDS_MAX, request_seconds_max), retries=0)
        with disk_failures():
            spools.mkdir(parents=True, exist_ok=True)

    def put_many(self, blocks: Iterable[tuple[bytes, bytes]]) -> None:
        """Store pairs of digest and bytes, which must belong together; durable when this returns."""
        rest = iter(blocks)
        with ThreadPoolExecutor(_PUTS_AT_ONCE) as pool:
            while batch := dict(islice(rest, _PUTS_AT_ONCE)):
                if any(len(data) > BLOCK_SIZE_MAX for data in batch.values()):
                    raise ValueError(f"a block has at most {BLOCK_SIZE_MAX} bytes")
                list(pool.map(self._put, batch.keys(), batch.values()))

    def get(self, digest: bytes) -> bytes:
        """The bytes of a block, hashed anew; raises `ContentNotFound`, or `Integrity` when they are damaged."""
        with self._request(digest):
            result = _get(self._store, _key(digest))
            if result.meta["size"] > BLOCK_SIZE_MAX:
                raise Integrity(f"block {digest.hex()} has more than {BLOCK_SIZE_MAX} bytes")
            data = bytes(result.bytes())
        return check_block(digest, data)

    def size(self, digest: bytes) -> int:
        """The length in bytes of a block, which is not read; raises `ContentNotFound`."""
        with self._request(digest):
            return obstore.head(self._store, _key(digest))["size"]

    def has(self, digest: bytes) -> bool:
        """Whether the store has a block. Its bytes are not read."""
        try:
            self.size(digest)
        except ContentNotFound:
            return False
        return True

    def digests(self) -> Iterator[bytes]:
        """The digests of all blocks in ascending order; blocks that are added or removed meanwhile may be missing.

        Each of the 256 folders is listed and sorted by itself: not every server lists objects in order.
        """
        for shard in range(256):
            yield from sorted(self._folder(f"{shard:02x}"))

    def check(self) -> None:
        """Return if the local disk can take uploads, and the bucket answers and accepts the credentials."""
        with disk_failures():
            durable.prove_writing(self._spools)
        with self._request(always=True), suppress(FileNotFoundError):
            _get(self._probed, _ABSENT)

    def open_spool(self) -> Spool:
        """A place for an upload: in memory while it is small, then a nameless file on this machine."""
        return Spool(self._spools)

    def _put(self, digest: bytes, data: bytes) -> None:
        with self._request():
            try:
                obstore.put(self._store, _key(digest), data, mode="create", use_multipart=False)
            except AlreadyExistsError:
                pass
            else:
                return
        if not self._holds(digest, data):
            with self._request():
                obstore.put(self._store, _key(digest), data, mode="overwrite", use_multipart=False)

    def _holds(self, digest: bytes, data: bytes) -> bool:
        """Whether the object has exactly these bytes. The object of another length is not read."""
        try:
            return self.size(digest) == len(data) and self.get(digest) == data
        except (Integrity, ContentNotFound):
            return False

    def _folder(self, name: str) -> set[bytes]:
        """The digests of the blocks in a folder. Objects with names of another form are ignored."""
        found: set[bytes] = set()
        count = 0
        with self._request():
            with suppress(FileNotFoundError):
                # The library does not report that a listing was refused for its credentials; for this request it does.
                _get(self._store, _ABSENT)
            # Its other form of answer, which is not used, has a type of a library that is not installed.
            pages = obstore.list(self._store, prefix=name)  # pyright: ignore[reportUnknownMemberType] - its stubs leave the return untyped
            for page in pages:
                count += len(page)
                if count > OBJECTS_PER_FOLDER_MAX:
                    raise StorageUnavailable(f"{_SILENT}: the S3 server lists folder {name} without an end")
                matches = [_OBJECT.fullmatch(item["path"]) for item in page]
                found |= {bytes.fromhex(match[1] + match[2]) for match in matches if match}
        return found

    @contextmanager
    def _request(self, digest: bytes | None = None, *, always: bool = False) -> Generator[None]:
        with self._outage.trying(always=always), _failures(digest):
            yield


def _place(url: str) -> tuple[str, str]:
    """Bucket and prefix of `s3://bucket/prefix`; raises `ValueError`, which does not repeat the URL."""
    parts = urlsplit(url)
    prefix = parts.path.strip("/")
    is_plain = _BUCKET.fullmatch(parts.netloc) and (not prefix or _PREFIX.fullmatch(prefix))
    if parts.scheme != "s3" or not is_plain or {".", ".."} & set(prefix.split("/")) or parts.query or parts.fragment:
        raise ValueError(
            "the blocks of an S3 bucket have a URL like s3://bucket/prefix; credentials and the endpoint are in the "
            "environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL)"
        )
    return parts.netloc, prefix


def _check_server() -> None:
    """Raise `ValueError` for an endpoint in the environment that has another form; it does not repeat the value."""
    for name in _ENDPOINTS:
        if (endpoint := os.environ.get(name)) is None:
            continue
        match = _ENDPOINT.fullmatch(endpoint)
        if not match or int((match[2] or ":0")[1:]) > _PORT_MAX:
            raise ValueError(f"{name} must be https://host:port or http://host:port, and may have a path")


def _opened(bucket: str, prefix: str, *, seconds_max: float, retries: int) -> S3Store:
    timeout = timedelta(seconds=seconds_max)
    given = _credentials()
    return S3Store(
        bucket,
        prefix=prefix or None,
        **given,
        client_options={
            "timeout": timeout,
            "connect_timeout": timeout,
            # Without TLS only if the operator wrote so in the endpoint.
            "allow_http": os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://"),
        },
        retry_config={"max_retries": retries, "retry_timeout": timeout},
    )


def _credentials() -> dict[str, Any]:
    """The credentials in the files that the environment names; raises `ValueError`, which repeats no content."""
    given: dict[str, Any] = {}
    for name in _CREDENTIALS:
        path = os.environ.get(f"{name}_FILE")
        if not path or os.environ.get(name):
            continue
        try:
            given[name.lower()] = read_text_file(Path(path)).decode("ascii").strip()
        except (OSError, ValueError) as error:
            raise ValueError(f"{name}_FILE cannot be read: {type(error).__name__}") from error
        if not given[name.lower()]:
            raise ValueError(f"{name}_FILE is empty")
    return given


def _get(store: S3Store, path: str) -> obstore.GetResult:
    """Like `obstore.get`. Raises `StorageUnavailable` for a missing bucket, and not the error of a missing object."""
    try:
        return obstore.get(store, path)
    except FileNotFoundError as error:
        # The library has one error for both. The text has the code of the server's answer.
        if "<Code>NoSuchBucket</Code>" in str(error):
            raise StorageUnavailable(f"{_SILENT}: the S3 server has no such bucket") from error
        raise


def _key(digest: bytes) -> str:
    name = digest.hex()
    return f"{name[:2]}/{name[2:]}"


@contextmanager
def _failures(digest: bytes | None = None) -> Generator[None]:
    """Turn failures of the server into `StorageUnavailable`, and a missing object of `digest` into `ContentNotFound`.

    The texts of the library are not repeated: they contain the server's address and its answer.
    """
    try:
        yield
    except (PermissionDeniedError, UnauthenticatedError) as error:
        raise StorageUnavailable(f"{_SILENT}: the S3 server refuses the credentials") from error
    except FileNotFoundError as error:
        if digest is not None:
            raise ContentNotFound(f"block {digest.hex()} is not held here") from error
        raise StorageUnavailable(f"{_SILENT}: the S3 server has no such bucket") from error
    except (BaseError, OSError) as error:
        raise StorageUnavailable(f"{_SILENT}: the S3 server {_symptom(str(error))}") from error
    except BaseException as error:
        # A panic of the library is no `Exception`, and its class cannot be imported. It would end the event loop.
        if type(error).__name__ != "PanicException":
            raise
        raise StorageUnavailable(f"{_SILENT}: no request can be made with the endpoint and the region") from error


def _symptom(text: str) -> str:
    """The fault of the server, from the text of the library's error."""
    if status := _STATUS.search(text):
        return f"answers {status[1]}"
    return "is too slow" if "TimedOut" in text else "is not reached, or sends no answer of S3"
