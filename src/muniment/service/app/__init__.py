"""The service itself: wiring, start and stop, health, readiness, metrics and the reference."""

from __future__ import annotations

from muniment.service.app.application import Application as Application
from muniment.service.app.operations import DISK_BYTES_MIN as DISK_BYTES_MIN, OPERATIONS as OPERATIONS
from muniment.service.app.timekeeping import Timekeeper as Timekeeper
from muniment.service.app.wiring import (
    build_context as build_context,
    build_holdings as build_holdings,
    directories_of as directories_of,
)
