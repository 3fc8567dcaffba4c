"""The sample functions, compiled by the AssemblyScript compiler of npm."""

from __future__ import annotations

import pytest
from javascript import NODE_TESTS

from guest_functions import KEPT, SOURCES, Generation, compiled, kept

_REASON = "the compiler is not there: run tests/e2e/install.py tests/e2e/functions"
pytestmark = [*NODE_TESTS, pytest.mark.skipif(not (SOURCES / "node_modules").is_dir(), reason=_REASON)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, Generation], bytes]:
    return compiled(tmp_path_factory.mktemp("functions"))


@pytest.mark.parametrize(("name", "generation"), KEPT)
def test_a_sample_function_compiles_to_the_file_that_is_kept(
    made: dict[tuple[str, Generation], bytes], name: str, generation: Generation
) -> None:
    assert made[name, generation] == kept(name, generation)
