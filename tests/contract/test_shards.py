"""docs/develop/past-one-primary.md has the table of shards that bench/shards.py computes."""

from __future__ import annotations

import subprocess
import sys

import pytest
from golden import ROOT

PAGE = ROOT / "docs" / "develop" / "past-one-primary.md"


@pytest.mark.long
def test_the_table_of_shards_is_that_of_the_operations(postgres_url: str) -> None:
    """The program fails when it lacks a request for an operation."""
    command = [sys.executable, str(ROOT / "bench" / "shards.py"), postgres_url]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    # Where the lines of a paragraph break says nothing.
    assert " ".join(done.stdout.split()) in " ".join(PAGE.read_text("utf-8").split())
