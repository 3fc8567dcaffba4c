"""The address of an S3 server in the environment: which forms are taken, and what a wrong one leads to."""

from __future__ import annotations

from pathlib import Path

import pytest

from muniment.protocol.errors import StorageUnavailable
from muniment.service.blocks.s3 import S3BlockStore
from s3_server import environment


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT"])
@pytest.mark.parametrize(
    "value",
    ["", "hidden", "hidden.example:9000", "http://", "http:///hidden", "http://a hidden", "http://[::1", "ftp://hidden",
     "http://hidden:99999", "http://me:hidden@h", "http://h?hidden"],
)  # fmt: skip
def test_an_endpoint_of_another_form_is_refused_and_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=f"^{name} must be https://") as refused:
        S3BlockStore("s3://blocks/x", spools=tmp_path)
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize("host", ["[::1]", "[::1]:9", "store.internal:9000", "127.0.0.1:9/path/", "MINIO_1"])
def test_an_endpoint_may_have_any_host_a_port_and_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}")
    S3BlockStore("s3://blocks/x", spools=tmp_path)


@pytest.mark.parametrize("endpoint", ["http://999.999.999.999", "http://[1:2]"])
def test_a_panic_of_the_library_is_an_outage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    for name, value in (environment(9) | {"AWS_ENDPOINT_URL": endpoint}).items():
        monkeypatch.setenv(name, value)
    store = S3BlockStore("s3://blocks/x", spools=tmp_path)
    for ask in (store.check, lambda: store.get(bytes(32)), lambda: list(store.digests())):
        with pytest.raises(StorageUnavailable, match="no request can be made with the endpoint and the region"):
            ask()
