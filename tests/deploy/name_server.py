"""A name server for one program, which finds it in a resolv.conf of its own (unshare(1))."""

from __future__ import annotations

import socketserver
import struct
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from pathlib import Path
from threading import Thread
from typing import Final

_ADDRESS: Final = "127.0.0.53"
_A: Final = 1
_RUN: Final = 'mount --bind "$0" /etc/resolv.conf && exec "$@"'


@dataclass
class Names:
    """The addresses of each name, which a test may change, and the words before a program that asks for them."""

    prefix: list[str | Path]
    addresses: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def answer(self, query: bytes) -> bytes:
        """Every address of the name that is asked for, and none of another kind (RFC 1035 section 4)."""
        labels, at = list[str](), 12
        while length := query[at]:
            labels.append(query[at + 1 : at + 1 + length].decode("ascii"))
            at += 1 + length
        (kind,) = struct.unpack_from("!H", query, at + 1)
        question = query[12 : at + 5]
        found = self.addresses.get(".".join(labels).lower(), [])
        records = [
            struct.pack("!HHHLH", 0xC00C, _A, 1, 1, 4) + IPv4Address(each).packed for each in found if kind == _A
        ]
        # An authoritative answer; a name without an address does not exist.
        flags = 0x8580 if found else 0x8583
        return query[:2] + struct.pack("!HHHHH", flags, 1, len(records), 0, 0) + question + b"".join(records)


@contextmanager
def name_server(home: Path, name: str, addresses: Sequence[str]) -> Generator[Names]:
    """Answer on port 53 of an address of this machine, which only root may."""
    (home / "resolv.conf").write_text(f"nameserver {_ADDRESS}\n")
    names = Names(["unshare", "--mount", "sh", "-c", _RUN, home / "resolv.conf"], {name: [*addresses]})

    class Answering(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            query, connection = self.request
            connection.sendto(names.answer(query), self.client_address)

    with socketserver.ThreadingUDPServer((_ADDRESS, 53), Answering) as server:
        thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield names
        finally:
            server.shutdown()
            thread.join()
