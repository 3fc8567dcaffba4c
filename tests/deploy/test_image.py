"""The Dockerfile makes an image whose container is healthy, serves as nobody, and stops when it is asked to."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from container import Container
from debian import SHARED, make, need_root
from programs import DEPLOY, ROOT, run

USER = 65532
BUILDAH = Path("/usr/bin/buildah")


class Image:
    """The built image: its root file system, and its configuration."""

    def __init__(self, folder: Path) -> None:
        self._store = ("--root", folder / "images", "--runroot", folder / "run", "--storage-driver", "vfs")
        self._base(make(folder / "base.tar", "python3,python3-venv,python-is-python3,ca-certificates"))
        volumes = (f"--volume={path}:{path}:ro" for path in SHARED)
        self._buildah(
            "bud", "--isolation=chroot", "--format=docker", *volumes, "--build-arg=BASE=localhost/base",
            "--tag=muniment", f"--file={DEPLOY / 'Dockerfile'}", _context(folder / "context"),
        )  # fmt: skip
        self.config: dict[str, Any] = json.loads(self._buildah("inspect", "--type=image", "muniment"))["Docker"][
            "config"
        ]
        container = self._buildah("from", "--pull-never", "localhost/muniment")
        self.root = Path(self._buildah("mount", container))

    def _base(self, archive: Path) -> None:
        """The base image, from a Debian: no registry of images is asked."""
        scratch = self._buildah("from", "scratch")
        self._buildah("add", scratch, archive, "/")
        self._buildah("config", "--env=PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", scratch)
        self._buildah("commit", "--rm", scratch, "localhost/base")

    def _buildah(self, command: str, *words: str | Path) -> str:
        done = subprocess.run(
            [BUILDAH, *self._store, command, *words], capture_output=True, text=True, check=False, timeout=600
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def remove(self) -> None:
        """Take the mounted file system away."""
        self._buildah("umount", "--all")


def _context(folder: Path) -> Path:
    """The files that the build may see, with the wheel of `make dist`."""
    folder.mkdir()
    for name in (".dockerignore", "requirements.lock"):
        shutil.copy(ROOT / name, folder)
    uv = Path(sys.executable).parent / "uv"
    subprocess.run([uv, "build", "--quiet", "--wheel", "--out-dir", folder / "dist"], cwd=ROOT, check=True)
    return folder


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    need_root("buildah", "bwrap", "mmdebstrap")
    made = Image(tmp_path_factory.mktemp("image"))
    try:
        yield made
    finally:
        made.remove()


@pytest.fixture
def container(image: Image, tmp_path: Path) -> Iterator[Container]:
    """A container that is healthy, with an empty volume."""
    volume = tmp_path / "data"
    volume.mkdir(mode=0o700)
    os.chown(volume, USER, USER)
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o711)  # the tests' folders are closed to other users
    with Container(image.root, volume, image.config) as running:
        deadline = time.monotonic() + 60
        while health(image, running) != 0:
            assert time.monotonic() < deadline, "the container is not healthy"
            time.sleep(0.2)
        yield running


def health(image: Image, container: Container) -> int:
    """The status of the image's health check: 0 is healthy."""
    kind, *words = image.config["Healthcheck"]["Test"]
    assert kind == "CMD"
    return container.execute(*words).returncode


def test_a_new_volume_belongs_to_the_user_of_the_service(image: Image) -> None:
    data = (image.root / "data").stat()
    assert (data.st_uid, data.st_gid, data.st_mode & 0o777) == (USER, USER, 0o700)
    assert list(image.config["Volumes"]) == ["/data"]


def test_the_image_has_the_bill_of_materials_and_what_it_lists(image: Image) -> None:
    (packages,) = (image.root / "opt/muniment/lib").glob("python3.*/site-packages")
    (bill,) = packages.glob("muniment-*.dist-info/sboms/muniment.cdx.json")
    assert bill.read_bytes() == (ROOT / "muniment.cdx.json").read_bytes()
    listed = {(each["name"], each["version"]) for each in json.loads(bill.read_bytes())["components"]}
    metadata = (each.read_text("utf-8").splitlines() for each in packages.glob("*.dist-info/METADATA"))
    fields = [
        dict(line.split(": ", 1) for line in lines if line.startswith(("Name: ", "Version: "))) for lines in metadata
    ]
    installed = {(each["Name"], each["Version"]) for each in fields}
    # `python -m venv` of Python 3.11 brings setuptools too.
    assert {name for name, _ in installed - listed} <= {"muniment", "setuptools"}
    assert listed <= installed


def test_the_service_has_no_right_and_cannot_write_outside_of_its_volume(container: Container) -> None:
    status = Path(f"/proc/{container.pid}/status").read_text("utf-8")
    facts = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert facts["Uid"].split() == [str(USER)] * 4
    assert (int(facts["CapEff"], 16), int(facts["CapBnd"], 16), facts["NoNewPrivs"]) == (0, 0, "1")
    assert "Read-only file system" in container.execute("touch", "/opt/muniment/file").stderr
    assert container.execute("touch", "/data/file").returncode == 0


def test_a_client_is_served_and_the_service_stops_with_status_0(container: Container) -> None:
    client = (sys.executable, Path(__file__).with_name("one_client.py"), "http://127.0.0.1:8787")
    done = run(
        Path("/usr/bin/nsenter"), f"--target={container.pid}", "--net", *client,
        PYTHONPATH=str(ROOT / "tests" / "support"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert container.stop() == 0


def test_a_container_whose_service_hangs_is_unhealthy(image: Image, container: Container) -> None:
    os.kill(container.pid, signal.SIGSTOP)
    try:
        assert health(image, container) == 1
    finally:
        os.kill(container.pid, signal.SIGCONT)
