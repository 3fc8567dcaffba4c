"""Whose failure an error of JSON-RPC is: the contract's, which is an answer of the chain, or the node's. Pure.

There is no standard of these errors. The codes and texts are those of geth and its kin (Bor, Arbitrum, Optimism),
Erigon, Nethermind, Besu, Reth, Anvil, Hardhat, Frontier, Lotus, and of the providers before them.
"""

from __future__ import annotations

import re
from typing import Final, Literal

# `contract`: the chain says that the contract failed. `gas`: that it ran out of gas, which is the node's failure where
# the node gives a call less than was asked. `limit`: the node has a quota, which is used up. `node`: all else.
Fault = Literal["contract", "gas", "limit", "node"]

# EIP-1474 has neither: 3 is geth's code of a revert, -32015 that of Parity and Nethermind for the failure of a call.
_EXECUTION_CODES: Final = frozenset({3, -32015})
# JSON-RPC 2.0: "Invalid params".
_INVALID_PARAMS: Final = -32602
# EIP-1474: the limit of requests is exceeded; Base's code; and those that repeat a status of HTTP.
_LIMIT_CODES: Final = frozenset({-32005, -32016, 429, -32029, -32429})
# How much of a text is read. What decides stands at its beginning.
_CHARACTERS_MAX: Final = 600
# The name of a method, whose words say nothing.
_METHOD: Final = re.compile(r"\b(?:eth|net|web3|debug|trace)_[A-Za-z]+")
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_GAS: Final = (
    "outofgas",
    "ranoutofgas",
    "contractcreationcodestorageoutofgas",
    "codestoreoutofgas",
    "memoryoutofgas",
    "syserroutofgas",
    "transactionprocessingcouldnotbecompletedduetoanexceptionoutofgas",
)
_CONTRACT: Final = (
    "executionrevert", "invalidopcode", "opcodenotfound", "invalidfeopcode", "undefinedinstruction", "badinstruction",
    "invalidinstruction", "designatedinvalid", "invalidjump", "badjump", "stackunderflow", "stackoverflow",
    "stacklimitreached", "stackunderrun", "outofstack", "gasuintoverflow", "nonceuintoverflow",
    "returndataoutofbounds", "invalidreturndata", "outofoffset", "writeprotection", "statechangeduringstaticcall",
    "callnotallowedinsidestatic", "mutablecallinstaticcontext", "maxcodesizeexceeded", "maxinitcodesizeexceeded",
    "createcontractsizelimit", "createinitcodesizelimit", "contractcodesizeexceeded", "contractaddresscollision",
    "createcollision", "createcontractstartingwithef", "invalidcodemustnotbegin", "maxcalldepthexceeded", "calltoodeep",
    "callstackdepth", "insufficientbalancefortransfer", "outoffund", "nonceoverflow", "invalidcode", "invalidrange",
    "createcontractlimit", "codeistoolarge", "precompile", "contractrevert",
    "transactionprocessingcouldnotbecompletedduetoanexception",
)  # fmt: skip
# Wherever it stands, what comes after it is the contract's; gateways put numbers of requests and more before it.
_REVERTED_ANYWHERE: Final = re.compile(r"execution[\s_]?reverted\s*(?::|$)", re.IGNORECASE)
# Besu names a halt by these words alone.
_WHOLE: Final = frozenset({
    "invalidoperation", "insufficientstackitems", "toomanystackitems", "illegalstatechange", "notactivated",
})  # fmt: skip
# Words that programs put before what happened. None of them says anything about a node.
_BEFORE: Final = frozenset({
    "a", "an", "by", "call", "code", "contract", "desc", "err", "error", "eth", "evm", "exception", "execution",
    "executing", "exit", "failed", "failure", "fatal", "from", "halt", "halted", "internal", "json", "jsonrpc",
    "message", "msg", "of", "processing", "reason", "request", "response", "result", "returned", "rpc", "runtime",
    "server", "sys", "the", "transaction", "tx", "unknown", "upstream", "virtualmachine", "vm", "was", "while",
    "with",
})  # fmt: skip
_MACHINE: Final = frozenset({"evm", "vm", "exception", "virtualmachine"})
# After a bare "revert" these, or no letter, tell of a contract; other words may tell of a chain that took back blocks.
_REVERTED: Final = re.compile(
    r"revert(?:ed)?(?:[\W_]*$|[\s_]*[^\w\s]|[\s_]+(?:with|without|reason|opcode|at|and|data|message|error|panic|custom|0x))"
)
# A text that says that the node gave up.
_GIVEN_UP: Final = ("timeout", "timedout", "executionaborted", "deadlineexceeded")
# Texts of quotas, by letters only.
_LIMITS: Final = (
    "toomanyrequest", "toomanycall", "requestlimit", "requestslimit", "requestcountexceeded", "requestrateexceeded",
    "capacityexceeded", "creditlimit", "outofcredits", "creditsexceeded", "dailylimit", "monthlylimit", "usagelimit",
    "planlimit", "tierlimit", "throughput", "requestsperminute", "requestsexceeded",
)  # fmt: skip
# What is too large is no quota, though the codes and texts are alike: a smaller request is the remedy.
_SIZES: Final = (
    "results", "blockrange", "range", "blocks", "logs", "responsesize", "toolarge", "toobig", "addresses", "topics",
    "batch", "gas",
)  # fmt: skip
# Of an answer; geth sends the first for each call that is left of a batch.
_ANSWERS: Final = ("responsetoolarge", "responsetoobig", "responsesizetoolarge", "responsesizeexceed")
# These words are of quotas alone, in whatever text they are.
_QUOTAS: Final = ("ratelimit", "computeunit", "quota", "throttl", "persecond", "dailyrequestcount", "monthlycapacity")


