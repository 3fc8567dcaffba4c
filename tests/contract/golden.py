"""Files that are generated and kept, so that a change to the contract shows in a review. Run to write them anew."""

from __future__ import annotations

import json
from pathlib import Path

from muniment.app import OPERATIONS
from muniment.auth.caller import SECURITY_SCHEMES
from muniment.http.openapi import openapi_document

OPENAPI = Path(__file__).parent / "openapi.json"


def openapi_text() -> str:
    """The OpenAPI document as it is kept; the release's number is left out."""
    document = openapi_document(OPERATIONS, version="golden", about="golden", security=SECURITY_SCHEMES)
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    OPENAPI.write_text(openapi_text(), "utf-8")
