"""Generated files in the repository, so that a review shows changes of the contract. Run it to update them."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

from bill_of_materials import licences
from unasync import SYNC, sync_text

from muniment.service.app import OPERATIONS
from muniment.service.auth.caller import SECURITY_SCHEMES
from muniment.service.http.openapi import openapi_document
from muniment.service.http.problems import all_refusals, status_of
from muniment.service.running.settings import Settings

ROOT = Path(__file__).parents[2]
OPENAPI = Path(__file__).parent / "openapi.json"


def openapi_text() -> str:
    """The OpenAPI document of the repository, without the version of the release."""
    document = openapi_document(OPERATIONS, version="golden", about="golden", security=SECURITY_SCHEMES)
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def settings_table() -> str:
    """Table of all settings, in the order of `muniment config`."""
    shown = Settings().shown()
    rows = [(f"`{each.name}`", _code(shown[each.name]), each.metadata["about"]) for each in fields(Settings)]
    return _table(("Setting", "Default", "What it does"), rows)


def errors_table() -> str:
    """Table of all error codes, by status."""
    refusals = sorted(all_refusals(), key=lambda refusal: (status_of(refusal), refusal.code))
    rows = [
        (str(status_of(each)), f"`{each.code}`", " ".join((inspect.getdoc(each) or "").split())) for each in refusals
    ]
    return _table(("Status", "Code", "Meaning"), rows)


def licences_table() -> str:
    """Table of the packages that the service needs, with their licences."""
    return _table(("Package", "Licence"), [(f"`{name}`", licence) for name, licence in licences().items()])


def _code(text: str) -> str:
    return f"`{text}`" if text else "(empty)"


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines) + "\n"


# A generated part stands between `<!-- name -->` and `<!-- /name -->`.
PARTS: dict[tuple[str, str], Callable[[], str]] = {
    ("docs/reference/settings.md", "settings"): settings_table,
    ("docs/reference/errors.md", "codes"): errors_table,
    ("docs/reference/dependencies.md", "licences"): licences_table,
}


def with_part(text: str, name: str, part: str) -> str:
    """Replace the text between the marks of `name` by `part`. Raises `ValueError` without marks."""
    marks = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    replaced, count = marks.subn(lambda found: found[1] + part + found[2], text)
    if count != 1:
        raise ValueError(f"the marks of {name} stand in the text {count} times")
    return replaced


def main() -> None:
    """Update all generated files."""
    OPENAPI.write_text(openapi_text(), "utf-8")
    SYNC.write_text(sync_text(), "utf-8")
    for (path, name), make in PARTS.items():
        page = ROOT / path
        page.write_text(with_part(page.read_text("utf-8"), name, make()), "utf-8")


if __name__ == "__main__":
    main()
