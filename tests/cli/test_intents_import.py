"""`muniment intents import` and `export` as operators run them."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import termios
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import warm
from intent_lines import joined, line, log, proposal
from muniment.cli.main import main
from muniment.cli.output import output_file
from muniment.service.resources.intents.json_lines import LINES_PER_BATCH
from terminal import shown_on

# An import that is interrupted has batches of so many lines, and is interrupted after the first of two.
BATCH, LINES = 40, 60
# This ends a hang.
SECONDS_MAX = 60
# `muniment` that waits in the middle of an import, one batch done, until the file GO_ON_WHEN_THERE_IS is there.
STAYS_IN_THE_MIDDLE = f"""
import os, time
from pathlib import Path
from muniment.__main__ import main
from muniment.service.resources.intents import json_lines
from muniment.service.resources.intents.json_lines import Import
add, batches, in_batches = Import.add, iter(range(100)), json_lines.in_batches
json_lines.in_batches = lambda lines, **_: in_batches(lines, lines_max={BATCH})
async def stay(self, batch):
    await add(self, batch)
    if next(batches) == 0:
        until = time.monotonic() + 60
        while not Path(os.environ["GO_ON_WHEN_THERE_IS"]).exists() and time.monotonic() < until:
            time.sleep(0.01)
Import.add = stay
main()
"""


def registry(directory: Path, migrated_file: Path) -> Path:
    """An empty registry."""
    directory.mkdir(mode=0o700)
    shutil.copy2(migrated_file, directory)
    return directory


def intents(data_dir: Path, *arguments: object, stdin: bytes | None = None) -> Result:
    command = ["intents", *(str(each) for each in arguments), "--data-dir", str(data_dir)]
    return CliRunner().invoke(main, command, input=stdin)


def summary(result: Result) -> dict[str, Any]:
    told = json.loads(result.stdout)
    assert told.pop("seconds") >= 0
    return told


def exported(data_dir: Path) -> bytes:
    """Every intent but for the time of its arrival."""
    result = intents(data_dir, "export")
    assert result.exit_code == 0, result.stderr
    return re.sub(rb'"createdAt":"[^"]*","executionHash"', b'"executionHash"', result.stdout_bytes)


def rows(data_dir: Path, sql: str) -> list[Any]:
    with closing(sqlite3.connect(data_dir / "muniment.db")) as connection:
        return connection.execute(sql).fetchall()


def launch(
    data_dir: Path,
    *arguments: object,
    stdin: int | None = None,
    stderr: int = subprocess.PIPE,
    program: Sequence[str] = ("-m", "muniment"),
    **environment: str,
) -> warm.WarmProcess:
    command = ["intents", *map(str, arguments), "--data-dir", str(data_dir)]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("MUNIMENT_")}
    environ |= {"PYTHONPATH": str(warm.UNHURRIED), **environment}
    return warm.popen(command, environ, program, stdin=stdin, stderr=stderr)


def wait_until_it_handles(process: warm.WarmProcess, number: signal.Signals) -> None:
    """Until the process has taken over the signal (proc(5): SigCgt)."""
    caught = 0
    while not caught >> (number - 1) & 1:
        assert process.poll() is None, "it has ended"
        found = re.search(r"^SigCgt:\s*([0-9a-f]+)$", Path(f"/proc/{process.pid}/status").read_text(), re.MULTILINE)
        assert found is not None
        caught = int(found[1], 16)
        time.sleep(0.01)


def waiting_in(pipe: int) -> int:
    """The number of bytes that wait in a pipe."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def wait_until_full(pipe: int) -> None:
    """Until its writer has written what goes in, and waits."""
    before, now = -1, 0
    deadline = time.monotonic() + SECONDS_MAX
    while now == 0 or now != before:
        assert time.monotonic() < deadline, "no line was written"
        time.sleep(0.2)
        before, now = now, waiting_in(pipe)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "intents.ndjson"


@pytest.fixture
def data(tmp_path: Path, migrated_file: Path) -> Path:
    return registry(tmp_path / "data", migrated_file)


