"""Where the spans are sent, and the URLs that they show."""

from __future__ import annotations

from each_row import each_row
from muniment.service.running.tracing import traces_url
from muniment.service.running.tracing.tracer import shown_url


@each_row(
    ("endpoint", "url"),
    [
        ("http://collector:4318", "http://collector:4318/v1/traces"),
        ("http://collector:4318/", "http://collector:4318/v1/traces"),
        ("http://collector:4318?key=1", "http://collector:4318/v1/traces?key=1"),
        ("http://collector:4318/?key=1", "http://collector:4318/v1/traces?key=1"),
        ("http://user:word@[::1]:4318", "http://user:word@[::1]:4318/v1/traces"),
        ("https://collector/own/path", "https://collector/own/path"),
        ("https://collector/own/path?key=1", "https://collector/own/path?key=1"),
    ],
)
def test_an_endpoint_without_a_path_gets_that_of_the_specification(endpoint: str, url: str) -> None:
    assert traces_url(endpoint) == url


@each_row(
    ("host", "port", "url"),
    [
        ("node.example", None, "https://node.example/REDACTED"),
        ("127.0.0.1", 8545, "https://127.0.0.1:8545/REDACTED"),
        ("::1", 8545, "https://[::1]:8545/REDACTED"),
        ("2001:db8::1", None, "https://[2001:db8::1]/REDACTED"),
    ],
)
def test_the_url_of_a_call_names_the_server_alone(host: str, port: int | None, url: str) -> None:
    assert shown_url("https", host, port) == url
