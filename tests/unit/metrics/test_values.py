"""The memory that processes share: regions, processes that end, other layouts, damage, the most series."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from muniment.service.running.metrics.families import LAYOUT
from muniment.service.running.metrics.recorder import Metrics, open_metrics
from muniment.service.running.metrics.values import SERIES_MAX, Values, render
from scraped import Scraped

COUNT = """import sys, time; from pathlib import Path
from muniment.service.running.metrics.recorder import open_metrics
metrics = open_metrics(Path(sys.argv[1]))
metrics.counter("logins_total", outcome="failed").add(int(sys.argv[2]))
metrics.gauge("http_connections").set(7)
metrics.gauge("watcher_behind_blocks", chain="1").set(9)
metrics.histogram("commit_duration_seconds").observe(0.003)
metrics.refresh()
print(metrics.worker, flush=True)
sys.stdin.read()"""


def counting_elsewhere(directory: Path, count: int) -> tuple[subprocess.Popen[str], str]:
    """Another process that has counted and goes on running, and the name of its region."""
    process = subprocess.Popen(
        [sys.executable, "-c", COUNT, str(directory), str(count)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def killed(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def descriptors(directory: Path) -> int:
    """How many files in `directory` this process has open. Others may close meanwhile, when garbage is collected."""
    links = Path("/proc/self/fd").iterdir()
    return sum(os.path.realpath(link).startswith(f"{directory}/") for link in links)


def scraped(metrics: Metrics) -> Scraped:
    return Scraped(render(metrics.values).decode())


@pytest.mark.programs
def test_processes_are_summed(tmp_path: Path) -> None:
    metrics = open_metrics(tmp_path)
    metrics.counter("logins_total", outcome="failed").add(1)
    metrics.gauge("http_connections").set(2)
    metrics.histogram("commit_duration_seconds").observe(0.2)
    others = [counting_elsewhere(tmp_path, 10)[0], counting_elsewhere(tmp_path, 100)[0]]
    found = scraped(metrics)
    for other in others:
        killed(other)
    assert found.value("logins_total", outcome="failed") == 111
    assert found.value("http_connections") == 16
    assert found.value("commit_duration_seconds_bucket", le="0.005") == 2
    assert found.value("commit_duration_seconds_bucket", le="0.25") == 3
    assert found.value("commit_duration_seconds_count") == 3
    assert found.value("commit_duration_seconds_sum") == pytest.approx(0.206)
    metrics.close()


@pytest.mark.programs
def test_the_counts_of_a_killed_process_stay_and_its_gauges_go(tmp_path: Path) -> None:
    metrics = open_metrics(tmp_path)
    other, region = counting_elsewhere(tmp_path, 10)
    assert scraped(metrics).value("watcher_behind_blocks", chain="1") == 9
    killed(other)
    found = scraped(metrics)
    assert found.value("logins_total", outcome="failed") == 10
    assert found.value("http_connections") == 0
    assert found.value("watcher_behind_blocks", chain="1") is None
    next_one, its_region = counting_elsewhere(tmp_path, 5)
    assert its_region == region
    assert scraped(metrics).value("logins_total", outcome="failed") == 15
    killed(next_one)
    metrics.close()


@pytest.mark.programs
def test_a_process_that_takes_a_region_begins_without_its_gauges(tmp_path: Path) -> None:
    killed(counting_elsewhere(tmp_path, 1)[0])
    metrics, other = open_metrics(tmp_path), open_metrics(tmp_path)
    assert metrics.worker == "serve-0"
    for found in (scraped(other), scraped(metrics)):
        assert found.value("http_connections") == 0
        assert found.value("watcher_behind_blocks", chain="1") is None
        assert found.value("logins_total", outcome="failed") == 1
    metrics.close()
    other.close()


def test_applications_of_one_process_have_a_region_each(tmp_path: Path) -> None:
    before = descriptors(tmp_path)
    first, second = open_metrics(tmp_path), open_metrics(tmp_path)
    assert [first.worker, second.worker] == ["serve-0", "serve-1"]
    assert descriptors(tmp_path) == before + 1  # to close another descriptor of the file would release the locks
    for metrics, connections in ((first, 5), (second, 2)):
        metrics.gauge("http_connections").set(connections)
        metrics.counter("logins_total", outcome="failed").add()
        metrics.refresh()
    for metrics in (first, second):
        found = scraped(metrics)
        assert found.value("http_connections") == 7
        assert found.value("logins_total", outcome="failed") == 2
    first.close()
    found = scraped(second)
    assert found.value("http_connections") == 2
    assert found.value("logins_total", outcome="failed") == 2
    other, region = counting_elsewhere(tmp_path, 10)
    assert region == "serve-0"  # that of `second` is still locked
    killed(other)
    second.close()
    assert descriptors(tmp_path) == before


@pytest.mark.parametrize("size", [0, 3, 4096])
def test_a_process_outlives_its_file(tmp_path: Path, size: int, capsys: pytest.CaptureFixture[str]) -> None:
    metrics = open_metrics(tmp_path)
    (path,) = tmp_path.iterdir()
    os.truncate(path, size)
    metrics.counter("logins_total", outcome="failed").add()
    metrics.refresh()
    assert scraped(metrics).value("logins_total", outcome="failed") == 1
    metrics.counter("rpc_errors_total", chain="1").add()
    assert scraped(metrics).value("rpc_errors_total", chain="1") == 1
    assert capsys.readouterr().out.count("metrics are counted by each process for itself") == 1
    assert path.stat().st_size == size
    metrics.close()


def test_a_new_series_of_a_process_that_lost_its_file_is_counted(tmp_path: Path) -> None:
    metrics = open_metrics(tmp_path)
    (path,) = tmp_path.iterdir()
    os.truncate(path, 0)
    metrics.counter("rpc_errors_total", chain="1").add()
    assert scraped(metrics).value("rpc_errors_total", chain="1") == 1
    metrics.close()


@pytest.mark.programs
def test_no_sum_goes_back_when_a_process_is_killed(tmp_path: Path) -> None:
    script = COUNT.replace(
        "metrics.refresh()", "from muniment.service.running.metrics.values import render; render(metrics.values)"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path), "10"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    other.stdout.readline()
    killed(other)
    metrics = open_metrics(tmp_path)
    assert scraped(metrics).value("logins_total", outcome="failed") == 10
    metrics.close()


@pytest.mark.programs
def test_the_value_that_was_set_last_is_shown(tmp_path: Path) -> None:
    metrics = open_metrics(tmp_path)
    metrics.gauge("watcher_behind_blocks", chain="1").set(1)
    other, _ = counting_elsewhere(tmp_path, 1)
    assert scraped(metrics).value("watcher_behind_blocks", chain="1") == 9
    metrics.gauge("watcher_behind_blocks", chain="1").set(2)
    assert scraped(metrics).value("watcher_behind_blocks", chain="1") == 2
    killed(other)
    metrics.close()


def test_the_file_is_ours_alone_and_has_room_on_the_disk(tmp_path: Path) -> None:
    metrics = open_metrics(tmp_path)
    (path,) = tmp_path.iterdir()
    assert path.name == f"metrics-{LAYOUT}"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.stat().st_blocks * 512 >= path.stat().st_size  # a disk that is full later ends no process
    assert path.stat().st_size < 2**19
    metrics.close()


def test_the_file_of_another_layout_goes_when_no_process_uses_it(tmp_path: Path) -> None:
    (tmp_path / "metrics-00000000").write_bytes(b"\0" * 4096)
    metrics = open_metrics(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [f"metrics-{LAYOUT}"]
    metrics.close()


@pytest.mark.programs
def test_the_file_of_another_layout_stays_while_a_process_uses_it(tmp_path: Path) -> None:
    other, _ = counting_elsewhere(tmp_path, 1)
    older = tmp_path / "metrics-00000000"
    (tmp_path / f"metrics-{LAYOUT}").rename(older)
    metrics = open_metrics(tmp_path)
    assert older.exists()
    assert scraped(metrics).value("logins_total", outcome="failed") is None
    killed(other)
    metrics.close()


@pytest.mark.parametrize("spoiled", [b"\xff" * 4096, b"\x01\0\0\0" + b"\0" * 4092, b"\x01\0\0\0\x04\0\x01\0nope"])
def test_a_damaged_file_is_replaced(tmp_path: Path, spoiled: bytes) -> None:
    path = tmp_path / f"metrics-{LAYOUT}"
    path.write_bytes(spoiled)
    metrics = open_metrics(tmp_path)
    metrics.counter("logins_total", outcome="failed").add()
    assert scraped(metrics).value("logins_total", outcome="failed") == 1
    assert path.read_bytes()[:8] != spoiled[:8]
    metrics.close()


def test_a_directory_that_cannot_be_written_leaves_metrics_of_the_process_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    metrics = open_metrics(tmp_path / "file")
    metrics.counter("logins_total", outcome="failed").add()
    assert scraped(metrics).value("logins_total", outcome="failed") == 1
    assert "metrics are counted by each process for itself" in capsys.readouterr().out


def test_series_beyond_the_most_are_not_shown_and_spoil_no_other(tmp_path: Path) -> None:
    metrics = Metrics(Values.at(tmp_path))
    for number in range(SERIES_MAX + 100):
        metrics.counter("refused_total", code=f"code-{number}").add()
    found = scraped(metrics)
    assert found.value("refused_total", code="code-0") == 1
    assert found.value("refused_total", code=f"code-{SERIES_MAX + 99}") is None
    assert len(found.labels("refused_total", "code")) < SERIES_MAX
    assert found.value("http_connections") == 0
    metrics.close()


def test_an_ended_descriptor_is_not_used_again(tmp_path: Path) -> None:
    before = descriptors(tmp_path)
    metrics = open_metrics(tmp_path)
    metrics.close()
    assert descriptors(tmp_path) == before
    metrics.counter("logins_total", outcome="failed").add()
    assert scraped(metrics).value("logins_total", outcome="failed") == 1