@pytest.mark.parametrize("count", [LINES_PER_BATCH + 2, pytest.param(10_000, marks=pytest.mark.long)])
def test_one_bad_line_of_many_is_reported_and_all_others_are_in(file: Path, data: Path, count: int) -> None:
    lines = [line(n) for n in range(1, count + 1)]
    bad = count // 2
    lines[bad - 1] = line(bad, hash="0x" + "00" * 32)
    file.write_bytes(joined(lines))
    result = intents(data, "import", file, "--json")
    assert result.exit_code == 1
    assert summary(result) == {
        "lines": count, "stored": count - 1, "unchanged": 0, "refused": 1, "blank": 0, "refusedBefore": 0,
        "resumedAt": 0, "done": True,
    }  # fmt: skip
    (told,) = result.stderr.splitlines()
    assert re.fullmatch(rf"line {bad}: hash-mismatch: .* \(/hash\); computed 0x[0-9a-f]{{64}}", told)
    assert rows(data, "SELECT COUNT(*) FROM intents") == [(count - 1,)]


def test_a_corrected_file_is_read_from_its_beginning(file: Path, data: Path) -> None:
    file.write_bytes(joined([line(1), b"{", line(3)]))
    assert intents(data, "import", file).exit_code == 1
    file.write_bytes(joined([line(1), line(2), line(3)]))
    result = intents(data, "import", file)
    assert result.exit_code == 0
    assert result.stdout.startswith("3 lines: 1 stored, 2 unchanged, 0 refused, 0 blank; ")
    assert result.stderr == ""


def test_standard_input_is_read(data: Path) -> None:
    for expected in ({"stored": 2, "unchanged": 0}, {"stored": 0, "unchanged": 2}):
        result = intents(data, "import", "-", "--json", stdin=line(1) + b"\r\n\r\n" + line(2))
        assert result.exit_code == 0
        assert summary(result).items() >= {"lines": 3, "blank": 1, **expected}.items()


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (b"{", r"invalid-json: not JSON: .*"),
        (b'{"op": "\xff"}', r"invalid-json: not UTF-8 at byte 8"),
        (line(2, user="0x12"), r"invalid-address: .* \(/user\)"),
        (line(1, status="created"), r"status-conflict: .*"),
    ],
    ids=["no JSON", "not UTF-8", "an address", "a status that goes backwards"],
)
def test_a_bad_line_is_reported_with_its_number_and_reason(file: Path, data: Path, bad: bytes, told: str) -> None:
    file.write_bytes(joined([line(1, status="enqueued"), bad, line(3)]))
    result = intents(data, "import", file)
    assert result.exit_code == 1
    assert re.match(f"line 2: {told}\n", result.stderr), result.stderr
    assert rows(data, "SELECT COUNT(*) FROM intents") == [(2,)]


@pytest.mark.parametrize("name", ["absent.ndjson", "."])
def test_a_file_that_cannot_be_read_is_status_2(tmp_path: Path, data: Path, name: str) -> None:
    result = intents(data, "import", tmp_path / name)
    assert result.exit_code == 2
    assert "Error: " in result.stderr
    assert rows(data, "SELECT 1 FROM imports") == []


def wait_for_progress(process: warm.WarmProcess, data: Path) -> None:
    """Return once a batch is on disk."""
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        assert process.poll() is None, "it ended before it was interrupted"
        with suppress(sqlite3.OperationalError):  # no file or no table yet
            if rows(data, "SELECT 1 FROM imports"):
                return
        time.sleep(0.005)
    raise AssertionError("nothing is written")


def many(bad: Sequence[int]) -> bytes:
    lines = [line(n, logs=[log(n)], proposals=[proposal(n)]) for n in range(1, LINES + 1)]
    for number in bad:
        lines[number - 1] = b"{"
    return joined(lines)


