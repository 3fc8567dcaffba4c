"""The QR codes of the console, compared with those of another implementation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from node_program import NODE
from proving import prove

VECTORS = Path(__file__).parents[1] / "vectors" / "qr" / "qrcode.json"
pytestmark = [pytest.mark.node, pytest.mark.skipif(NODE is None, reason="Node.js is not installed")]


def test_codes_are_those_of_another_implementation() -> None:
    codes: dict[str, str] = json.loads(VECTORS.read_text("utf-8"))["codes"]
    assert len(codes) == 6
    for text, shown in zip(codes, prove(*(("qr", each) for each in codes)), strict=True):
        assert shown == codes[text], len(text)


def test_a_text_that_no_code_here_has_room_for_has_none() -> None:
    assert prove(("qr", "x" * 858), ("qr", "x" * 859))[1] is None
