"""Prometheus reaches /metrics in Compose and in Kubernetes; nobody does through nginx."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
import pytest
import yaml
from name_server import name_server
from programs import DEPLOY, installed, packaged, run
from prometheus import running, shipped_job

from mounts import needs_mounts
from service import Service
from shipped_nginx import shipped_nginx

SPELLINGS: Final = ("/metrics", "/metrics?a=b", "/METRICS", "/%6detrics", "//metrics", "/x/../metrics", "/metrics/")
COMPOSE: Final = [
    word for name in ("compose.yaml", "monitoring.yaml") for word in ("--file", DEPLOY / "compose" / name)
]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("service") / "data") as running:
        yield running


@pytest.fixture(scope="module")
def nginx(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of nginx with the shipped locations in front of the service, on the machine of the service."""
    with shipped_nginx(tmp_path_factory.mktemp("nginx"), service.url) as url:
        yield url


def test_the_machine_itself_reads_the_metrics(service: Service) -> None:
    answer = httpx2.get(f"{service.url}/metrics")
    assert (answer.status_code, "muniment_ready" in answer.text) == (200, True)


@pytest.mark.parametrize("path", SPELLINGS)
def test_nginx_hides_metrics(nginx: str, path: str) -> None:
    with socket.create_connection(("127.0.0.1", int(nginx.rpartition(":")[2]))) as connection:
        connection.sendall(f"GET {path} HTTP/1.0\r\nHost: registry.example.org\r\n\r\n".encode())
        answer = b"".join(iter(lambda: connection.recv(65_536), b""))
    assert answer.startswith(b"HTTP/1.1 404")
    assert b"muniment_" not in answer


def test_nginx_itself_answers_for_metrics(nginx: str) -> None:
    """The service does not see the request: without a forwarding field it would take it for the machine's own."""
    assert "nginx" in httpx2.get(f"{nginx}/metrics").text


def test_nginx_passes_other_paths_on(nginx: str) -> None:
    assert httpx2.get(f"{nginx}/readyz").status_code == 200
    assert httpx2.get(f"{nginx}/metricsx").json()["status"] == 404  # a problem document of the service


def _composed(*words: str) -> dict[str, Any]:
    done = run(packaged("docker-compose"), *COMPOSE, *words, "config", SITE="registry.example.org")
    assert done.returncode == 0, done.stderr
    return yaml.safe_load(done.stdout)


def test_in_compose_prometheus_alone_is_in_the_network_that_may_read_metrics() -> None:
    config = _composed("--profile", "watcher")
    (subnet,) = (each["subnet"] for each in config["networks"]["monitoring"]["ipam"]["config"])
    services = config["services"]
    assert services["muniment"]["environment"]["MUNIMENT_METRICS_FROM"] == f"127.0.0.0/8,{subnet}"
    assert sorted(name for name, each in services.items() if "monitoring" in each["networks"]) == [
        "muniment", "prometheus", "watcher",
    ]  # fmt: skip
    assert {"front", "back", "monitoring"} == set(services["muniment"]["networks"])
    assert [each["host_ip"] for each in services["prometheus"]["ports"]] == ["127.0.0.1"]


def test_in_compose_prometheus_gets_files_that_exist() -> None:
    mounts = [each for each in _composed()["services"]["prometheus"]["volumes"] if each["type"] == "bind"]
    assert [Path(each["source"]).is_file() for each in mounts] == [True, True]
    config = yaml.safe_load((DEPLOY / "monitoring" / "prometheus.compose.yml").read_text())
    assert config["rule_files"] == ["alerts.yml"]


def test_in_compose_the_watcher_answers_where_it_is_scraped() -> None:
    config = yaml.safe_load((DEPLOY / "monitoring" / "prometheus.compose.yml").read_text())
    (job,) = (each for each in config["scrape_configs"] if each["job_name"] == "muniment-watcher")
    assert job["static_configs"] == [{"targets": ["watcher:9466"]}]
    assert _composed("--profile", "watcher")["services"]["watcher"]["command"][-2:] == ["--health", "0.0.0.0:9466"]


def test_every_configuration_names_the_jobs_for_which_the_rules_ask() -> None:
    asked = set(re.findall(r'job="([\w-]+)"', (DEPLOY / "monitoring" / "alerts.yml").read_text()))
    for file in (DEPLOY / "monitoring").glob("prometheus*.yml"):
        assert {each["job_name"] for each in yaml.safe_load(file.read_text())["scrape_configs"]} == asked


@needs_mounts
async def test_in_compose_prometheus_scrapes_every_service(tmp_path: Path, service: Service) -> None:
    """As it finds them: each has an address under the name."""
    hosts, port = ["127.0.0.2", "127.0.0.3"], urlsplit(service.url).port
    job = shipped_job("prometheus.compose.yml", "muniment")
    (found,) = job["dns_sd_configs"]
    assert (found["names"], found["port"]) == (["muniment"], 8787)
    found["port"] = port
    with name_server(tmp_path, "muniment", hosts) as names:
        async with running(tmp_path / "prometheus", job, prefix=names.prefix) as prometheus:
            await prometheus.wait_for_targets({f"{host}:{port}" for host in hosts})


@pytest.mark.parametrize("overlay", ["postgres", "sqlite"])
def test_the_component_of_kustomize_annotates_the_pods(overlay: str, tmp_path: Path) -> None:
    folder = Path(os.path.relpath(DEPLOY / "kustomize", tmp_path))
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump({
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [str(folder / "overlays" / overlay)],
        "components": [str(folder / "monitoring")],
        "configMapGenerator": [
            {"name": "muniment", "behavior": "merge", "literals": ["MUNIMENT_METRICS_FROM=10.42.0.0/16"]}
        ],
    }))  # fmt: skip
    done = run(installed("kubectl"), "kustomize", tmp_path)
    assert done.returncode == 0, done.stderr
    made = {each["kind"]: each for each in yaml.safe_load_all(done.stdout)}
    template = made["Deployment"]["spec"]["template"]
    (port,) = template["spec"]["containers"][0]["ports"]
    assert template["metadata"]["annotations"] == {
        "prometheus.io/scrape": "true", "prometheus.io/path": "/metrics",
        "prometheus.io/port": str(port["containerPort"]),
    }  # fmt: skip
    assert made["ConfigMap"]["data"]["MUNIMENT_METRICS_FROM"] == "10.42.0.0/16"
    (tmp_path / "built.yaml").write_text(done.stdout)
    checked = run(packaged("kubernetes-validate"), "--strict", tmp_path / "built.yaml")
    assert checked.returncode == 0, checked.stdout + checked.stderr
