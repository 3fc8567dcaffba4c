"""Errors of JSON-RPC as nodes and providers send them, and whose failure each is."""

from __future__ import annotations

import pytest

from each_row import each_row
from muniment.chains.sentences import SENTENCE_MAX, sentence_of
from muniment.chains.verdicts import Fault, fault_of, is_of_batch

# Code, message, and data where they are a text.
Error = tuple[int, str, str]
# The chain says that the contract failed.
CONTRACT: list[Error] = [
    (-32000, "server returned an error response: error code 3: execution reverted", ""),
    (-32000, '{"error":{"code":3,"message":"execution reverted"}}', ""),
    (3, "execution reverted: too early", "0x08c379a0"),
    (3, "execution reverted: rate limit", ""),
    (-32000, "execution reverted: 429 Too Many Requests", ""),
    (-32000, "execution reverted: timeout", ""),
    (-32015, "VM execution error.", "Reverted 0x08c379a0"),
    (-32015, "VM execution error.", "Bad instruction fe"),
    (-32015, "VM execution error: transaction reverted", ""),
    (-32603, "Error: VM Exception while processing transaction: reverted with reason string 'rate limit'", ""),
    (-32603, "VM Exception while processing transaction: revert SafeMath: subtraction overflow", ""),
    (-32000, "VM Exception while processing transaction: invalid opcode", ""),
    (-32603, "Error: Transaction reverted: function selector was not recognized and there's no fallback function", ""),
    (-32603, "Error: Transaction reverted without a reason string", ""),
    (-32603, "Transaction reverted and Hardhat couldn't infer the reason.", ""),
    (-32003, "EVM error InvalidFEOpcode", ""),
    (-32003, "EVM error InvalidJump", ""),
    (-32003, "EVM error StackUnderflow", ""),
    (-32003, "EVM error: OpcodeNotFound", ""),
    (-32000, "stack underflow (0 <=> 2)", ""),
    (-32000, "stack limit reached 1024 (1023)", ""),
    (-32000, "invalid jump destination", ""),
    (-32000, "INVALID_JUMP_DESTINATION", ""),
    (-32000, "Invalid Opcode: 0xfe", ""),
    (-32000, "gas uint64 overflow", ""),
    (-32000, "return data out of bounds", ""),
    (-32000, "write protection", ""),
    (-32000, "max code size exceeded", ""),
    (-32000, "err: max initcode size exceeded: code size 60000, limit 49152 (supplied gas 25000000)", ""),
    (-32000, "contract address collision", ""),
    (-32000, "max call depth exceeded", ""),
    (-32000, "insufficient balance for transfer", ""),
    (-32000, "evm: execution reverted", ""),
    (-32000, "rpc error: code = Unknown desc = execution reverted: nope", ""),
    (-32000, "REVERT opcode executed", ""),
    (-32000, "Reverted 0x", ""),
    (-32000, "revert", ""),
    (-32000, "Reverted", ""),
    (-32000, "revert: too early", ""),
    (-32000, "ExecutionReverted", ""),
    (-32000, "executionreverted", ""),
    (-32000, "EXECUTION_REVERTED", ""),
    (-32000, "Execution reverted (too early)", ""),
    (1, "message execution failed: exit 33, revert reason: 0x08c379a0, vm error: contract reverted at 75", ""),
    (1, "message execution failed (exit=[33], revert reason=[Error(x)], vm error=[...])", ""),
    (-32000, "Transaction processing could not be completed due to an exception: Invalid opcode: 0x5f", ""),
    (-32603, "evm error: InvalidJump", ""),
    (-32603, "internal error", "execution reverted: x"),
    (3, "[Request ID: 8035f2dc-5ba2-48ed-ba74-ee84f9016619] execution reverted: timeout", ""),
    (-32008, "[Request ID: 8035f2dc-5ba2-48ed-ba74-ee84f9016619] execution reverted: rate limit exceeded", ""),
    (-32008, "[Request ID: 8035f2dc-5ba2-48ed-ba74-ee84f9016619] execution reverted: maximum 1 call in a batch", ""),
    (-32000, "failed to execute the unsigned transaction: execution reverted", ""),
    (-32603, "evm error: InvalidCode(Opcode(95))", ""),
    (-32603, "evm error: InvalidRange", ""),
    (-32603, "evm error: CreateContractLimit", ""),
    (-32000, "EVM error: OutOfFunds", ""),
    (-32000, "Code is too large", ""),
    (-32003, "EVM error NotActivated", ""),
    (-32603, "internal error: EVM error: StackOverflow", ""),
]
# The chain says that the contract ran out of gas.
GAS: list[Error] = [
    (-32015, "VM execution error.", "OutOfGas"),
    (-32000, "VM Exception while processing transaction: out of gas", ""),
    (-32603, "Error: Transaction ran out of gas", ""),
    (-32003, "EVM error OutOfGas", ""),
    (-32003, "EVM error: OutOfGas(Basic)", ""),
    (-32000, "out of gas: gas required exceeds: 25000000", ""),
    (-32000, "err: out of gas (supplied gas 30000000)", ""),
    (-32000, "rpc error: code = Internal desc = out of gas", ""),
    (1, "message execution failed: exit SysErrOutOfGas(7)", ""),
    (-32603, "evm error: OutOfGas", ""),
    (-32000, "Transaction processing could not be completed due to an exception (Out of gas)", ""),
]
# A quota is used up.
LIMIT: list[Error] = [
    (-32005, "Too Many Requests, please wait 23s and retry. RPC method: eth_getLogs.", ""),
    (-32000, "Too many requests for eth_getLogs", ""),
    (-32005, "eth_getBlockByNumber: limit exceeded", ""),
    (-32005, "daily request count exceeded, request rate limited", ""),
    (-32005, "limit exceeded", ""),
    (429, "Your app has exceeded its compute units per second capacity.", ""),
    (-32016, "over rate limit", ""),
    (
        -32000,
        '429 Too Many Requests: {"jsonrpc":"2.0","error":{"code":-32016,"message":"over rate limit"},"id":2239375}',
        "",
    ),
    (-32005, "Too Many Requests, IP: ::ffff:127.0.0.1, please wait 23s and retry. RPC method: web3_clientVersion.", ""),
    (-32005, "project ID request rate exceeded", ""),
    (-32000, "exceeded project rate limit", ""),
    (-32007, "50/second request limit reached - reduce calls per second or upgrade your account at quicknode.com", ""),
    (-32090, "Too many requests, reason: call rate limit exhausted, retry in 10s", ""),
    (-32097, "rate limit exceeded", ""),
    (-32003, "daily request limit reached - upgrade your account at quicknode.com", ""),
    (35, "you have exceeded the quota", ""),
    (-32029, "Monthly capacity limit exceeded.", ""),
    (-32600, "Rate limited", ""),
]
# All else is the node's failure, however near its words come.
NODE: list[Error] = [
    (-32005, "query returned more than 10000 results. Try with this block range [0x1, 0x2].", ""),
    (-32005, "logs matched by query exceeds limit of 10000", ""),
    (-32005, "block range too large", ""),
    (-32600, "Batch of more than 3 requests are not allowed on free tier", ""),
    (-32600, 'Too many ["eth_getLogs"] methods in the batch', ""),
    (-32600, "maximum 10 calls in 1 batch", ""),
    (-32000, "header not found", ""),
    (-32000, "missing trie node 00deadbeef (path )", ""),
    (-32603, "Internal error", ""),
    (-32603, "internal error", ""),
    (-32601, "the method eth_call does not exist/is not available", ""),
    (-32000, "execution aborted (timeout = 5s)", ""),
    (-32000, "execution timeout", ""),
    (-32000, "execution timed out", ""),
    (-32000, "could not revert to snapshot", ""),
    (-32000, "block reverted by reorg", ""),
    (-32000, "transaction reverted by reorg", ""),
    (-32000, "state reverted", ""),
    (-32000, "irreverted", ""),
    (-32000, "chain was reverted to block 5", ""),
    (-32000, "revertible state not found", ""),
    (-32000, "gas limit exceeds cap", ""),
    (-32000, "intrinsic gas too low", ""),
    (-32000, "err: insufficient funds for gas * price + value: address 0x0 have 0 want 5 (supplied gas 30000000)", ""),
    (-32002, "resource unavailable", ""),
    (-32001, "Unknown block", ""),
    (-32000, "Historical state not available in path scheme yet", ""),
    (-32000, "failed to get account: database error: out of gas", ""),
    (-32000, "EVM error; database error: failed to get account for 0x: operation timed out", ""),
    (-32000, "no response from upstream: execution reverted cache expired", ""),
    (0, "", ""),
    (0, "None", ""),
    (-32016, "Timeout", ""),
    (-32000, "project archive access requires a plan", ""),
    (-32603, "internal error: stack overflow", ""),
    (-32000, "VM execution error: reverted to snapshot", ""),
    (-32000, "eth_call not activated", ""),
    (-32000, "eth_call not activated for your plan", ""),
]
FAULTS: list[tuple[Fault, list[Error]]] = [
    ("contract", CONTRACT), ("gas", GAS), ("limit", LIMIT), ("node", NODE),
]  # fmt: skip


