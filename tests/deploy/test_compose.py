"""Dockerfile and Compose file: each is read by the program that uses it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from programs import DEPLOY, packaged, run

COMPOSE = DEPLOY / "compose" / "compose.yaml"
SITE = {"SITE": "registry.example.org"}


def test_the_dockerfile_has_no_fault() -> None:
    done = run(packaged("hadolint"), "--failure-threshold", "info", DEPLOY / "Dockerfile")
    assert (done.returncode, done.stdout) == (0, "")


def test_compose_takes_the_file() -> None:
    done = run(packaged("docker-compose"), "--file", COMPOSE, "config", "--quiet", **SITE)
    assert (done.returncode, done.stderr) == (0, "")


def services(*words: str) -> set[str]:
    """The services that `docker compose WORDS up` starts."""
    done = run(packaged("docker-compose"), "--file", COMPOSE, *words, "config", "--services", **SITE)
    return set(done.stdout.split())


@pytest.mark.parametrize("name", ["relayer", "watcher"])
def test_what_not_everybody_runs_starts_with_its_profile_only(name: str) -> None:
    assert services("--profile", name) - services() == {name}


def test_compose_asks_for_the_name_of_the_site() -> None:
    done = run(packaged("docker-compose"), "--file", COMPOSE, "config", "--quiet")
    assert done.returncode != 0
    assert "SITE is missing a value: the name of the site" in done.stderr


def test_the_proxy_that_the_service_trusts_is_in_its_network() -> None:
    done = run(packaged("docker-compose"), "--file", COMPOSE, "config", **SITE)
    config = yaml.safe_load(done.stdout)
    trusted = config["services"]["muniment"]["environment"]["MUNIMENT_TRUSTED_PROXIES"]
    assert config["networks"]["front"]["ipam"]["config"] == [{"subnet": trusted}]
    assert [name for name, each in config["services"].items() if "front" in each["networks"]] == ["caddy", "muniment"]
    assert [name for name, each in config["services"].items() if "ports" in each] == ["caddy"]


def test_there_may_be_several_services_with_a_directory_each_and_one_secret() -> None:
    for words, count in (({}, 2), ({"SERVICES": "5"}, 5)):
        done = run(packaged("docker-compose"), "--file", COMPOSE, "config", **SITE, **words)
        service = yaml.safe_load(done.stdout)["services"]["muniment"]
        assert service["scale"] == count
        assert not {"ports", "container_name"} & service.keys(), "two containers cannot have one"
        assert [(each["target"], each.get("source")) for each in service["volumes"]] == [("/data", None)]
        assert service["environment"]["MUNIMENT_SECRET_FILE"] == "/run/secrets/muniment_secret"


def test_one_service_builds_the_image_of_all() -> None:
    done = run(packaged("docker-compose"), "--file", COMPOSE, "--profile", "*", "config", **SITE)
    config = yaml.safe_load(done.stdout)["services"]
    ours = {name for name, each in config.items() if each["image"] == "muniment"}
    assert ours == {"migrate", "muniment", "relayer", "watcher"}
    assert [name for name, each in config.items() if "build" in each] == ["muniment"]
    build = config["muniment"]["build"]
    assert (Path(build["context"]) / build["dockerfile"]).samefile(DEPLOY / "Dockerfile")
    assert build["args"]["LOCK"] == "requirements.lock"


def test_the_transparency_log_has_a_name_and_a_key() -> None:
    done = run(packaged("docker-compose"), "--file", COMPOSE, "config", **SITE)
    config = yaml.safe_load(done.stdout)["services"]
    for name in ("migrate", "muniment"):
        environment = config[name]["environment"]
        assert environment["MUNIMENT_TLOG_NAME"] == SITE["SITE"]
        files = {value for key, value in environment.items() if key.endswith("_FILE")}
        assert files == {f"/run/secrets/{each['source']}" for each in config[name]["secrets"]}
        assert environment["MUNIMENT_TLOG_KEY_FILE"] in files


def test_images_of_others_are_named_by_their_digest() -> None:
    files = [DEPLOY / "Dockerfile", *sorted((DEPLOY / "compose").glob("*.yaml"))]
    text = "\n".join(path.read_text() for path in files)
    names = re.findall(r"^(?:ARG BASE=|\s*image: \$\{\w+:-)([^}\s]+)", text, re.MULTILINE)
    assert [re.sub(r":[\w.-]+@sha256:[0-9a-f]{64}$", "", name) for name in names] == [
        "python", "muniment", "postgres", "muniment", "caddy", "prom/prometheus",
    ]  # fmt: skip
