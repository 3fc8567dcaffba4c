"""Each check of the doctor has a test that breaks what it looks at, and a place in the table for operators."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from muniment.operate.doctor.examination import CHECKS

ROOT = Path(__file__).parents[3]
DOCTOR = ROOT / "src" / "muniment" / "operate" / "doctor"
# A check of several parts names each finding itself; these names end with a number or a name.
NUMBERED = {"chain", "replica", "witness"}


def checks() -> set[str]:
    """The names of the table, and the names that checks give to their findings."""
    source = "".join(path.read_text("utf-8") for path in DOCTOR.glob("*.py"))
    assert all(f'f"{name} {{' in source for name in NUMBERED)
    return {row.name for row in CHECKS} | set(re.findall(r'check="([^"]+)"', source)) | NUMBERED


def marked(path: Path) -> Iterator[str]:
    """The arguments of `breaks` in a file of tests."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "breaks":
            yield from map(ast.literal_eval, node.args)


def test_each_check_has_a_test_that_breaks_it() -> None:
    files = [*(ROOT / "tests").glob("*/test_doctor*.py"), *Path(__file__).parent.glob("test_*.py")]
    assert {name for path in files for name in marked(path)} == checks()


def test_the_table_for_operators_has_each_check() -> None:
    page = (ROOT / "docs" / "run" / "running.md").read_text("utf-8")
    section = page.partition("## The doctor\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([a-zA-Z, -]+) \|", section, re.MULTILINE)
    assert {name for row in rows[1:] for name in row.split(", ")} == checks()