@each_row(("fault", "error"), [(fault, error) for fault, errors in FAULTS for error in errors])
def test_whose_failure_an_error_is(fault: Fault, error: Error) -> None:
    assert fault_of(*error) == fault


@each_row("error", [*CONTRACT, *GAS])
def test_case_and_signs_between_words_do_not_matter(error: Error) -> None:
    code, message, data = error
    known = fault_of(*error)
    for text in (message.upper(), message.lower(), message.replace(" ", "_"), f"  {message}\n"):
        assert fault_of(code, text, data) == known


@each_row("error", NODE)
def test_what_a_contract_says_after_its_revert_decides_nothing(error: Error) -> None:
    assert fault_of(-32000, f"execution reverted: {error[1]}") == "contract"


@pytest.mark.parametrize("text", ["maximum 10 calls in 1 batch", "Batch of more than 3 requests are not allowed"])
def test_a_refused_batch_is_known_by_its_word(text: str) -> None:
    assert is_of_batch(text)
    assert not is_of_batch(text.replace("batch", "bunch").replace("Batch", "Bunch"))


def test_a_quota_of_batches_is_a_quota() -> None:
    assert not is_of_batch("rate limit of batch requests exceeded")


KEY = "Zx8-Secret_0123456789"


@each_row(
    ("url", "text"),
    [
        (f"https://eth.example.com/v2/{KEY}", f"Invalid key {KEY}"),
        (f"https://eth.example.com/v2/{KEY}", f"no route to https://eth.example.com/v2/{KEY}, sorry"),
        (f"https://eth.example.com/v2/{KEY}", f"POST https:\\/\\/eth.example.com\\/v2\\/{KEY}: 403"),
        (f"https://eth.example.com/v2/{KEY}", f"key {KEY[:14]}… is not allowed"),
        (f"https://eth.example.com/v2/{KEY}", f"KEY {KEY.upper()} IS NOT ALLOWED"),
        (f"https://eth.example.com/rpc?apikey={KEY}&x=1", f"apikey={KEY}: quota"),
        (f"https://user:{KEY}@eth.example.com/", f"bad password {KEY} of user"),
        ("https://eth.example.com/a%2Fb%20Zx8-Secret_0123456789", f"a/b {KEY}: unknown"),
        (f"https://eth.example.com/{KEY}", f"{'x' * 190} {KEY}"),
        ("https://us:pw-of-Zx8@eth.example.com/", "Basic dXM6cHctb2YtWng4 is refused"),
    ],
)  # fmt: skip
def test_a_sentence_has_no_key(url: str, text: str) -> None:
    sentence = sentence_of(text, url).lower()
    for part in (KEY.lower(), KEY[:14].lower(), "secret", "dxm6chctb2ytwng4", "example.com"):
        assert part not in sentence


def test_a_sentence_is_short_and_visible() -> None:
    assert sentence_of("header\nnot  found\u202e", "http://node") == "header not found\\u202e"
    assert len(sentence_of("word " * 1_000, "http://node")) <= SENTENCE_MAX
