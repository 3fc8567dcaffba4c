"""`muniment backup`, `restore` and `verify` of a registry whose blocks are in a bucket of a real S3 server."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import obstore
import pytest

from backing_up import at_first, blocks, done, fill, fill_by_copy, refused, rows, run, tree, with_more
from muniment.service.blocks.s3 import S3BlockStore
from ports import free_port
from s3_server import environment, s3_server


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with s3_server(tmp_path_factory.mktemp("s3")) as (port, _):
        yield port


@pytest.fixture
def url(port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in environment(port).items():
        monkeypatch.setenv(name, value)
    return f"s3://blocks/{tmp_path.name}"


@pytest.fixture
def data(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A registry with two functions, whose blocks are in the bucket alone."""
    data = tmp_path / "data"
    fill_by_copy(data, at_first, with_more)
    assert done("blocks", "copy", "file:", url, data=data)["copied"] > 5
    shutil.rmtree(data / "blocks")
    monkeypatch.setenv("MUNIMENT_BLOCKS_URL", url)
    return data


def damage(url: str, tmp_path: Path) -> str:
    """Put other bytes into the first block; its digest."""
    store = S3BlockStore(url, spools=tmp_path)
    digest = next(store.digests()).hex()
    obstore.put(store._store, f"{digest[:2]}/{digest[2:]}", b"wrong", mode="overwrite")
    return digest


def test_a_backup_has_the_blocks_of_the_bucket_as_files(data: Path, url: str, tmp_path: Path) -> None:
    before = sorted(tree(data))
    copied = done("backup", tmp_path / "backup", data=data)["blocksCopied"]
    assert copied == len(blocks(tmp_path / "backup"))
    assert done("backup", tmp_path / "backup", data=data)["blocksCopied"] == 0
    assert sorted(tree(data)) == before
    for place, kept in ((f"{url}-again", 0), ("file:", copied)):
        restored = tmp_path / place[:4]
        summary = done("restore", tmp_path / "backup", "--no-rotate", data=restored, MUNIMENT_BLOCKS_URL=place)
        assert (summary["blocksCopied"], rows(restored)) == (copied, rows(data))
        assert len(blocks(restored)) == kept
        result = run("verify", data=restored, MUNIMENT_BLOCKS_URL=place)
        assert result.exit_code == 0, result.output


def test_a_bucket_that_does_not_answer_ends_a_backup_and_the_earlier_one_stays(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done("backup", tmp_path / "backup", data=data)
    kept = tree(tmp_path / "backup")
    fill(data, at_first)
    shutil.rmtree(data / "blocks")
    shutil.rmtree(tmp_path / "backup" / "blocks")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    assert "S3 server is not reached" in refused("backup", tmp_path / "backup", data=data)
    left = tree(tmp_path / "backup")
    assert {name: content for name, content in kept.items() if "/blocks/" not in name} == left
    result = run("verify", data=data)
    assert (result.exit_code, "S3 server is not reached" in result.stderr) == (1, True)


def test_damage_in_the_bucket_ends_a_backup_and_is_found_by_verify(data: Path, url: str, tmp_path: Path) -> None:
    digest = damage(url, tmp_path)
    assert "missing or damaged blocks" in refused("backup", tmp_path / "backup", data=data)
    assert not (tmp_path / "backup" / "backup.json").exists()
    result = run("verify", data=data)
    assert (result.exit_code, f"WRONG block {digest}: " in result.stdout) == (1, True)


def test_config_shows_no_credentials(data: Path, url: str) -> None:
    result = run("config", data=data)
    assert (result.exit_code, f"MUNIMENT_BLOCKS_URL={url}" in result.stdout) == (0, True)
    assert "test-secret-of-the-s3-server" not in result.output
    result = run("config", data=data, MUNIMENT_BLOCKS_URL="s3://key:hidden@bucket/x")
    assert "hidden" not in result.output
