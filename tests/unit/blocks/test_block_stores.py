"""Every block store: stored blocks are durable, whole and verified."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import pytest
from stores import FILES, TABLES, Kept, opened

from muniment.protocol.errors import ContentNotFound, Integrity
from muniment.protocol.ipfs.block import BLOCK_SIZE_MAX, Block, block_of
from muniment.service.blocks.store import SPOOL_MEMORY_MAX, BlockStore

HELLO = block_of(b"hello")
EMPTY = block_of(b"")
MANY = [block_of(number.to_bytes(4, "big") * 500) for number in range(40)]
LARGE = [block_of(number.to_bytes(4, "big") * 100_000) for number in range(10)]


@pytest.fixture(params=(*FILES, *TABLES))
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kept]:
    with opened(request, tmp_path) as made:
        yield made


@pytest.fixture
def store(kept: Kept) -> BlockStore:
    return kept.store


def test_a_stored_block_is_read_back(kept: Kept, store: BlockStore) -> None:
    store.put_many([HELLO, EMPTY, HELLO])
    assert (store.get(HELLO.digest), store.get(EMPTY.digest)) == (b"hello", b"")
    assert (store.size(HELLO.digest), store.size(EMPTY.digest)) == (5, 0)
    assert (store.has(HELLO.digest), store.has(EMPTY.digest)) == (True, True)
    assert list(store.digests()) == sorted([HELLO.digest, EMPTY.digest])
    assert kept.count() == 2


def test_an_absent_block_is_not_found(store: BlockStore) -> None:
    store.put_many([EMPTY])
    assert not store.has(HELLO.digest)
    with pytest.raises(ContentNotFound, match=HELLO.digest.hex()):
        store.get(HELLO.digest)
    with pytest.raises(ContentNotFound, match=HELLO.digest.hex()):
        store.size(HELLO.digest)


def test_nothing_put_is_nothing_kept(kept: Kept, store: BlockStore) -> None:
    store.put_many([])
    assert (list(store.digests()), kept.count()) == ([], 0)


def test_another_store_in_the_same_place_sees_the_blocks(kept: Kept, store: BlockStore) -> None:
    store.put_many(MANY)
    again = kept.again()
    assert [again.get(block.digest) for block in MANY] == [block.data for block in MANY]


def test_any_number_of_blocks_is_listed_in_order(store: BlockStore) -> None:
    store.put_many(MANY)
    assert list(store.digests()) == sorted(block.digest for block in MANY)


def test_large_blocks_in_any_number_are_kept(kept: Kept, store: BlockStore) -> None:
    store.put_many(iter([*LARGE, *MANY, *LARGE]))
    assert [store.get(block.digest) for block in (*LARGE, *MANY)] == [block.data for block in (*LARGE, *MANY)]
    assert store.size(LARGE[3].digest) == 400_000
    assert kept.count() == len(LARGE) + len(MANY)


@pytest.mark.parametrize("damage", [b"hellp", b"hell", b"hello!", b""], ids=["a bit", "shorter", "longer", "empty"])
def test_a_damaged_block_is_never_given_and_is_mended_by_the_next_put(
    kept: Kept, store: BlockStore, damage: bytes
) -> None:
    store.put_many([HELLO, EMPTY])
    kept.damage(HELLO.digest, damage)
    with pytest.raises(Integrity, match=HELLO.digest.hex()):
        store.get(HELLO.digest)
    assert store.get(EMPTY.digest) == b""
    store.put_many([EMPTY, HELLO])
    assert store.get(HELLO.digest) == b"hello"
    assert kept.count() == 2


def test_a_block_beyond_the_limit_is_a_mistake_of_the_caller(store: BlockStore) -> None:
    beyond, largest = block_of(bytes(BLOCK_SIZE_MAX + 1)), block_of(bytes(BLOCK_SIZE_MAX))
    with pytest.raises(ValueError, match="at most"):
        store.put_many([beyond])
    store.put_many([largest])
    assert (store.has(beyond.digest), store.get(largest.digest)) == (False, largest.data)


def test_errors_of_the_source_are_raised_and_leave_whole_blocks(kept: Kept, store: BlockStore) -> None:
    def source() -> Iterator[Block]:
        yield HELLO
        yield from LARGE
        raise Integrity("the source broke")

    with pytest.raises(Integrity, match="the source broke"):
        store.put_many(source())
    assert kept.count() == len([store.get(digest) for digest in store.digests()])


def test_threads_may_put_the_same_blocks_concurrently(kept: Kept, store: BlockStore) -> None:
    orders = [MANY, MANY[::-1], MANY[20:] + MANY[:20]] * 3
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(store.put_many, orders))
        got = list(pool.map(store.get, [block.digest for block in MANY]))
    assert got == [block.data for block in MANY]
    assert kept.count() == len(MANY)


@pytest.mark.parametrize("size", [10, SPOOL_MEMORY_MAX, 3 * SPOOL_MEMORY_MAX])
def test_a_spool_returns_its_bytes_and_has_no_name(kept: Kept, store: BlockStore, size: int) -> None:
    data = os.urandom(size)
    with store.open_spool() as spool:
        for at in range(0, size, 65_536):
            spool.write(data[at : at + 65_536])
        assert kept.count() == 0
        assert spool.sha256() == sha256(data).digest()
        assert spool.whole() == data
        assert b"".join(spool.pieces()) == data
        assert spool.is_on_disk == (size > SPOOL_MEMORY_MAX)
    assert spool.closed