def fault_of(code: int, message: str, data: str = "") -> Fault:
    """Whose failure an error is, by its code, its message and its data, where that is a text.

    What a contract says itself stands after the words that tell of a revert, and decides nothing.
    """
    said = _execution_fault(message)
    if code in _EXECUTION_CODES:
        if said is None and any(each in _letters(message) for each in _GIVEN_UP):
            return "node"
        return said or _execution_fault(data) or "contract"
    if said is None and _is_general(message):
        said = _execution_fault(data)
    if said is not None:
        return said
    return "limit" if is_quota(code, f"{message} {data}") else "node"


def is_quota(code: int, text: str) -> bool:
    """Whether a code, of JSON-RPC or HTTP, or a text says that the node answers later, and not for this question."""
    letters = _letters(_METHOD.sub("", text[:_CHARACTERS_MAX]))
    if any(each in letters for each in _QUOTAS) or ("toomanyrequest" in letters and "batch" not in letters):
        return True
    if any(each in letters for each in _SIZES) or any(each in letters for each in _GIVEN_UP):
        return False
    return code in _LIMIT_CODES or any(each in letters for each in _LIMITS)


def is_of_batch(text: str) -> bool:
    """Whether a text tells of a batch, and not of a quota, or of what it is answered with."""
    letters = _letters(text)
    return "batch" in letters and not any(each in letters for each in (*_QUOTAS, *_ANSWERS))


def is_of_answer(text: str) -> bool:
    """Whether a text says that an answer would be too large."""
    letters = _letters(text)
    return any(each in letters for each in _ANSWERS)


def lacks_block(message: str) -> bool:
    """Whether an error says that a node lacks the block that it was asked for, where others answer null."""
    letters = _letters(message)
    return any(each in letters for each in ("headernotfound", "blocknotfound", "unknownblock"))


def takes_no_hash(code: int, message: str) -> bool:
    """Whether an error says that a node takes no object in place of a block's number (EIP-1898)."""
    letters = _letters(message)
    is_of_block = any(each in letters for each in ("notfound", "unknownblock", "state", "pruned", "header"))
    return not is_of_block and (
        code == _INVALID_PARAMS or any(each in letters for each in ("unmarshal", "deserialize", "invalidargument"))
    )  # fmt: skip


def _execution_fault(text: str) -> Literal["contract", "gas"] | None:
    """What a text that begins with the failure of a call says; words like "Error: VM Exception" may come before."""
    text = text[:_CHARACTERS_MAX]
    if _REVERTED_ANYWHERE.search(text):
        return "contract"
    places = list(_WORD.finditer(text))
    words = [place[0].lower() for place in places]
    is_of_machine = False
    for at, word in enumerate(words):
        rest = "".join(words[at:])
        is_of_node = rest.startswith("stackoverflow") and words[:at] == ["internal", "error"]
        if is_of_node or rest.startswith(("reverttosnapshot", "revertedtosnapshot")):
            return None
        if rest.startswith(_GAS):
            return "gas"
        if rest.startswith(_CONTRACT) or (rest in _WHOLE and not _METHOD.search(text)):
            return "contract"
        if rest.startswith("revert") and (
            (is_of_machine and word in {"revert", "reverted"}) or _REVERTED.match(text[places[at].start() :].lower())
        ):
            return "contract"
        if word not in _BEFORE:
            return None
        is_of_machine = is_of_machine or word in _MACHINE
    return None


def _is_general(message: str) -> bool:
    """Whether a message says only that a call failed, so that its data say why."""
    return all(place[0].lower() in _BEFORE for place in _WORD.finditer(message[:_CHARACTERS_MAX]))


def _letters(text: str) -> str:
    return re.sub(r"[^a-z]", "", text[:_CHARACTERS_MAX].lower())
