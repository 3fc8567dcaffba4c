"""A real browser that follows streams by its EventSource, and says what each one saw."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import quote

from programs import installed

from local_server import LocalServer

# This ends a hang. A browser takes seconds to start on a busy machine.
SECONDS_MAX = 60
_PAGE = """<!doctype html><script>
const say = (name, what) => fetch("/said", {method: "POST", body: JSON.stringify({name, ...what})});
for (const [name, url] of Object.entries(JSON.parse(decodeURIComponent(location.hash.slice(1))))) {
  const source = new EventSource(url);
  source.onopen = () => say(name, {kind: "open"});
  source.onmessage = (event) => say(name, {kind: "message", id: event.lastEventId, data: JSON.parse(event.data)});
  source.addEventListener("reset", (event) => say(name, {kind: "reset", data: JSON.parse(event.data)}));
  source.onerror = () => say(name, {kind: "error", isClosed: source.readyState === EventSource.CLOSED});
}
</script>"""


class Browser:
    """A browser with one page. `said` has what its streams saw, in the order of the arrival of the reports."""

    def __init__(self) -> None:
        self.said: list[dict[str, Any]] = []

    def of(self, name: str, kind: str = "message") -> list[dict[str, Any]]:
        """The reports of one kind about one stream."""
        return [each for each in list(self.said) if (each["name"], each["kind"]) == (name, kind)]

    def wait(self, holds: Callable[[], bool]) -> None:
        """Return when `holds` does."""
        deadline = time.monotonic() + SECONDS_MAX
        while not holds():
            assert time.monotonic() < deadline, self.said[-20:]
            time.sleep(0.05)


@contextmanager
def browsing(home: Path, streams: dict[str, str]) -> Generator[Browser]:
    """Chromium with an EventSource for each of `streams`, name to URL; its own files are in `home`."""
    program = installed("chromium")
    browser = Browser()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(_PAGE.encode())

        def do_POST(self) -> None:
            browser.said.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with LocalServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            page = f"http://127.0.0.1:{server.server_port}/#{quote(json.dumps(streams), safe='')}"
            with running(program, home, page):
                yield browser
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def running(program: Path, home: Path, page: str) -> Generator[None]:
    """Chromium with one page."""
    command = [
        program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        "--disable-background-networking", "--no-first-run", "--remote-debugging-port=0",
        f"--user-data-dir={home}", page,
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(timeout=30)
