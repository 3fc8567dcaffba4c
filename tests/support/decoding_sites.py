"""Places in the code that decode texts and bytes, found by walking it, so that no new place is forgotten."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import muniment

# Calls that turn bytes or text into something else, by their last name. `re.` and `msgspec.` stand for all in them.
_READING = frozenset(
    {
        "parse_json", "parse_qsl", "parse_qs", "unquote", "unquote_to_bytes", "unquote_plus", "urlsplit", "urlparse",
        "b64decode", "urlsafe_b64decode", "a2b_base64", "b32decode",
        "fromisoformat", "strptime", "literal_eval", "split", "splitlines", "ip_address", "ip_network",
        "MultipartParser", "CronSim", "get_unverified_header", "validate",
    }
)  # fmt: skip
_READING_OF = {
    "re": {"compile", "match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer"},
    "json": {"loads", "load", "JSONDecoder", "decode", "format", "Decoder"},
    "msgspec": {"convert"}, "tomllib": {"loads", "load"}, "jwt": {"decode"}, "pickle": {"loads", "load"},
}  # fmt: skip
_NAMES = _READING.union(*_READING_OF.values())
_DECODER_NAMES = ("parse", "decode")
# Folders whose members are rooms, and rooms that count as others.
_FOLDERS = {"protocol", "service", "resources", "running"}
_ROOMS = {"server": "http", "chains": "evm", "operate": "cli"}


def sites() -> set[str]:
    """Each place as `room.name call`; `name` is the function, method or constant of the call."""
    root = Path(muniment.__file__).parent
    return {
        f"{_room(path.relative_to(root))}.{site}"
        for path in sorted(root.rglob("*.py"))
        for site in _sites(ast.parse(path.read_text("utf-8")))
    }


def _room(path: Path) -> str:
    if path.is_relative_to("operate/watch"):
        return "intents"
    room = next(part for part in path.parts if part not in _FOLDERS).removesuffix(".py")
    return _ROOMS.get(room, room)


def _sites(module: ast.Module) -> Iterator[str]:
    pending: list[tuple[ast.AST, tuple[str, ...]]] = [(module, ())]
    while pending:
        node, inside = pending.pop()
        for child in ast.iter_child_nodes(node):
            names = inside
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names = (*inside, child.name)
                if not isinstance(child, ast.ClassDef) and child.name.lstrip("_").split("_")[0] in _DECODER_NAMES:
                    yield f"{'.'.join(names)} itself"
            elif not inside and isinstance(child, ast.Assign | ast.AnnAssign):
                target = child.target if isinstance(child, ast.AnnAssign) else child.targets[0]
                names = (ast.unparse(target),)
            elif isinstance(child, ast.Call) and (call := _reading(child.func)):
                yield f"{'.'.join(inside)} {call}"
            if not isinstance(child, ast.Name | ast.Constant | ast.expr_context):
                pending.append((child, names))


def _reading(function: ast.expr) -> str | None:
    """Name of the call if it decodes something."""
    last = function.attr if isinstance(function, ast.Attribute) else ast.unparse(function).rpartition(".")[2]
    if last not in _NAMES:
        return None
    *owner, last = ast.unparse(function).split(".")
    if last in _READING or last in _READING_OF.get(owner[-1] if owner else "", ()):
        return last
    return None
