"""The sample functions, compiled by the AssemblyScript compiler of npm."""

from __future__ import annotations

from pathlib import Path

import pytest
from javascript import NODE_TESTS

from guest_functions import KEPT, SOURCES, compiled

_REASON = "the compiler is not there: run tests/e2e/install.py tests/e2e/functions"
pytestmark = [*NODE_TESTS, pytest.mark.skipif(not (SOURCES / "node_modules").is_dir(), reason=_REASON)]


@pytest.mark.long
def test_every_function_compiles_to_the_file_that_is_kept(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for path, wasm in compiled(tmp_path, KEPT).items():
        with subtests.test(path.name):
            assert path.read_bytes() == wasm