@pytest.fixture(scope="module")
def imported_at_once(tmp_path_factory: pytest.TempPathFactory, migrated_file: Path) -> Path:
    """A registry with the intents of a file that has two bad lines, imported without an interruption."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "intents.ndjson").write_bytes(many([3, LINES - 1]))
    assert intents(registry(folder / "data", migrated_file), "import", folder / "intents.ndjson").exit_code == 1
    return folder


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_import_goes_on_to_the_same_end(
    data: Path, tmp_path: Path, imported_at_once: Path, number: signal.Signals
) -> None:
    file, whole = imported_at_once / "intents.ndjson", imported_at_once / "data"
    program, go_on = ["-c", STAYS_IN_THE_MIDDLE], tmp_path / "go on"
    process = launch(data, "import", file, "--json", program=program, GO_ON_WHEN_THERE_IS=str(go_on))
    try:
        wait_for_progress(process, data)
        process.send_signal(number)
    finally:
        go_on.touch()
        told, warned = process.communicate(timeout=SECONDS_MAX)
    ((lines,),) = rows(data, "SELECT lines FROM imports")
    assert lines == BATCH
    if number is not signal.SIGKILL:
        assert process.returncode == 128 + number
        assert json.loads(told).items() >= {"lines": lines, "done": False, "refused": 1}.items()
        assert f"stopped after line {lines}; run the command again to continue" in warned
    result = intents(data, "import", file, "--json")
    assert result.exit_code == 1
    assert summary(result).items() >= {"resumedAt": lines, "refusedBefore": 1, "refused": 1, "lines": LINES}.items()
    assert "line 3:" not in result.stderr
    assert f"line {LINES - 1}:" in result.stderr
    assert exported(data) == exported(whole)
    entries = "SELECT COUNT(*), COUNT(DISTINCT subject) FROM audit_entries"
    assert rows(data, entries) == rows(whole, entries) == [(LINES - 2, LINES - 2)]
    assert rows(data, "SELECT * FROM imports") == []


@pytest.fixture
def begun(file: Path, data: Path) -> Path:
    """A file of which an import has done two lines."""
    file.write_bytes(joined([line(1), line(2), line(3)]))
    assert intents(data, "import", "-", stdin=joined([line(1), line(2)])).exit_code == 0
    source = "sha256:" + hashlib.sha256(file.read_bytes()).hexdigest()
    with closing(sqlite3.connect(data / "muniment.db")) as connection, connection:
        values = (source, 2, len(joined([line(1), line(2)])), 0, 1)
        connection.execute("INSERT INTO imports VALUES (?, ?, ?, ?, ?)", values)
    return file


def test_the_same_content_goes_on_under_another_name(begun: Path, data: Path) -> None:
    told = summary(intents(data, "import", begun.rename(begun.with_name("moved")), "--json"))
    assert told.items() >= {"resumedAt": 2, "stored": 1, "unchanged": 0}.items()


def test_a_changed_file_begins_at_its_beginning(begun: Path, data: Path) -> None:
    begun.write_bytes(joined([line(4), line(2), line(3)]))
    told = summary(intents(data, "import", begun, "--json"))
    assert told.items() >= {"resumedAt": 0, "stored": 2, "unchanged": 1}.items()


def test_restart_begins_at_the_beginning(begun: Path, data: Path) -> None:
    told = summary(intents(data, "import", begun, "--json", "--restart"))
    assert told.items() >= {"resumedAt": 0, "stored": 1, "unchanged": 2}.items()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_waiting_for_standard_input_ends_with_a_signal(data: Path, number: signal.Signals) -> None:
    reading, writing = os.pipe()
    process = launch(data, "import", "-", stdin=reading)
    os.close(reading)
    try:
        wait_until_it_handles(process, signal.SIGTERM)
        os.write(writing, b"{")
        deadline = time.monotonic() + SECONDS_MAX
        while waiting_in(writing):
            assert time.monotonic() < deadline, "standard input is not read"
            time.sleep(0.01)
        process.send_signal(number)
        assert process.wait(timeout=SECONDS_MAX) == 128 + number
    finally:
        os.close(writing)
        _, warned = process.communicate(timeout=SECONDS_MAX)
    assert "stopped after line 0; give the same input again" in warned


def test_an_export_is_a_file_that_an_empty_registry_imports_to_the_same(
    file: Path, data: Path, tmp_path: Path, migrated_file: Path
) -> None:
    lines = [line(1, status="submitted", proposals=[proposal(1), proposal(2)]), line(2, logs=[log(1), log(2)]), line(3)]
    intents(data, "import", "-", stdin=joined(lines))
    result = intents(data, "export", file, "--json")
    assert result.exit_code == 0
    assert result.stdout == ""
    told = json.loads(result.stderr)
    assert told.items() >= {"intents": 3, "proposals": 2, "logs": 2, "bytes": file.stat().st_size}.items()
    again = intents(registry(tmp_path / "other", migrated_file), "import", file, "--json")
    assert summary(again).items() >= {"lines": 3, "stored": 3, "refused": 0}.items()
    assert exported(tmp_path / "other") == exported(data)
    assert summary(intents(data, "import", file, "--json")).items() >= {"unchanged": 3, "stored": 0}.items()


def test_an_export_replaces_a_file_only_when_it_is_whole(file: Path, tmp_path: Path, data: Path) -> None:
    file.write_bytes(b"before")
    (tmp_path / "older").mkdir()
    (tmp_path / "older/muniment.db").touch()
    result = intents(tmp_path / "older", "export", file)
    assert result.exit_code == 2
    assert "muniment migrate" in result.stderr
    assert file.read_bytes() == b"before"
    intents(data, "import", "-", stdin=line(1))
    assert intents(data, "export", file).exit_code == 0
    assert file.read_bytes() == intents(data, "export").stdout_bytes
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", file.name, "older"]


def test_an_export_that_fails_in_the_middle_leaves_no_file(file: Path, data: Path) -> None:
    intents(data, "import", "-", stdin=line(1, logs=[log(1)]))
    with closing(sqlite3.connect(data / "muniment.db")) as connection, connection:
        connection.execute("ALTER TABLE intent_logs RENAME COLUMN record TO lost")
    assert intents(data, "export", file).exit_code != 0
    assert [path.name for path in file.parent.iterdir()] == ["data"]


@pytest.fixture(scope="module")
def more_than_a_pipe_takes(tmp_path_factory: pytest.TempPathFactory, migrated_file: Path) -> Path:
    """A registry whose export has 300 KB; a pipe takes 64 KiB."""
    data = registry(tmp_path_factory.mktemp("long") / "data", migrated_file)
    assert intents(data, "import", "-", stdin=joined([line(n) for n in range(1, 501)])).exit_code == 0
    return data


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("place", ["pipe", "standard output"])
def test_a_signal_ends_an_export_that_is_held_up(
    tmp_path: Path, more_than_a_pipe_takes: Path, place: str, number: signal.Signals
) -> None:
    os.mkfifo(tmp_path / "pipe")
    process = launch(more_than_a_pipe_takes, "export", tmp_path / "pipe" if place == "pipe" else "-")
    assert process.stdout is not None
    reader = os.open(tmp_path / "pipe", os.O_RDONLY) if place == "pipe" else os.dup(process.stdout.fileno())
    try:
        wait_until_full(reader)
        process.send_signal(number)
        assert process.wait(timeout=SECONDS_MAX) == 128 + number
    finally:
        process.kill()
        os.close(reader)
        _, warned = process.communicate(timeout=SECONDS_MAX)
    assert warned == "stopped: the export is incomplete\n"


def test_a_signal_ends_an_export_to_a_pipe_without_a_reader(tmp_path: Path, data: Path) -> None:
    intents(data, "import", "-", stdin=line(1))
    os.mkfifo(tmp_path / "pipe")
    process = launch(data, "export", tmp_path / "pipe")
    wait_until_it_handles(process, signal.SIGTERM)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=SECONDS_MAX)
    assert process.wait() == 128 + signal.SIGTERM


@pytest.mark.parametrize("end", [SystemExit, KeyboardInterrupt, OSError])
def test_a_file_that_is_not_whole_does_not_appear(file: Path, end: type[BaseException]) -> None:
    file.write_bytes(b"before")

    def fail() -> None:
        with output_file(str(file)) as part:
            part.write(b"x" * 1_000_000)
            assert len(list(file.parent.iterdir())) == 2
            raise end

    with pytest.raises(end):
        fail()
    assert [path.name for path in file.parent.iterdir()] == [file.name]
    assert file.read_bytes() == b"before"


def test_a_terminal_shows_a_bar_and_refused_lines_beside_it(file: Path, data: Path) -> None:
    file.write_bytes(joined([line(1), b"{", line(3)]))
    ours, theirs = os.openpty()
    process = launch(data, "import", file, stderr=theirs)
    os.close(theirs)
    shown = shown_on(ours)
    process.communicate(timeout=SECONDS_MAX)
    assert process.wait() == 1
    assert b"importing" in shown
    assert b"100%" in shown
    assert b"\r\x1b[Kline 2: invalid-json: " in shown
