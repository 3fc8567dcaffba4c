"""The service uses no private parts of its libraries."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import muniment

SOURCES = sorted(Path(muniment.__file__).parent.rglob("*.py"))
# The server: what it takes from uvicorn is the class given as `http`, its server and its supervisor.
LIBRARIES = {"uvicorn", "httptools", "uvloop"}


def imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Modules and names that a module imports from libraries."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in LIBRARIES:
            yield from ((node.module or "", each.name) for each in node.names)
        elif isinstance(node, ast.Import):
            yield from ((each.name, "") for each in node.names if each.name.partition(".")[0] in LIBRARIES)


def test_the_server_is_found_by_this_test() -> None:
    found = {name for path in SOURCES for name in imported(ast.parse(path.read_text()))}
    assert ("uvicorn.supervisors", "Multiprocess") in found
    assert ("httptools", "HttpRequestParser") in found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_no_private_name_of_the_server_s_libraries_is_imported_or_read(path: Path) -> None:
    tree = ast.parse(path.read_text())
    names = list(imported(tree))
    assert not [name for name in names if any(part.startswith("_") for part in (*name[0].split("."), name[1]))]
    if names:
        of_others = [
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__")
            and not (isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"})
        ]  # fmt: skip
        assert of_others == []
