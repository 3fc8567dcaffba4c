"""Files that are on the disk when a call returns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muniment.durable import whole_file

if TYPE_CHECKING:
    from pathlib import Path


def test_an_unfinished_write_does_not_stop_another_of_the_same_process_id(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    with whole_file(path) as unfinished:
        unfinished.write(b"first")
        with whole_file(path) as file:
            file.write(b"second")
        assert path.read_bytes() == b"second"
    assert path.read_bytes() == b"first"
    assert [each.name for each in tmp_path.iterdir()] == ["list.json"]
