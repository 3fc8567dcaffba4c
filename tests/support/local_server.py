"""Base of the HTTP servers of the tests."""

from __future__ import annotations

import sys
from http.server import ThreadingHTTPServer
from typing import Any


class LocalServer(ThreadingHTTPServer):
    """A server in threads of this process. It does not print lost connections, which would appear in another test."""

    daemon_threads = True
    # By default five connections may wait to be accepted, and a sixth is tried again after a second.
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print errors except lost connections."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)
