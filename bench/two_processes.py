"""Two processes that serve one database, against one, on the same reads."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from ours import muniment
from scale import Scale
from server import Load
from traffic import LIST, ONE, Traffic


def measure(scale: Scale, data: Path, traffic: Traffic) -> dict[str, dict[str, list[Load]]]:
    """Operation to number of processes to what each round has cost."""
    loads: dict[str, dict[str, list[Load]]] = {ONE: defaultdict(list), LIST: defaultdict(list)}
    with muniment(data) as one, muniment(data, workers=2) as two:
        for number in range(scale.rounds + 1):
            for operation, make in ((ONE, traffic.ones), (LIST, traffic.lists)):
                sent = make()
                for processes, service in (("1", one), ("2", two)):
                    load = service.load(sent)
                    if number:
                        loads[operation][processes].append(load)
    return loads
