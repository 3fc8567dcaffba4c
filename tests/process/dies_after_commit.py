"""`muniment` that ends by SIGKILL between a commit and its answer, once the file DIE_WHEN_THERE_IS is there."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from muniment.__main__ import main
from muniment.service.storage.postgres import transaction as postgres_transaction
from muniment.service.storage.sqlite.writer import Writer

_commit = Writer._make_durable
_commit_there = postgres_transaction._make_durable


def _die() -> None:
    if Path(os.environ["DIE_WHEN_THERE_IS"]).exists():
        os.kill(os.getpid(), signal.SIGKILL)


def _commit_and_die(self: Writer) -> None:
    _commit(self)
    _die()


async def _commit_there_and_die(ending: Any) -> Any:
    answer = await _commit_there(ending)
    _die()
    return answer


Writer._make_durable = _commit_and_die
postgres_transaction._make_durable = _commit_there_and_die

if __name__ == "__main__":
    main()
