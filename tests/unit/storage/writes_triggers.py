"""A process that writes rows as fast as it can, in transactions of different lengths: `URL FIRST COUNT`."""

from __future__ import annotations

import asyncio
import sys

from muniment.service.storage.database import Transaction
from muniment.service.storage.postgres.engine import PostgresDatabase

INSERT = """INSERT INTO triggers (sig, signer, digest, function_digest, protocol, end_date_ms, created_at_ms, record)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"""
SLEEP = "SELECT pg_sleep(random() * 0.01), ?::bigint"


async def write(database: PostgresDatabase, number: int) -> None:
    async def work(transaction: Transaction) -> None:
        if number % 3 == 0:  # its transaction has a number before this row is there
            await transaction.execute("UPDATE users SET name = ''")
            await transaction.fetch(SLEEP, (number,))
        values = (number.to_bytes(65), bytes(20), number.to_bytes(32), bytes(32), "Mimic", 0, 1, f"{number}")
        assert await transaction.execute(INSERT, values) == 1
        if number % 5 == 0:
            await transaction.fetch(SLEEP, (number,))

    await database.write(work)


async def main(url: str, first: int, count: int) -> None:
    database = PostgresDatabase(url)
    writers = 8

    async def write_some(start: int) -> None:
        for number in range(first + start, first + count, writers):
            await write(database, number)

    await asyncio.gather(*(write_some(start) for start in range(writers)))
    await database.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
