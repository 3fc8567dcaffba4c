"""Rules of the house about files, folders and tables. An exception has its reason beside it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Final

from golden import ROOT

_SOURCE: Final = ROOT / "src" / "muniment"
_LINES_MAX: Final = 500
# Files that are longer, each with the number of lines at which its exception ends.
_LONG_FILES: Final = {
    "tests/support/decoders.py": 740  # one list of all decoders: a test compares it with the code
}

# The modules that name a table in SQL: a folder of src/muniment, or a file.
_OWNERS: Final = {
    "triggers": ["service/resources/triggers"],
    "deactivations": ["service/resources/triggers"],
    "functions": ["service/resources/functions"],
    "function_creators": ["service/resources/functions"],
    "users": ["service/resources/users", "service/auth/caller.py"],
    "used_nonces": ["service/auth"],
    "forgotten_nonces": ["service/auth"],
    "operators": ["service/resources/operators.py"],
    "audit_entries": ["service/resources/operators.py"],
    "intents": ["service/resources/intents"],
    "intent_proposals": ["service/resources/intents"],
    "intent_logs": ["service/resources/intents"],
    "intent_users": ["service/resources/intents"],
    "intent_ops": ["service/resources/intents"],
    "intent_nonces": ["service/resources/intents"],
    "executions": ["service/resources/intents"],
    "runs": ["service/resources/runs"],
    "run_records": ["service/resources/runs"],
    "chain_progress": ["operate/watch"],
    "chain_blocks": ["operate/watch"],
    "leases": ["service/storage/leases.py"],
    "blocks": ["service/blocks"],
    "epoch": ["service/storage/epoch.py"],
    "time_differences": ["service/storage/dating.py"],
    "events": ["service/resources/feed"],
    "feed": ["service/resources/feed"],
    "webhooks": ["service/resources/webhooks"],
    "webhook_attempts": ["service/resources/webhooks"],
    "webhook_dead_letters": ["service/resources/webhooks"],
    "tlog_epochs": ["service/resources/log"],
    "tlog_cursors": ["service/resources/log"],
    "tlog_tail": ["service/resources/log"],
    "tlog_tiles": ["service/resources/log"],
    "tlog_runs": ["service/resources/log"],
}
# These read a whole registry.
_EVERYWHERE: Final = ["service/storage/registry_copy.py", "operate"]
_EXCEPTIONS: Final = {
    # An intent may name a run, which says whether it made the intent.
    "service/resources/intents/run_outputs.py": {"runs"},
    # What came of runs: whether their intents are recorded; those of triggers.
    "service/resources/runs/counting.py": {"intents", "triggers"},
    # It asks nodes for the receipts of the transactions that intents name.
    "operate/watch/receipts.py": {"intents", "intent_proposals", "executions"},
    # It shows how far the watcher has read.
    "service/console/pages/overview.py": {"chain_progress"},
    # In one transaction with its own tables, it takes back the facts of blocks that a chain has dropped.
    "operate/watch/progress.py": {"executions"},
}

# What is given the name of a table: functions of storage, and the generations of intents.
_PLANNERS: Final = {"Listed", "timed_scope", "are_few", "first_rows", "has_row_after"}
_CREATED: Final = re.compile(r"^CREATE TABLE (\w+)", re.MULTILINE)
_NAMED: Final = re.compile(r"\b(?:FROM|JOIN|INTO|UPDATE|TABLE)\s+(\w+)")


def _files(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from (file for file in sorted((ROOT / folder).rglob("*.py")) if "node_modules" not in file.parts)


def _texts(file: Path) -> Iterator[str]:
    """Strings of a module without docstrings; an f-string is one text, with `?` for each value.

    A table that is passed to the planner of listings becomes `FROM table`.
    """
    pending: list[ast.AST] = [ast.parse(file.read_text("utf-8"))]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(str(each.value) if isinstance(each, ast.Constant) else "?" for each in node.values)
            pending += [each for each in node.values if isinstance(each, ast.FormattedValue)]
        elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            pending += ast.iter_child_nodes(node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _PLANNERS:
            yield from (f"FROM {each.value}" for each in node.args if isinstance(each, ast.Constant))


@cache
def _tables() -> set[str]:
    migrations = (_SOURCE / "service" / "storage" / "migrations").rglob("*.sql")
    return {table for file in migrations for table in _CREATED.findall(file.read_text("utf-8"))}


@cache
def _named_in(file: Path) -> frozenset[str]:
    """Tables in the SQL of a module."""
    return frozenset(name for text in _texts(file) for name in _NAMED.findall(text)) & _tables()


def _may_name(module: str, table: str) -> bool:
    places = [*_OWNERS[table], *_EVERYWHERE]
    return any(module == place or module.startswith(f"{place}/") for place in places) or table in _EXCEPTIONS.get(
        module, ()
    )


def test_no_file_has_more_than_500_lines() -> None:
    lengths = {
        str(file.relative_to(ROOT)): len(file.read_text("utf-8").splitlines())
        for file in _files("src", "tests", "bench")
    }
    assert {name: lines for name, lines in lengths.items() if lines > _LONG_FILES.get(name, _LINES_MAX)} == {}
    assert {name for name in _LONG_FILES if lengths.get(name, 0) <= _LINES_MAX} == set(), "delete these exceptions"


def test_modules_that_are_imported_by_name_alone_have_different_names() -> None:
    folders = ["tests", "tests/support", "tests/api", "bench"]  # on the paths of one process
    names = [file.name for folder in folders for file in (ROOT / folder).glob("*.py")]
    assert [name for name in set(names) if names.count(name) > 1] == []


def test_every_table_has_an_owner() -> None:
    assert set(_OWNERS) == _tables()


def test_a_table_is_named_only_by_its_owner() -> None:
    strangers = [
        f"{module} names {table}"
        for module, file in ((str(file.relative_to(_SOURCE)), file) for file in _files("src/muniment"))
        for table in sorted(_named_in(file))
        if not _may_name(module, table)
    ]
    assert strangers == []


def test_an_owner_names_its_table() -> None:
    """Otherwise the search for names is broken."""
    named = {table for file in _files("src/muniment") if "cli" not in file.parts for table in _named_in(file)}
    assert named == _tables()


def test_each_exception_is_needed() -> None:
    assert {module: _named_in(_SOURCE / module) & tables for module, tables in _EXCEPTIONS.items()} == _EXCEPTIONS


def test_each_module_of_the_tests_has_a_name_of_its_own() -> None:
    """Python cannot import two modules of one name."""
    names = [path.name for path in (ROOT / "tests").rglob("*.py") if "node_modules" not in path.parts]
    assert sorted(name for name in set(names) if names.count(name) > 1) == []


def test_the_marks_of_long_tests_stand_in_the_files_that_the_makefile_searches() -> None:
    marks = re.compile(r"mark[.](long|timed)|^from hypothesis import .*\bgiven\b", re.MULTILINE)
    paths = [path for path in (ROOT / "tests").glob("*/*.py") if not path.name.startswith("test_")]
    assert paths
    assert [path.name for path in paths if marks.search(path.read_text("utf-8"))] == []


def test_no_repetition_of_a_group_is_possessive() -> None:
    """Before Python 3.11.5 (Debian 12 has 3.11.2) such a repetition may match half of a group (gh-106052)."""
    code = {path: path.read_text("utf-8") for path in sorted(_SOURCE.rglob("*.py"))}
    assert [path.name for path, text in code.items() if re.search(r"\(\?:.*\)[*+?]\+", text)] == []


def test_each_module_of_the_benchmarks_can_be_imported() -> None:
    """No other test imports them, so a renamed module would break them unnoticed."""
    names = sorted(path.stem for path in (ROOT / "bench").glob("*.py"))
    program = f"import sys; sys.path[:0] = ['bench', 'tests/support']; import {', '.join(names)}"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_make_test_names_every_folder_and_no_path_within_another() -> None:
    """Of two paths, one within the other, pytest takes the outer one, with what that leaves out."""
    done = subprocess.run(["make", "-n", "test"], cwd=ROOT, capture_output=True, text=True, check=True)
    [command] = [line for line in done.stdout.replace("\\\n", "").splitlines() if "/pytest " in line]
    words = command.split()
    ignored = {word for before, word in pairwise(words) if before == "--ignore"}
    named = {Path(word) for word in words if word.startswith("tests/") and word not in ignored}
    tested = {each.relative_to(ROOT).parts[1] for each in (ROOT / "tests").rglob("test_*.py")} - {"deploy", "soak"}
    assert {each.name for each in named if not each.suffix} == tested
    assert [each for each in named if named & set(each.parents)] == []
    requests = subprocess.run(["make", "-n", "requests"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ignored == {word for word in requests.stdout.split() if word.startswith("tests/")}  # of make test-long
