"""Blocks in the bucket of a real S3 server, and the faults of servers."""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import obstore
import pytest
from click.testing import CliRunner

from muniment.cli.main import main
from muniment.operate.copy_blocks import copy_blocks
from muniment.protocol.errors import ContentNotFound, Integrity, StorageUnavailable
from muniment.protocol.ipfs.block import BLOCK_SIZE_MAX, block_of
from muniment.service.blocks import s3
from muniment.service.blocks.files import FileBlockStore
from muniment.service.blocks.s3 import S3BlockStore
from ports import free_port
from s3_server import environment, patient, s3_server

__all__ = ["patient"]  # the fixture
pytestmark = pytest.mark.usefixtures("patient")
HELLO = block_of(b"hello")
MANY = sorted(block_of(number.to_bytes(4, "big") * 500) for number in range(40))
FEW = MANY[:8]


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with s3_server(tmp_path_factory.mktemp("s3")) as (port, _):
        yield port


def use(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def url(port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A place in the bucket for one test."""
    use(monkeypatch, environment(port))
    return f"s3://blocks/{tmp_path.name}/below"


@pytest.fixture
def store(url: str, tmp_path: Path) -> S3BlockStore:
    return S3BlockStore(url, spools=tmp_path / "spools")


def damage(store: S3BlockStore, digest: bytes, data: bytes) -> None:
    obstore.put(store._store, f"{digest.hex()[:2]}/{digest.hex()[2:]}", data, mode="overwrite")


def test_stored_blocks_are_read_back_and_listed_in_order(store: S3BlockStore, url: str, tmp_path: Path) -> None:
    store.check()
    store.put_many(FEW[::-1])
    again = S3BlockStore(url, spools=tmp_path / "spools")
    assert [again.get(block.digest) for block in FEW] == [block.data for block in FEW]
    assert list(again.digests()) == [block.digest for block in FEW]
    assert (again.size(FEW[0].digest), again.has(FEW[0].digest)) == (2000, True)


def test_an_absent_block_is_not_found(store: S3BlockStore) -> None:
    assert not store.has(HELLO.digest)
    for ask in (store.get, store.size):
        with pytest.raises(ContentNotFound, match=HELLO.digest.hex()):
            ask(HELLO.digest)


@pytest.mark.parametrize("wrong", [b"hellp", b"hell", b"", bytes(BLOCK_SIZE_MAX + 1)])
def test_wrong_bytes_are_never_given_and_the_next_put_repairs_them(store: S3BlockStore, wrong: bytes) -> None:
    store.put_many([HELLO])
    damage(store, HELLO.digest, wrong)
    with pytest.raises(Integrity, match=HELLO.digest.hex()):
        store.get(HELLO.digest)
    store.put_many([HELLO])
    assert store.get(HELLO.digest) == b"hello"


def test_a_good_block_is_written_once(store: S3BlockStore) -> None:
    key = f"{HELLO.digest.hex()[:2]}/{HELLO.digest.hex()[2:]}"
    store.put_many([HELLO])
    first = obstore.head(store._store, key)["last_modified"]
    time.sleep(1.1)  # the server's times are whole seconds
    store.put_many([HELLO])
    assert obstore.head(store._store, key)["last_modified"] == first


def test_threads_may_put_the_same_blocks_concurrently(store: S3BlockStore) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(store.put_many, [FEW, FEW[::-1]] * 2))
    assert [store.get(block.digest) for block in FEW] == [block.data for block in FEW]


def test_a_block_beyond_the_limit_is_a_mistake_of_the_caller(store: S3BlockStore) -> None:
    beyond = block_of(bytes(BLOCK_SIZE_MAX + 1))
    with pytest.raises(ValueError, match="at most"):
        store.put_many([beyond])
    assert not store.has(beyond.digest)


def test_blocks_are_copied_to_the_bucket_and_back(url: str, tmp_path: Path) -> None:
    FileBlockStore(tmp_path / "source").put_many(FEW)
    for source, target in ((f"file:{tmp_path}/source", url), (url, f"file:{tmp_path}/again")):
        result = CliRunner().invoke(main, ["blocks", "copy", source, target, "--json", "--data-dir", str(tmp_path)])
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout)["copied"] == len(FEW)
    again = FileBlockStore(tmp_path / "again")
    assert [again.get(digest) for digest in again.digests()] == [block.data for block in FEW]


def test_objects_with_other_names_are_no_blocks(store: S3BlockStore) -> None:
    store.put_many([HELLO])
    folder = HELLO.digest.hex()[:2]
    for name in (f"{folder}/x", f"{folder}/ab/{'cd' * 31}", f"{folder}/{'CD' * 31}", "other", "readiness/x"):
        obstore.put(store._store, name, b"x")
    store.check()
    assert list(store.digests()) == [HELLO.digest]


def test_a_listing_without_an_end_is_an_outage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "OBJECTS_PER_FOLDER_MAX", 5)  # a million names take minutes
    page = (
        b"<ListBucketResult><Name>blocks</Name><IsTruncated>true</IsTruncated>"
        b"<NextContinuationToken>again</NextContinuationToken><Contents><Key>x/00/a</Key>"
        b"<LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>a</ETag><Size>1</Size></Contents></ListBucketResult>"
    )
    head = b"HTTP/1.1 200 OK\r\nlast-modified: Thu, 01 Jan 2026 00:00:00 GMT\r\nconnection: close\r\ncontent-length: %d"
    with answering(head % len(page) + b"\r\n\r\n" + page) as port:
        use(monkeypatch, environment(port))
        with pytest.raises(StorageUnavailable, match="without an end"):
            list(S3BlockStore("s3://blocks/x", spools=tmp_path).digests())


def test_a_bucket_that_is_gone_is_an_outage_and_not_an_absent_block(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, environment(port))
    store = S3BlockStore("s3://nowhere/x", spools=tmp_path)
    for ask in (store.check, lambda: store.get(HELLO.digest)):
        with pytest.raises(StorageUnavailable, match="no such bucket"):
            ask()


def test_credentials_may_be_in_files_and_are_never_shown(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = environment(port)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        (tmp_path / name).write_text(f"{given.pop(name)}\n")
        monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv(f"{name}_FILE", str(tmp_path / name))
    use(monkeypatch, given)
    store = S3BlockStore(f"s3://blocks/{tmp_path.name}", spools=tmp_path / "spools")
    store.put_many([HELLO])
    assert store.get(HELLO.digest) == b"hello"
    for content in (b"", b"\xffhidden"):
        (tmp_path / "AWS_SECRET_ACCESS_KEY").write_bytes(content)
        with pytest.raises(ValueError, match="AWS_SECRET_ACCESS_KEY_FILE") as refused:
            S3BlockStore("s3://blocks/x", spools=tmp_path)
        assert "hidden" not in str(refused.value)


def test_the_library_of_s3_is_named_when_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "muniment.service.blocks.s3")
    monkeypatch.setitem(sys.modules, "obstore", None)
    FileBlockStore(tmp_path / "blocks")
    result = CliRunner().invoke(main, ["blocks", "copy", "file:", "s3://blocks/x", "--data-dir", str(tmp_path)])
    assert result.exit_code == 1
    assert result.stderr == "Error: blocks in S3 need the library obstore. Type: pip install 'muniment[s3]'\n"


@pytest.mark.long
def test_a_copy_that_was_interrupted_copies_only_the_rest(url: str, tmp_path: Path) -> None:
    FileBlockStore(tmp_path / "source").put_many(MANY)
    source, target = FileBlockStore(tmp_path / "source"), S3BlockStore(url, spools=tmp_path / "spools")
    stops = iter([False] * 15 + [True])
    first = copy_blocks(source, target, on_block=lambda: None, on_finding=pytest.fail, is_stopping=lambda: next(stops),
                        blocks_per_batch=4)  # fmt: skip
    assert (first.copied, first.interrupted) == (15, True)
    second = copy_blocks(source, target, on_block=lambda: None, on_finding=pytest.fail, is_stopping=lambda: False)
    assert (second.copied, second.there, second.damaged) == (25, 15, 0)
    damage(target, MANY[3].digest, b"wrong")
    findings: list[str] = []
    back = copy_blocks(target, FileBlockStore(tmp_path / "back"), on_block=lambda: None, on_finding=findings.append,
                       is_stopping=lambda: False)  # fmt: skip
    assert (back.copied, back.damaged) == (39, 1)
    assert MANY[3].digest.hex() in findings[0]


@pytest.mark.long
def test_blocks_are_copied_from_the_bucket_to_the_table_and_back(url: str, tmp_path: Path) -> None:
    def copied(source: str, target: str) -> int:
        words = ["blocks", "copy", source, target, "--json", "--data-dir", str(tmp_path)]
        result = CliRunner().invoke(main, words)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)["copied"]

    assert CliRunner().invoke(main, ["migrate", "--data-dir", str(tmp_path)]).exit_code == 0
    S3BlockStore(url, spools=tmp_path / "spools").put_many(MANY)
    assert (copied(url, "database:"), copied("database:", f"{url}/again")) == (len(MANY), len(MANY))
    assert list(S3BlockStore(f"{url}/again", spools=tmp_path / "spools").digests()) == [each.digest for each in MANY]


def all_refuse(store: S3BlockStore, reason: str) -> None:
    """Every method raises `StorageUnavailable` with this reason."""
    for ask in (
        lambda: store.put_many([HELLO]), lambda: store.get(HELLO.digest), lambda: store.has(HELLO.digest),
        lambda: list(store.digests()), store.check,
    ):  # fmt: skip
        with pytest.raises(StorageUnavailable, match=reason) as refused:
            ask()
        assert "127.0.0.1" not in refused.value.detail


def test_wrong_credentials_are_named(port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, environment(port, secret="wrong"))
    all_refuse(S3BlockStore("s3://blocks/x", spools=tmp_path), "refuses the credentials")


def test_a_server_that_is_gone_is_an_outage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, environment(free_port()))
    all_refuse(S3BlockStore("s3://blocks/x", spools=tmp_path), "is not reached")


@contextmanager
def answering(answer: bytes | None) -> Generator[int]:
    """A server that gives every request this answer, or none."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        held: list[socket.socket] = []

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                held.append(connection)
                if answer is not None:
                    with connection, suppress(OSError):  # the test can be over
                        connection.recv(65_536)
                        connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            for connection in held:
                connection.close()


UNAVAILABLE = b"HTTP/1.1 503 Slow Down\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


HUGE_ERROR = b"HTTP/1.1 500 No\r\ncontent-length: 99999999\r\n\r\nx"


@pytest.mark.parametrize(
    ("answer", "reason", "seconds_max"),
    [
        (UNAVAILABLE, "answers 503", 50),
        (None, "too slow", 0.5),
        (HUGE_ERROR, "S3 server", 50),
        (b"SSH-2.0\r\n", "no answer of S3", 50),
    ],
    ids=["503", "silence", "huge", "ssh"],
)
def test_a_server_that_fails_or_is_slow_is_an_outage_in_bounded_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes | None, reason: str, seconds_max: float
) -> None:
    with answering(answer) as port:
        use(monkeypatch, environment(port))
        began = time.monotonic()
        all_refuse(S3BlockStore("s3://blocks/x", spools=tmp_path, request_seconds_max=seconds_max), reason)
        assert time.monotonic() - began < 60
