"""Connections that come together are accepted together, however long the turns of the event loop are."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack

from muniment.service.server.run import Accepting

CLIENTS = 600


class Greeting(asyncio.Protocol):
    """Says something, and goes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"here")
        transport.close()


async def test_all_waiting_connections_are_accepted_in_a_few_turns() -> None:
    loop, made = asyncio.get_running_loop(), list[Greeting]()

    def make() -> Greeting:
        made.append(Greeting())
        accepting.plan(make)  # as a connection does when it is made
        return made[-1]

    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=CLIENTS))
        listener.setblocking(False)
        accepting = Accepting(listener, loop)
        address = listener.getsockname()
        clients = [stack.enter_context(socket.create_connection(address)) for _ in range(CLIENTS)]
        accepting.plan(make)
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(made) == CLIENTS
        for client in clients:
            client.setblocking(False)
            assert await asyncio.wait_for(loop.sock_recv(client, 10), 60) == b"here"


async def test_no_waiting_connection_and_a_closed_listener_cause_no_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        accepting = Accepting(listener, asyncio.get_running_loop())
        accepting.plan(Greeting)
        await asyncio.sleep(0)
    accepting.plan(Greeting)
    await asyncio.sleep(0)


async def test_no_more_are_accepted_than_there_is_room_for() -> None:
    loop, made, room = asyncio.get_running_loop(), list[Greeting](), 3

    def make() -> Greeting:
        made.append(Greeting())
        return made[-1]

    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=CLIENTS))
        listener.setblocking(False)
        accepting = Accepting(listener, loop, lambda: room - len(made))
        for _ in range(5):
            stack.enter_context(socket.create_connection(listener.getsockname()))
        for _ in range(3):
            accepting.plan(make)
            await asyncio.sleep(0.01)
        assert len(made) == 3
        room = 5
        accepting.plan(make)
        await asyncio.sleep(0.01)
        assert len(made) == 5
