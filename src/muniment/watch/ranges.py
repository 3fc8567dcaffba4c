"""One range of blocks read from a node: the logs of settlers in it, fewer blocks when the node refuses so many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from muniment.chains.rpc import Call, Failed
from muniment.outgoing import Unreachable
from muniment.watch.events import TOPICS
from muniment.watch.node_answers import may_be_size

if TYPE_CHECKING:
    from muniment.evm.address import Address
    from muniment.watch.nodes import Node, Nodes


async def read_logs(nodes: Nodes, node: Node, settlers: Sequence[Address], first: int, last: int) -> list[Any] | None:
    """What `eth_getLogs` answers for a range; None when the range is too large for the node. Raises `Unreachable`."""
    asked = {
        "address": list(settlers), "fromBlock": hex(first), "toBlock": hex(last), "topics": [list(TOPICS)],
    }  # fmt: skip
    blocks = last - first + 1
    try:
        (answer,) = await nodes.ask(node, [Call("eth_getLogs", (asked,))])
    except Unreachable as error:
        if not may_be_size(error.reason):
            raise
        smaller = node.span.refused(blocks)
        if not smaller or error.reason.startswith("http-5"):
            raise
        return None
    if isinstance(answer, Failed):
        if node.span.refused(blocks):
            return None
        raise Unreachable("refused", answer.message)
    if not isinstance(answer, list):
        raise Unreachable("garbage", "no list of logs")
    if blocks >= node.span.blocks:
        node.span.fitted()
    return cast("list[Any]", answer)
