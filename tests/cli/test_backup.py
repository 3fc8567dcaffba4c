"""`muniment backup` and `restore`: a registry comes back as it was, with its keys or without them."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import httpx2
import pytest
from click.testing import CliRunner

from backing_up import (
    SECRET,
    at_first,
    backup,
    blocks,
    data,
    description,
    done,
    fill,
    fill_by_copy,
    ids,
    refused,
    rows,
    run,
    snapshot,
    tree,
    with_more,
)
from builders import TriggerDraft, cron, deploy, register
from muniment.cli.main import main
from muniment.service.auth.secrets import RING_SIZE_MAX, RingFile
from operator_client import FAR_DEADLINE, IntentDraft
from run_bodies import body_of, next_run_of

__all__ = ["backup", "data"]  # the fixtures


def test_a_registry_comes_back_as_it_was(data: Path, backup: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    summary = done("restore", backup, "--no-rotate", data=new)
    assert {path.name for path in new.iterdir()} == {"muniment.db", "blocks", "secrets"}
    assert rows(new) == rows(data)
    assert [path.name for path in blocks(new)] == [path.name for path in blocks(data)]
    assert (new / "secrets").read_bytes() == (data / "secrets").read_bytes()
    assert summary == {
        "users": 1, "functions": 1, "triggers": 3, "intents": 0, "runs": 0, "blocksCopied": 3,
        "madeAt": description(backup)["madeAt"], "dataDir": str(new), "rotated": False, "secrets": ids(data),
    }  # fmt: skip
    assert run("verify", data=new).exit_code == 0


def test_a_complete_backup_sets_the_time_of_a_file_for_its_owner_alone(data: Path, tmp_path: Path) -> None:
    began = time.time() - 1
    assert not (data / "last-backup").exists()
    run("backup", data / "blocks", data=data)  # it is refused
    assert not (data / "last-backup").exists()
    done("backup", tmp_path / "backup", data=data)
    mark = (data / "last-backup").stat()
    assert (mark.st_mtime > began, mark.st_mode & 0o777, mark.st_size) == (True, 0o600, 0)


async def with_an_intent_and_two_runs(client: httpx2.AsyncClient, key: str) -> None:
    headers = {"x-operator-key": key}
    draft = IntentDraft(deadline=FAR_DEADLINE)
    assert (await client.put(f"/intents/{draft.hash}", json=draft.body, headers=headers)).status_code == 200
    cid = await deploy(client)
    trigger = await register(client, TriggerDraft(cid, config=cron(schedule="* * * * *")))
    abort = {"result": "stopped", "reason": {"code": "abort", "text": ""}}
    for new in (next_run_of(trigger), next_run_of(trigger, **abort)):
        answer = await client.post("/executions", json=body_of(new), headers=headers)
        assert answer.status_code == 200, answer.text


def test_the_summary_says_what_is_there_and_what_comes_next(data: Path, tmp_path: Path) -> None:
    key = run("operators", "add", "relayer", data=data).output.strip()
    fill(data, lambda client: with_an_intent_and_two_runs(client, key))
    contents = "users: 1, functions: 1, triggers: 4, intents: 1, runs: 2)"
    told = run("backup", tmp_path / "backup", data=data).output
    assert told.startswith(f"backed up to {tmp_path}/backup: a database of ")
    assert f"{contents}, new blocks: 3, secrets: 1\n" in told
    kept = run("restore", tmp_path / "backup", "--no-rotate", data=tmp_path / "kept").output
    assert contents in kept
    assert "Earlier API keys, tokens and nonces are valid again" in kept
    assert kept.endswith("Next: `muniment verify`, then `muniment serve`, with the same settings.\n")
    ended = run("restore", tmp_path / "backup", "--rotate", data=tmp_path / "ended").output
    assert f"is revoked; the new secret is {ids(tmp_path / 'ended')[0]}.\n" in ended
    for folder in ("data", "ended"):
        for raw in RingFile(tmp_path / folder)():
            assert raw.hex() not in told + kept + ended + (tmp_path / "backup/backup.json").read_text()


def test_rotating_leaves_a_new_secret_alone(data: Path, backup: Path, tmp_path: Path) -> None:
    summary = done("restore", backup, "--rotate", data=tmp_path / "new")
    (new,) = ids(tmp_path / "new")
    assert new not in ids(data)
    assert (summary["rotated"], summary["secrets"]) == (True, [new])
    assert ids(snapshot(backup)) == ids(data), "the backup is left as it was"


def test_a_full_ring_is_rotated_too(data: Path, tmp_path: Path) -> None:
    for _ in range(RING_SIZE_MAX - 1):
        run("secrets", "rotate", data=data)
    assert len(done("backup", tmp_path / "backup", data=data)["secrets"]) == RING_SIZE_MAX
    done("restore", tmp_path / "backup", "--rotate", data=tmp_path / "new")
    (new,) = ids(tmp_path / "new")
    assert new not in ids(data)


def test_no_other_user_may_read_a_backup_or_a_restored_registry(data: Path, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        done("backup", tmp_path / "backup", data=data)
        done("restore", tmp_path / "backup", "--no-rotate", data=tmp_path / "kept")
        done("restore", tmp_path / "backup", "--rotate", data=tmp_path / "ended")
    finally:
        os.umask(before)
    copied = snapshot(tmp_path / "backup")
    for directory in (tmp_path / "backup", copied, tmp_path / "kept", tmp_path / "ended"):
        assert directory.stat().st_mode & 0o777 == 0o700
    for directory in (copied, tmp_path / "kept", tmp_path / "ended"):
        for name in ("muniment.db", "secrets"):
            assert (directory / name).stat().st_mode & 0o777 == 0o600


def test_a_backup_is_refreshed_and_only_new_blocks_are_copied(data: Path, backup: Path, tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in blocks(backup)}
    first = snapshot(backup)
    fill(data, with_more)
    run("secrets", "rotate", data=data)
    summary = done("backup", backup, data=data)
    assert summary["functions"] == 2
    assert summary["blocksCopied"] == len(blocks(backup)) - len(before) > 3
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert not first.exists()
    assert {path.name for path in backup.iterdir()} == {"backup.json", "blocks", "lock", snapshot(backup).name}
    done("restore", backup, "--no-rotate", data=tmp_path / "new")
    assert rows(tmp_path / "new") == rows(data)
    assert ids(tmp_path / "new") == ids(data)


def test_blocks_in_the_table_come_with_the_database(tmp_path: Path) -> None:
    fill_by_copy(tmp_path / "data", at_first)
    table = {"MUNIMENT_BLOCKS_URL": "database:"}
    assert run("blocks", "copy", "file:", "database:", data=tmp_path / "data").exit_code == 0
    shutil.rmtree(tmp_path / "data/blocks")
    done("backup", tmp_path / "backup", data=tmp_path / "data", **table)
    assert not (tmp_path / "backup/blocks").exists()
    said = refused("restore", tmp_path / "backup", "--no-rotate", data=tmp_path / "new")
    assert "blocks in the database: restore with MUNIMENT_BLOCKS_URL=database:" in said
    assert not (tmp_path / "new").exists()
    done("restore", tmp_path / "backup", "--no-rotate", data=tmp_path / "new", **table)
    assert run("verify", data=tmp_path / "new", **table).exit_code == 0


def test_blocks_in_files_are_not_restored_beside_a_table(backup: Path, tmp_path: Path) -> None:
    said = refused("restore", backup, "--no-rotate", data=tmp_path / "new", MUNIMENT_BLOCKS_URL="database:")
    assert "blocks in files: restore with MUNIMENT_BLOCKS_URL=file:" in said
    assert not (tmp_path / "new").exists()


def test_other_places_for_database_and_blocks_are_found(data: Path, tmp_path: Path) -> None:
    elsewhere = {"MUNIMENT_BLOCKS_URL": f"file://{tmp_path}/shared", "MUNIMENT_DATABASE_URL": "sqlite:///named.db"}
    (data / "blocks").rename(tmp_path / "shared")
    (data / "muniment.db").rename(data / "named.db")
    done("backup", tmp_path / "backup", data=data, **elsewhere)
    shutil.rmtree(tmp_path / "shared")
    done("restore", tmp_path / "backup", "--no-rotate", data=tmp_path / "new", **elsewhere)
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"named.db", "secrets"}
    assert run("verify", data=tmp_path / "new", **elsewhere).exit_code == 0


@pytest.mark.parametrize("words", [["backup"], ["restore"]], ids=" ".join)
def test_every_command_has_help(words: list[str]) -> None:
    helped = CliRunner().invoke(main, [*words, "--help"])
    assert helped.exit_code == 0
    assert "DIRECTORY" in helped.output


# Secrets that are given from outside


def test_secrets_from_outside_are_no_part_of_a_backup(tmp_path: Path) -> None:
    given = {"MUNIMENT_SECRET": SECRET}
    fill(tmp_path / "data", at_first, secret=SECRET)
    (tmp_path / "data/secrets").write_text("0b" * 32 + "\n")  # of a time before
    result = run("backup", tmp_path / "backup", data=tmp_path / "data", **given)
    assert result.exit_code == 0
    assert "The backup holds no secrets" in result.output
    assert done("backup", tmp_path / "backup", data=tmp_path / "data", **given)["secrets"] is None
    said = refused("restore", tmp_path / "backup", "--rotate", data=tmp_path / "new")
    assert "the backup holds no secrets: use --no-rotate, and set MUNIMENT_SECRET to one new secret" in said
    assert not (tmp_path / "new").exists()
    restored = run("restore", tmp_path / "backup", "--no-rotate", data=tmp_path / "new", **given)
    assert restored.exit_code == 0
    assert "Set MUNIMENT_SECRET to the old ones, or to one new secret" in restored.output
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"muniment.db", "blocks"}
    (tmp_path / "data/secrets").unlink()
    for secret in (SECRET, "0b" * 32):
        assert not [content for content in tree(tmp_path).values() if secret.encode() in content]
    assert SECRET not in result.output + restored.output


def test_a_ring_that_would_not_be_used_is_not_restored(backup: Path, tmp_path: Path) -> None:
    given = {"MUNIMENT_SECRET": SECRET}
    assert "MUNIMENT_SECRET is set" in refused("restore", backup, "--rotate", data=tmp_path / "new", **given)
    assert not (tmp_path / "new").exists()
    assert done("restore", backup, "--no-rotate", data=tmp_path / "new", **given)["secrets"] is None
    assert not (tmp_path / "new/secrets").exists()


def test_a_registry_whose_secrets_are_not_at_hand_is_backed_up_without_them(data: Path, tmp_path: Path) -> None:
    (data / "secrets").unlink()  # the service has MUNIMENT_SECRET, and who runs the backup has not
    assert done("backup", tmp_path / "backup", data=data)["secrets"] is None
    assert not (data / "secrets").exists()


def test_a_directory_may_have_any_name(data: Path, tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"#a ?b%41\xff")
    assert done("backup", odd / "backup", data=data)["directory"].endswith("/#a ?b%41\ufffd/backup")
    assert done("restore", odd / "backup", "--no-rotate", data=odd / "new")["dataDir"].endswith("/#a ?b%41\ufffd/new")
    assert rows(odd / "new") == rows(data)
