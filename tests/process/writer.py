"""A client that sends one write after another, repeats each until it is answered, and notes every answer.

Run as a program: `writer.py PORT REQUESTS ANSWERS`. A line of REQUESTS is a path, headers and body; a line of ANSWERS
is the number of that line, the status and the body, written when the answer has come.
"""

from __future__ import annotations

import json
import sys
import time
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any


def main(port: int, requests: Path, answers: Path) -> None:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    with requests.open() as lines, answers.open("w") as noted:
        for number, line in enumerate(lines):
            status, answer = answered(connection, json.loads(line))
            noted.write(json.dumps([number, status, answer]) + "\n")
            noted.flush()


def answered(connection: HTTPConnection, request: dict[str, Any]) -> tuple[int, Any]:
    """The answer, however often the service is killed before it gives one."""
    while True:
        try:
            connection.request("POST", request["path"], request["body"].encode("latin-1"), request["headers"])
            response = connection.getresponse()
            body = response.read()
        except (OSError, HTTPException):
            connection.close()
            time.sleep(0.01)
            continue
        if response.status != 503:
            return response.status, json.loads(body)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
