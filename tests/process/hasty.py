"""`muniment`, except that streams are never silent for BEAT_SECONDS and their clients must read within READ_SECONDS."""

from __future__ import annotations

import functools
import os

from muniment.__main__ import main
from muniment.service.app import application
from muniment.service.resources.feed.hub import Hub
from muniment.service.server import run
from muniment.service.server.sending import UnreadAnswers
from muniment.service.server.shared import Shared

application.Hub = functools.partial(Hub, heartbeat_seconds=float(os.environ["BEAT_SECONDS"]))
run.Shared = functools.partial(Shared, unread=UnreadAnswers(stream_seconds_max=float(os.environ["READ_SECONDS"])))

if __name__ == "__main__":
    main()
