"""The composition root: every operation, the middleware and the outside world are put together here, once."""

from __future__ import annotations

from muniment.app.application import Application as Application, create_app as create_app
from muniment.app.operations import DISK_BYTES_MIN as DISK_BYTES_MIN, OPERATIONS as OPERATIONS
from muniment.app.world import build_context as build_context
