"""An S3 server: SeaweedFS, one process with its files in a directory."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import obstore
import pytest
from obstore.store import S3Store

from muniment.service.blocks import s3
from muniment.service.blocks.s3 import S3BlockStore
from ports import free_port

KEY, SECRET = "test-key", "test-secret-of-the-s3-server"


def environment(port: int, *, secret: str = SECRET) -> dict[str, str]:
    """Environment for the server at `port` of this machine."""
    return {
        "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": secret, "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
    }  # fmt: skip


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process waits a minute for an S3 server on a busy machine, unless it is told how long."""
    monkeypatch.setattr(s3, "CHECK_SECONDS_MAX", 60.0)
    monkeypatch.setattr(S3BlockStore.__init__, "__kwdefaults__", {"request_seconds_max": 60.0})


@contextmanager
def s3_server(directory: Path) -> Generator[tuple[int, subprocess.Popen[bytes]]]:
    """Port and process of a server with the bucket `blocks`; it ends with the block."""
    config = directory / "s3.json"
    credentials = [{"accessKey": KEY, "secretKey": SECRET}]
    config.write_text(json.dumps({"identities": [
        {"name": "tests", "credentials": credentials, "actions": ["Admin", "Read", "List", "Write"]},
    ]}))  # fmt: skip
    names = ("master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc",
             "s3.port", "s3.port.grpc")  # fmt: skip
    ports = {name: free_port() for name in names}
    command = [
        str(Path(sys.executable).with_name("weed")), f"-logdir={directory}",
        "server", "-s3", f"-s3.config={config}", f"-dir={directory}",
        "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-volume.max=20", "-master.volumeSizeLimitMB=64",
        # Its further servers have fixed ports, so a second process on this machine would end at once.
        "-s3.port.iceberg=0", "-s3.port.lance=0", "-master.telemetry=false",
        *(f"-{name}={port}" for name, port in ports.items()),
    ]  # fmt: skip
    with (directory / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            _make_bucket(process, ports["s3.port"], ports["filer.port"])
            yield ports["s3.port"], process
        finally:
            process.kill()


def _make_bucket(process: subprocess.Popen[bytes], port: int, filer: int) -> None:
    """Wait until the server takes an object."""
    until = time.monotonic() + 120
    while time.monotonic() < until and process.poll() is None:
        try:
            httpx2.post(f"http://127.0.0.1:{filer}/buckets/blocks/")  # 409 when an earlier turn made it
            store = S3Store("blocks", endpoint=f"http://127.0.0.1:{port}", access_key_id=KEY, secret_access_key=SECRET,
                            region="us-east-1", client_options={"allow_http": True},
                            retry_config={"max_retries": 0})  # fmt: skip
            obstore.put(store, "started", b"x", use_multipart=False)
        except (httpx2.HTTPError, obstore.exceptions.BaseError, OSError):
            time.sleep(0.2)
        else:
            return
    raise TimeoutError(f"the S3 server did not start, or ended with {process.poll()}")
