"""Each check of the doctor has a test that breaks what it looks at, and a place in the table for operators."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
DOCTOR = ROOT / "src" / "muniment" / "maintenance" / "doctor"
# Their names go on with a number or a name.
NUMBERED = {"chain", "replica", "witness"}


def calls(path: Path, names: set[str]) -> Iterator[ast.Call]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
            yield node


def texts(arguments: list[ast.expr]) -> set[str]:
    return {each.value for each in arguments if isinstance(each, ast.Constant) and isinstance(each.value, str)}


def checks() -> set[str]:
    """The names of all checks that may warn or fail, as the code gives them to its findings."""
    found = {
        name for path in DOCTOR.glob("*.py") for call in calls(path, {"warn", "fail"}) for name in texts(call.args[:1])
    }
    source = "".join(path.read_text("utf-8") for path in DOCTOR.glob("*.py"))
    assert all(f'f"{name} {{' in source for name in NUMBERED)
    groups = re.findall(r'"(\w+)": _check_\w+', source)
    return found | NUMBERED | set(groups)


def test_each_check_has_a_test_that_breaks_it() -> None:
    files = [*(ROOT / "tests").glob("*/test_doctor*.py"), *Path(__file__).parent.glob("test_*.py")]
    marked = {name for path in files for call in calls(path, {"breaks"}) for name in texts(call.args)}
    assert marked == checks()


def test_the_table_for_operators_has_each_check() -> None:
    page = (ROOT / "docs" / "running.md").read_text("utf-8")
    section = page.partition("## The doctor\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([a-zA-Z, -]+) \|", section, re.MULTILINE)
    assert {name for row in rows[1:] for name in row.split(", ")} == checks()
