"""Files that processes share: room on the disk, files that are shortened while they are used, links."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from muniment.service.running.shared_memory import BYTE, Cells, SharedFile


def test_processes_see_the_numbers_of_each_other(tmp_path: Path) -> None:
    one, other = (Cells(SharedFile(tmp_path / "cells", 64), 8) for _ in range(2))
    one[6] = -(2**63)
    assert (other[6], other[5]) == (-(2**63), 0)
    path = tmp_path / "cells"
    assert (path.stat().st_size, path.stat().st_mode & 0o777) == (64, 0o600)


def test_a_new_file_has_the_bytes_that_were_asked_for_and_an_old_one_keeps_its_own(tmp_path: Path) -> None:
    Cells(SharedFile(tmp_path / "cells", 4, new=lambda count: bytes([7]) * count), of=BYTE)[1] = 9
    cells = Cells(SharedFile(tmp_path / "cells", 4, new=bytes), of=BYTE)
    assert [cells[at] for at in range(4)] == [7, 9, 7, 7]


def test_a_file_has_room_on_the_disk(tmp_path: Path) -> None:
    SharedFile(tmp_path / "cells", 2**20)
    assert (tmp_path / "cells").stat().st_blocks * 512 >= 2**20


def test_a_disk_without_room_is_an_error_at_the_opening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left"):
        SharedFile(tmp_path / "cells", 64)


def test_a_number_that_cannot_be_written_is_lost_without_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    cells = Cells(SharedFile(tmp_path / "cells", 64))
    monkeypatch.setattr(os, "pwrite", full)
    cells[1] = 5
    assert cells[1] == 0


def test_a_shortened_file_reads_as_zeros_and_is_lengthened_by_the_next_write(tmp_path: Path) -> None:
    file = SharedFile(tmp_path / "cells", 2**20)
    cells = Cells(file)
    cells[90_000] = 5
    os.truncate(tmp_path / "cells", 0)
    assert (cells[90_000], file.read(2**19, 4)) == (0, bytes(4))
    cells[90_000] = 6
    assert cells[90_000] == 6


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "cells").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic"):
        SharedFile(tmp_path / "cells", 64)
    assert not (tmp_path / "elsewhere").exists()
