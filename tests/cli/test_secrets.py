"""`muniment secrets`: an operator sees ids and times of the ring, and never a secret."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from muniment.cli.main import main
from muniment.service.auth.secrets import RING_SIZE_MAX, RingFile, Secret


def run(data_dir: Path, name: str, **environ: str) -> Result:
    return CliRunner().invoke(main, ["secrets", name, "--data-dir", str(data_dir)], env=environ)


def ids(data_dir: Path) -> list[str]:
    return [Secret.derived_from(raw).id for raw in RingFile(data_dir)()]


def test_list_shows_the_ids_newest_first_and_no_secret(tmp_path: Path) -> None:
    RingFile(tmp_path)
    for _ in range(2):
        run(tmp_path, "rotate")
    result = run(tmp_path, "list")
    assert result.exit_code == 0
    assert result.output.split() == ids(tmp_path)
    assert len(ids(tmp_path)) == 3
    for raw in RingFile(tmp_path)():
        assert raw.hex() not in result.output


def test_rotate_prints_the_id_of_the_new_secret(tmp_path: Path) -> None:
    (old,) = ids(tmp_path)
    result = run(tmp_path, "rotate")
    assert result.exit_code == 0
    new = ids(tmp_path)[0]
    assert ids(tmp_path) == [new, old]
    assert result.output == f"new secret {new}\n"


def test_retire_prints_the_id_of_the_removed_secret(tmp_path: Path) -> None:
    (old,) = ids(tmp_path)
    run(tmp_path, "rotate")
    result = run(tmp_path, "retire")
    assert result.exit_code == 0
    assert result.output == f"retired secret {old}\n"
    assert old not in ids(tmp_path)


def test_the_only_secret_stays(tmp_path: Path) -> None:
    before = ids(tmp_path)
    result = run(tmp_path, "retire")
    assert result.exit_code == 1
    assert result.output == "Error: the only secret cannot be retired; rotate first\n"
    assert ids(tmp_path) == before


def test_a_full_ring_is_not_rotated(tmp_path: Path) -> None:
    RingFile(tmp_path)
    for _ in range(RING_SIZE_MAX - 1):
        assert run(tmp_path, "rotate").exit_code == 0
    before = ids(tmp_path)
    result = run(tmp_path, "rotate")
    assert result.exit_code == 1
    assert result.output.startswith("Error: the ring already has 8 secrets")
    assert ids(tmp_path) == before


@pytest.mark.parametrize("name", ["list", "rotate", "retire"])
def test_secrets_of_the_environment_are_not_changed_here(tmp_path: Path, name: str) -> None:
    secret = "0a" * 32
    result = run(tmp_path, name, MUNIMENT_SECRET=secret)
    assert result.exit_code == 1
    assert "MUNIMENT_SECRET" in result.output
    assert secret not in result.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["list", "rotate", "retire"])
@pytest.mark.parametrize("content", [b"c0ffee", b"\xff" * 64], ids=["short", "not ASCII"])
def test_a_damaged_file_is_reported_in_one_line_and_left_unchanged(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / "secrets").write_bytes(content)
    result = run(tmp_path, name)
    assert result.exit_code == 1
    assert result.output.startswith("Error: ")
    assert result.output.count("\n") == 1
    assert "c0ffee" not in result.output
    assert (tmp_path / "secrets").read_bytes() == content
