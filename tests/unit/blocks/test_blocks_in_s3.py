"""Blocks in the bucket of a real S3 server, and the faults of servers."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import obstore
import pytest
from click.testing import CliRunner

from muniment.blocks.files import FileBlockStore
from muniment.blocks.s3 import S3BlockStore
from muniment.cli.main import main
from muniment.errors import ContentNotFound, Integrity, StorageUnavailable
from muniment.ipfs.block import BLOCK_SIZE_MAX, block_of
from ports import free_port
from s3_server import environment, s3_server

HELLO = block_of(b"hello")
MANY = sorted(block_of(number.to_bytes(4, "big") * 500) for number in range(40))


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
    store.put_many(MANY[::-1])
    again = S3BlockStore(url, spools=tmp_path / "spools")
    assert [again.get(block.digest) for block in MANY] == [block.data for block in MANY]
    assert list(again.digests()) == [block.digest for block in MANY]
    assert (again.size(MANY[0].digest), again.has(MANY[0].digest)) == (2000, True)


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
        list(pool.map(store.put_many, [MANY, MANY[::-1]] * 2))
    assert list(store.digests()) == [block.digest for block in MANY]


def test_a_block_beyond_the_limit_is_a_mistake_of_the_caller(store: S3BlockStore) -> None:
    beyond = block_of(bytes(BLOCK_SIZE_MAX + 1))
    with pytest.raises(ValueError, match="at most"):
        store.put_many([beyond])
    assert not store.has(beyond.digest)


def test_blocks_are_copied_to_the_bucket_and_back(url: str, tmp_path: Path) -> None:
    FileBlockStore(tmp_path / "source").put_many(MANY)
    for source, target in ((f"file:{tmp_path}/source", url), (url, f"file:{tmp_path}/again")):
        result = CliRunner().invoke(main, ["blocks", "copy", source, target, "--json", "--data-dir", str(tmp_path)])
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout)["copied"] == len(MANY)
    again = FileBlockStore(tmp_path / "again")
    assert [again.get(digest) for digest in again.digests()] == [block.data for block in MANY]


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
    all_refuse(S3BlockStore("s3://blocks/x", spools=tmp_path), "fails or is not reached")


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
                    connection.recv(65_536)
                    connection.sendall(answer)
                    connection.close()

        threading.Thread(target=serve, daemon=True).start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            for connection in held:
                connection.close()


UNAVAILABLE = b"HTTP/1.1 503 Slow Down\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


@pytest.mark.parametrize("answer", [UNAVAILABLE, None], ids=["503", "silence"])
def test_a_server_that_fails_or_is_slow_is_an_outage_in_bounded_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes | None
) -> None:
    with answering(answer) as port:
        use(monkeypatch, environment(port))
        began = time.monotonic()
        all_refuse(S3BlockStore("s3://blocks/x", spools=tmp_path, request_seconds_max=0.5), "fails or is not reached")
        assert time.monotonic() - began < 10
