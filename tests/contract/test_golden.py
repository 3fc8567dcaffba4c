"""Generated files that are kept are up to date."""

from __future__ import annotations

from golden import OPENAPI, openapi_text


def test_the_openapi_document_is_the_one_that_was_reviewed() -> None:
    assert openapi_text() == OPENAPI.read_text("utf-8"), "it changed: look at the difference after `make golden`"
