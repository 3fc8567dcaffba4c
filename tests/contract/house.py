"""How large the house is: the figures of `house.toml`, each with its ceiling. It imports nothing of the project.

A figure above its ceiling is growth that nobody decided, and one below it is room for such growth: both are errors.
`--lower` lowers the ceilings to the figures, as `make golden` does. A commit that raises one (`--raise`) says why.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
CEILINGS: Final = "house.toml"
_HEAD: Final = (
    "# The ceilings of what `make house` counts; tests/contract/house.py says how. `make golden` lowers them.\n"
)
_PARTICIPLES: Final = "docs/develop/participles.txt"

# Rooms that are counted by their own rooms: `src_registry_http_lines`.
_DIVIDED: Final = ("service",)
# What of these rooms is no core: it becomes a part that can be taken out.
_CORE: Final = ("protocol", "service", "outgoing")
_PARTS: Final = (
    "protocol/log", "service/blocks/s3.py", "service/console", "service/resources/log", "service/resources/webhooks",
    "service/running/tracing", "service/storage/postgres/admin/copying.py", "service/storage/registry_copy.py",
    "service/storage/replication", "service/storage/sqlite/copying.py",
)  # fmt: skip
_SUFFIXES: Final = {".css": "css", ".js": "javascript", ".mjs": "javascript", ".sql": "sql", ".ts": "javascript"}
_SUPPRESSION: Final = re.compile(
    r"#\s*(?:noqa|type:\s*ignore|pyright:|pragma: no cover)|\b(?:mark\.skip|mark\.xfail|pytest\.skip|pytest\.xfail)"
)
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_DOCUMENTED: Final = (ast.Module, ast.ClassDef, *_FUNCTIONS)


@dataclass
class Module:
    """What is counted of a module."""

    lines: int
    statements: int = 0
    longest_function: int = 0
    words: int = 0
    skips: int = 0
    suppressions: int = 0
    operations: int = 0
    commands: int = 0
    settings: int = 0
    classes: list[str] = field(default_factory=list[str])
    # Names that the module binds: variables, parameters and functions.
    names: list[str] = field(default_factory=list[str])
    # Each use of `Any`, each `object` of an annotation, and the other names of annotations, which may be aliases.
    open_types: int = 0
    types: Counter[str] = field(default_factory=Counter[str])
    aliases_of_any: set[str] = field(default_factory=set[str])


def read_module(path: Path, *, is_source: bool) -> Module:
    """Count a module; one that is no source of the package only by its lines, statements and exceptions from rules."""
    text = path.read_text("utf-8")
    nodes = list(ast.walk(ast.parse(text)))
    module = Module(lines=len(text.splitlines()))
    module.statements = sum(isinstance(node, ast.stmt) and not _is_text(node) for node in nodes)
    module.skips = text.count("# fmt: skip")
    module.suppressions = len(_SUPPRESSION.findall(text))
    if is_source:
        for node in nodes:
            _count_node(module, node)
        docstrings = (ast.get_docstring(node) for node in nodes if isinstance(node, _DOCUMENTED))
        module.words = sum(len(each.split()) for each in (*filter(None, docstrings), *_comments(text)))
    return module


def _is_text(node: ast.AST) -> bool:
    """Whether the statement is a docstring or `...`."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _comments(text: str) -> Iterator[str]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    yield from (token.string.lstrip("#") for token in tokens if token.type == tokenize.COMMENT)


def _count_node(module: Module, node: ast.AST) -> None:
    if isinstance(node, _FUNCTIONS):
        _count_function(module, node)
    elif isinstance(node, ast.ClassDef):
        if not node.name.startswith("_"):
            module.classes.append(node.name)
        if node.name == "Settings":
            module.settings += sum(isinstance(each, ast.AnnAssign) for each in node.body)
    elif isinstance(node, ast.arg):
        module.names.append(node.arg)
        _count_annotation(module, node.annotation)
    elif isinstance(node, ast.Name):
        module.open_types += node.id == "Any"
    else:
        _count_types(module, node)
    if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
        module.names.append(node.id if isinstance(node, ast.Name) else node.attr)


