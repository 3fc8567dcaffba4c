"""The service uses no private parts of its libraries."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import muniment
from each_row import each_row

# The server: what it takes from uvicorn is its server, and the class that is given as `http` to it.
LIBRARIES = {"uvicorn", "httptools", "uvloop"}
# To parse the modules that name none of them takes seconds.
SOURCES = [
    path
    for path in sorted(Path(muniment.__file__).parent.rglob("*.py"))
    if any(library in path.read_text("utf-8") for library in LIBRARIES)
]


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(path.read_text())))


def imported(path: Path) -> Iterator[tuple[str, str]]:
    """Modules and names that a module imports from libraries."""
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in LIBRARIES:
            yield from ((node.module or "", each.name) for each in node.names)
        elif isinstance(node, ast.Import):
            yield from ((each.name, "") for each in node.names if each.name.partition(".")[0] in LIBRARIES)


def test_the_server_is_found_by_this_test() -> None:
    found = {name for path in SOURCES for name in imported(path)}
    assert ("uvicorn", "") in found
    assert ("httptools", "HttpRequestParser") in found


@each_row("path", SOURCES, ids=lambda path: path.name)
def test_no_private_name_of_the_server_s_libraries_is_imported_or_read(path: Path) -> None:
    names = list(imported(path))
    assert not [name for name in names if any(part.startswith("_") for part in (*name[0].split("."), name[1]))]
    if names:
        of_others = [
            node.attr
            for node in nodes(path)
            if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__")
            and not (isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"})
        ]  # fmt: skip
        assert of_others == []
