"""Generated files are up to date; `make golden` writes them."""

from __future__ import annotations

import pytest
from golden import OPENAPI, PARTS, ROOT, openapi_text, with_part
from unasync import SYNC, sync_text

from each_row import each_row


def test_the_openapi_document_is_the_one_that_was_reviewed() -> None:
    assert openapi_text() == OPENAPI.read_text("utf-8"), "it changed: look at the difference after `make golden`"


def test_the_blocking_client_is_generated_from_the_one_for_asyncio() -> None:
    assert sync_text() == SYNC.read_text("utf-8"), "edit muniment/client/aio.py alone, then run `make golden`"


@each_row(("path", "name"), PARTS, ids=[f"{path}:{name}" for path, name in PARTS])
def test_a_generated_part_of_a_page_is_up_to_date(path: str, name: str) -> None:
    text = (ROOT / path).read_text("utf-8")
    assert with_part(text, name, PARTS[path, name]()) == text, "it changed: see the difference after `make golden`"


def test_a_page_without_the_marks_is_noticed() -> None:
    with pytest.raises(ValueError, match="0 times"):
        with_part("no marks", "settings", "")