def _count_types(module: Module, node: ast.AST) -> None:
    match node:
        case ast.AnnAssign(target, annotation, value):
            _count_annotation(module, annotation)
            if isinstance(annotation, ast.Name) and annotation.id == "TypeAlias":
                _count_annotation(module, value)
                _note_alias(module, target, value)
        case ast.Assign([target, *_], value):
            _note_alias(module, target, value)
        case ast.Call(ast.Name("cast"), [ast.Constant() as text, *_]):
            _count_annotation(module, text)
        case _:
            pass


def _count_function(module: Module, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    module.names.append(node.name)
    module.longest_function = max(module.longest_function, (node.end_lineno or node.lineno) - node.lineno + 1)
    _count_annotation(module, node.returns)
    for each in node.decorator_list:
        called = each.func if isinstance(each, ast.Call) else each
        if isinstance(called, ast.Name) and called.id == "operation":
            module.operations += 1
        elif isinstance(called, ast.Attribute) and called.attr == "command":
            module.commands += 1


def _count_annotation(module: Module, annotation: ast.AST | None) -> None:
    """Count what an annotation leaves open; `Any` itself is counted with all names, but for that in a text."""
    if annotation is None:
        return
    for node in ast.walk(annotation):
        if isinstance(node, ast.Name):
            module.open_types += node.id == "object"
            module.types[node.id] += 1
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            module.open_types += len(re.findall(r"\b(?:Any|object)\b", node.value))
            module.types.update(re.findall(r"\w+", node.value))


def _note_alias(module: Module, target: ast.AST, value: ast.AST | None) -> None:
    if isinstance(target, ast.Name) and isinstance(value, ast.Name) and value.id == "Any":
        module.aliases_of_any.add(target.id)


@dataclass(frozen=True)
class Words:
    """The participles of `participles.txt`: those that do not end in -ed, what ends in -ed and is none, what is fixed.

    A line is a word, or `-word` for one that is no participle, or `=word why` for a name that we may not change.
    """

    listed: frozenset[str]
    others: frozenset[str]

    @classmethod
    def of(cls, text: str) -> Words:
        """The words of the file."""
        lines = [line.split()[0] for line in text.splitlines() if line.strip() and not line.startswith("#")]
        listed = frozenset(line for line in lines if line[0].isalpha())
        return cls(listed, frozenset(line[1:] for line in lines if not line[0].isalpha()))

    def has(self, name: str) -> bool:
        """Whether `name` is one word, and a participle."""
        word = name.strip("_")
        return (
            word.islower()
            and "_" not in word
            and word not in self.others
            and (word in self.listed or word.endswith("ed"))
        )


def files(root: Path, *suffixes: str) -> Iterator[Path]:
    """The files of the project below `root` with one of these suffixes; what npm installs is not the project's."""
    for path in sorted(root.rglob("*")):
        if path.suffix in suffixes and not {"node_modules", "__pycache__"} & set(path.parts) and path.is_file():
            yield path


def room_of(path: Path) -> str:
    """The room of a module, by its path within its tree: the first folder, or two of a divided room; or the file."""
    parts = [each.strip("_") for each in (*path.parts[:-1], path.stem)]
    return "_".join(parts[: 2 if parts[0] in _DIVIDED else 1])


def figures(root: Path) -> dict[str, int]:
    """All figures of the tree at `root`, sorted by name."""
    result: Counter[str] = Counter()
    source = root / "src" / "muniment"
    modules: dict[str, dict[Path, Module]] = {}
    for name, folder in {"src": source, "tests": root / "tests", "bench": root / "bench"}.items():
        modules[name] = {
            path.relative_to(folder): read_module(path, is_source=name == "src") for path in files(folder, ".py")
        }
        for path, module in modules[name].items():
            rooms = [name] if name == "bench" else [name, f"{name}_{room_of(path)}"]
            for room in rooms:
                result[f"{room}_lines"] += module.lines
                result[f"{room}_statements"] += module.statements
            result["fmt_skips"] += module.skips
            result["suppressions"] += module.suppressions
    words = Words.of((root / _PARTICIPLES).read_text("utf-8"))
    result.update(_of_code(modules["src"], words))
    for path in (path for folder in ("src", "tests", "bench") for path in files(root / folder, *_SUFFIXES)):
        result[f"{_SUFFIXES[path.suffix]}_lines"] += len(path.read_text("utf-8").splitlines())
    pages = [*files(root / "docs", ".md"), *(root / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY"))]
    result["docs_words"] = sum(len(page.read_text("utf-8").split()) for page in pages)
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    result["extras"] = len(project["optional-dependencies"])
    return dict(sorted(result.items()))


def _of_code(modules: dict[Path, Module], words: Words) -> dict[str, int]:
    """The figures of the code of the package as a whole."""
    every = modules.values()
    classes = Counter(name for module in every for name in module.classes)
    aliases = {name for module in every for name in module.aliases_of_any}
    names = [name for module in every for name in module.names]
    return {
        "any": sum(module.open_types + sum(module.types[name] for name in aliases) for module in every),
        "class_names_of_several": sum(count > 1 for count in classes.values()),
        "commands": sum(module.commands for module in every),
        "core_lines": sum(module.lines for path, module in modules.items() if _is_core(path.as_posix())),
        "largest_file": max(module.lines for module in every),
        "longest_function": max(module.longest_function for module in every),
        "operations": sum(module.operations for module in every),
        "participles": sum(words.has(name) for name in names),
        "settings": sum(module.settings for module in every),
        "src_words": sum(module.words for module in every),
    }


def _is_core(path: str) -> bool:
    return path.startswith(tuple(f"{room}/" for room in _CORE)) and not any(
        path == part or path.startswith(f"{part}/") for part in _PARTS
    )


def read_ceilings(root: Path) -> dict[str, int]:
    """The ceilings of the tree at `root`; none where the file is missing."""
    path = root / CEILINGS
    return tomllib.loads(path.read_text("utf-8")) if path.exists() else {}


def write_ceilings(root: Path, ceilings: dict[str, int]) -> None:
    """Replace the file of ceilings."""
    lines = [f"{name} = {ceiling}\n" for name, ceiling in sorted(ceilings.items())]
    (root / CEILINGS).write_text(_HEAD + "".join(lines), "utf-8")


def main(arguments: list[str], root: Path = ROOT) -> int:
    """Print the figures of the tree at `root`. The exit status is 1 where one differs from its ceiling.

    It is 0 after ceilings were changed.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lower", action="store_true", help="lower the ceilings that are too high")
    parser.add_argument("--raise", dest="raises", action="store_true", help="set every ceiling to its figure")
    parser.add_argument("--quiet", action="store_true", help="print only the figures that differ from their ceilings")
    options = parser.parse_args(arguments)
    counts, ceilings = figures(root), read_ceilings(root)
    if options.raises:
        ceilings = counts
    elif options.lower:
        ceilings = {name: min(ceilings.get(name, 0), figure) for name, figure in counts.items()}
    if options.raises or options.lower:
        write_ceilings(root, ceilings)
    status = 0
    for name in sorted({*counts, *ceilings}):
        figure, ceiling = counts.get(name, 0), ceilings.get(name, 0)
        hint = ""
        if figure > ceiling:
            hint = "  above its ceiling: `make house RAISE=1`, with the reason in the commit"
        elif figure < ceiling or name not in counts:
            hint = "  below its ceiling: `make golden` lowers it"
        status = 1 if hint else status
        if hint or not (options.quiet or options.lower):
            print(f"{name} {figure} (ceiling {ceiling}){hint}")
    return 0 if options.raises or options.lower else status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
