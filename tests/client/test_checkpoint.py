"""The file with a cursor, damaged in every way that a disk or a person can damage it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from muniment.client import Checkpoint


@pytest.mark.parametrize("content", ["", "[1]", "{", '"x"', '{"cursor": "c"}', '{"cursor": 1, "about": {}}'])
def test_a_file_that_is_no_checkpoint_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "place").write_text(content)
    with pytest.raises(ValueError, match="place is not a position file"):
        Checkpoint(tmp_path / "place").read()


def test_a_file_of_many_brackets_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "place").write_text("[" * 60_000)
    # In a process of its own: another library of the tests raises the limit of recursion in this one.
    program = "import sys; from muniment.client import Checkpoint; Checkpoint(sys.argv[1]).read()"
    done = subprocess.run([sys.executable, "-c", program, tmp_path / "place"], capture_output=True, check=False)
    assert b"ValueError" in done.stderr
    assert b"place is not a position file" in done.stderr
