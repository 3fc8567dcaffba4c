"""Texts of ERC-4361: what the ABNF takes, what it does not, and what is written is read again."""

from __future__ import annotations

from hypothesis import given, strategies as st

from each_row import each_row
from muniment.protocol.evm.sign_in import domain_of, read_sign_in, write_sign_in

ADDRESS = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
LINES = {
    "origin": "example.org wants you to sign in with your Ethereum account:",
    "address": ADDRESS,
    "before": "",
    "statement": "I accept: https://example.org/terms?a=b#c [or not], (1+1)*2=4;",
    "after": "",
    "uri": "URI: https://example.org/login",
    "version": "Version: 1",
    "chain": "Chain ID: 1",
    "nonce": "Nonce: 32891756",
    "issued": "Issued At: 2021-09-30T16:25:24Z",
    "expires": "Expiration Time: 2021-09-30T16:25:25.5Z",
    "not before": "Not Before: 2021-09-30T18:25:24+02:00",
    "request": "Request ID: a-1%20",
    "resources": "Resources:",
    "resource": "- ipfs://bafybeiemxf5abjwjbikoz4mc3a3dla6ual3jsgpdr4cjr3oz3evfyavhwq/",
}
OPTIONAL = ("statement", "expires", "not before", "request", "resource")


def text(**changed: str | None) -> str:
    """The text with other lines; None leaves one out."""
    return "\n".join(line for line in {**LINES, **changed}.values() if line is not None)


def is_read(given: str) -> bool:
    try:
        read_sign_in(given)
    except ValueError:
        return False
    return True


def test_a_text_is_read() -> None:
    said = read_sign_in(text())
    assert (said.scheme, said.domain, said.address) == (None, "example.org", ADDRESS)
    assert (said.uri, said.nonce) == ("https://example.org/login", "32891756")
    assert (said.issued_at_ms, said.expires_at_ms, said.not_before_ms) == (
        1_633_019_124_000, 1_633_019_125_500, 1_633_019_124_000,
    )  # fmt: skip


@each_row("name", LINES)
def test_only_some_lines_may_be_missing(name: str) -> None:
    assert is_read(text(**{name: None})) == (name in OPTIONAL)


def test_a_text_without_a_statement_has_two_empty_lines() -> None:
    assert is_read(text(statement=None))
    assert is_read(text(statement=""))  # an empty one
    assert not is_read(text(statement=None, after=None))


@each_row("name", LINES)
def test_lines_have_one_order_and_come_once(name: str) -> None:
    if name in {"before", "after", "statement"}:
        return
    assert is_read(text(**{name: f"{LINES[name]}\n{LINES[name]}"})) == (name == "resource")
    names = list(LINES)
    at = names.index(name)
    if at + 1 < len(names):
        swapped = {name: LINES[names[at + 1]], names[at + 1]: LINES[name]}
        assert not is_read(text(**swapped))


TAKEN = {
    "origin": [
        "https://example.org", "a+b.c-1://x", "me@example.org", "127.0.0.1:8080", "[::1]:443", "[v1.a:b]",
        "a%20b",
    ],
    "uri": ["a:", "mailto:a@b", "https://[::cafe]", "h://a:@b:/c//d?e?f=/#g?", "urn:a:b", "file:///a", "a:/b/%2F"],
    "chain": ["0", "8453"],
    "nonce": ["a" * 500],
    "issued": [
        "2021-09-30t16:25:24z", "2021-09-30T16:25:24.123456789-12:00", "2016-12-31T23:59:60Z", "0001-01-01T00:00:00Z",
        "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "9999-12-31T23:59:60Z",
    ],
    "request": ["", "a:@!$&'()*+,;=-._~"],
    "resource": ["a:b\n- c:d"],
}  # fmt: skip
REFUSED = {
    "origin": [
        "", "#a", "a b", "1a://b", "://b", "a@b@c", "a:b", "[::1", "::1", "ex\u00e4mple.org", "a/b", ":80", "a%2",
        "[1]",
    ],
    "uri": [
        "", "a", ":a", "1a:b", "a:b c", "a:%", "a:%2g", "a://b c/", "a://[b]", "a:b#c#d", "a:b[", "a:\u00e4", "a:b\r",
    ],
    "version": ["2", "01", "1 ", ""],
    "chain": ["", "?", "0x1", "-1", "\u0661"],
    "nonce": ["1234567", "12345678-", "1234 5678", "\u0661" * 8],
    "issued": [
        "", "2021-09-30", "2021-09-31T16:25:24Z", "2021-13-01T16:25:24Z", "2021-09-30T24:25:24Z",
        "2021-09-30T16:25:61Z", "2021-09-30 16:25:24Z", "2021-09-30T16:25:24", "2021-09-30T16:25:24.Z",
        "2021-09-30T16:25:24+02", "0000-01-01T00:00:00Z", "2021-09-30T16:25:24+24:00",
        "Wed Oct 05 2011 16:48:00 GMT+0200", "\u0662021-09-30T16:25:24Z",
    ],
    "expires": ["", "never"],
    "not before": ["", "at once"],
    "request": ["a b", "a/b", "%"],
    "resource": ["a", "a:b - c:d", ":a"],
}  # fmt: skip


def with_value(name: str, value: str) -> str:
    line = LINES[name]
    if name == "origin":
        return text(origin=line.replace("example.org", value))
    head = "- " if name == "resource" else line.partition(": ")[0] + ": "
    return text(**{name: head + value})


@each_row(("name", "value"), [(name, value) for name, values in TAKEN.items() for value in values])
def test_a_value_of_the_grammar_is_taken(name: str, value: str) -> None:
    assert is_read(with_value(name, value))


@each_row(("name", "value"), [(name, value) for name, values in REFUSED.items() for value in values])
def test_another_value_is_refused(name: str, value: str) -> None:
    assert not is_read(with_value(name, value))


@each_row("statement", ["100 %", "a\tb", "\u00e4", "a\rb", '"a"', "<a>", "a\\b"])
def test_a_statement_has_certain_characters(statement: str) -> None:
    assert not is_read(text(statement=statement))


@each_row("address", ["", "0x", ADDRESS[:-1], ADDRESS + "0", ADDRESS[2:], "0X" + ADDRESS[2:]])
def test_an_address_has_40_digits(address: str) -> None:
    assert not is_read(text(address=address))


@given(st.text(max_size=300))
def test_any_other_text_is_refused_and_nothing_breaks(given: str) -> None:
    assert not is_read(given)


@each_row(
    ("url", "domain"),
    [
        ("https://Example.org", "example.org"), ("https://example.org:443/a", "example.org"),
        ("http://example.org:80", "example.org"), ("http://example.org:443", "example.org:443"),
        ("https://example.org:8443/a?b", "example.org:8443"), ("", ""),
        ("http://[2001:DB8::1]:8787", "[2001:db8::1]:8787"),
    ],
)  # fmt: skip
def test_the_domain_of_a_url_is_as_browsers_write_it(url: str, domain: str) -> None:
    assert domain_of(url) == domain


@each_row(
    ("url", "scheme"),
    [("https://example.org", None), ("http://localhost:8787", "http"), ("https://[::1]:8443/a", None)],
)
def test_what_is_written_is_read_again(url: str, scheme: str | None) -> None:
    said = read_sign_in(write_sign_in(url, address=ADDRESS, nonce="2a" * 32, issued_at="2026-11-20T19:48:00.123Z"))
    assert (said.scheme, said.domain, said.uri, said.address) == (scheme, domain_of(url), url, ADDRESS)
    assert (said.nonce, said.issued_at_ms) == ("2a" * 32, 1_795_204_080_123)
