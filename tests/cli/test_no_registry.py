"""Every command in a data directory that holds no registry (a typing error, most of the time)."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from muniment.cli.main import main
from muniment.service.blocks.files import FileBlockStore
from registry_commands import ASKS, MAKES, NEEDS, commands

# What they say is there no file of; the others: of the database.
FILES = {name: "secrets" for name in NEEDS if name.startswith(("secrets ", "webhooks ", "tlog "))}


def run(tmp_path: Path, name: str, *options: str) -> Result:
    arguments = [str(tmp_path / "backup") if argument == "BACKUP" else argument for argument in NEEDS[name]]
    return CliRunner().invoke(main, [*name.split(), *arguments, *options])


def test_every_command_is_listed() -> None:
    assert sorted(name for name, _ in commands(main)) == sorted([*NEEDS, *MAKES, *ASKS])


@pytest.mark.parametrize("name", NEEDS)
@pytest.mark.parametrize("is_there", [False, True], ids=["no directory", "an empty directory"])
def test_without_a_registry_a_command_says_so_in_one_line_and_makes_no_file(
    tmp_path: Path, name: str, *, is_there: bool
) -> None:
    data = tmp_path / "typo"
    if is_there:
        data.mkdir()
    result = run(tmp_path, name, "--data-dir", str(data))
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: no ")
    assert f" here: {data / FILES.get(name, 'muniment.db')} is missing; " in line
    assert result.stdout == ""
    assert [*tmp_path.rglob("*")] == ([data] if is_there else [])


@pytest.mark.parametrize("name", ["config", "chains check"])
def test_what_needs_no_registry_makes_none_where_no_directory_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(tmp_path, name)
    assert "no registry" not in result.output
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("name", ["verify", "operators list", "runs prune"])
def test_a_registry_of_an_absolute_path_needs_no_data_directory(tmp_path: Path, name: str) -> None:
    url = f"sqlite:///{tmp_path}/elsewhere.db"
    FileBlockStore(tmp_path / "blocks")
    assert CliRunner().invoke(main, ["migrate", "--database-url", url, "--data-dir", str(tmp_path)]).exit_code == 0
    assert run(tmp_path, name, "--database-url", url, "--data-dir", str(tmp_path)).exit_code == 0
    result = run(tmp_path, name, "--database-url", f"{url}x", "--data-dir", str(tmp_path))
    assert (result.exit_code, result.stderr) == (
        2,
        f"Error: no registry here: {tmp_path}/elsewhere.dbx is missing; check --data-dir or the database URL\n",
    )


def test_an_empty_list_says_so(tmp_path: Path) -> None:
    assert CliRunner().invoke(main, ["migrate", "--data-dir", str(tmp_path)]).exit_code == 0
    for name, words in {
        "operators list": "no operators; `muniment operators add NAME` adds one",
        "operators audit": "no writes: operators write intents with keys",
    }.items():  # fmt: skip
        result = CliRunner().invoke(main, [*name.split(), "--data-dir", str(tmp_path)])
        assert (result.exit_code, result.stdout, result.stderr) == (0, "", f"{words}\n")


def test_blocks_that_are_not_in_the_configured_place_are_reported(tmp_path: Path) -> None:
    # Nothing is asked of the server before.
    url, blocks = "postgresql://muniment@127.0.0.1:9/x", tmp_path / "typo/blocks"
    options = ["--database-url", url, "--data-dir", str(tmp_path / "typo")]
    result = CliRunner().invoke(main, ["verify", *options], env={"MUNIMENT_BLOCKS_URL": "file:"})
    assert (result.exit_code, result.stderr) == (2, f"Error: no blocks here: {blocks} is missing; see --data-dir\n")
    assert list(tmp_path.iterdir()) == []
