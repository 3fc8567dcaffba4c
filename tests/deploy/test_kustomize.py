"""Both overlays make objects that Kubernetes knows."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from programs import DEPLOY, installed, packaged, run

OVERLAYS = ("postgres", "sqlite")
KINDS = {
    "sqlite": {"ConfigMap", "Deployment", "NetworkPolicy", "PersistentVolumeClaim", "Service"},
    "postgres": {
        "ConfigMap", "Deployment", "HorizontalPodAutoscaler", "Job", "NetworkPolicy", "PodDisruptionBudget", "Service",
    },
}  # fmt: skip


@cache
def built(overlay: str) -> str:
    done = run(installed("kubectl"), "kustomize", DEPLOY / "kustomize" / "overlays" / overlay)
    assert done.returncode == 0, done.stderr
    return done.stdout


def objects(overlay: str) -> dict[str, Any]:
    """The kind of each object, with the object."""
    return {each["kind"]: each for each in yaml.safe_load_all(built(overlay))}


def test_every_object_and_every_member_is_known_and_a_misspelt_one_is_noticed(tmp_path: Path) -> None:
    """All in one run: the program takes three seconds of a core to start."""
    texts = {overlay: built(overlay) for overlay in OVERLAYS}
    texts["misspelt"] = built("sqlite").replace("readOnlyRootFilesystem", "readOnlyRootFileSystem")
    files = {name: tmp_path / f"{name}.yaml" for name in texts}
    for name, file in files.items():
        file.write_text(texts[name])
    done = run(packaged("kubernetes-validate"), "--strict", *files.values())
    said = done.stdout.splitlines()
    for overlay in OVERLAYS:
        about = [line.split() for line in said if str(files[overlay]) in line]
        assert {(line[0], line[2]) for line in about} == {("INFO", "passed")}, done.stdout + done.stderr
        assert {line[5].partition("/")[0] for line in about} == {kind.lower() for kind in KINDS[overlay]}
        assert set(objects(overlay)) == KINDS[overlay]
    (fault,) = [line for line in said if not line.startswith("INFO ")]
    assert fault.startswith(f"ERROR {files['misspelt']} did not validate for resource deployment/muniment ")
    assert done.returncode == 1


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_objects_select_pods_of_the_service_alone(overlay: str) -> None:
    made = objects(overlay)
    labels = made["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert made["Deployment"]["spec"]["selector"]["matchLabels"] == labels
    assert made["Service"]["spec"]["selector"] == labels
    policy = made["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"]
    assert policy == {"app.kubernetes.io/name": "muniment"}
    assert policy.items() <= labels.items()
    if overlay == "postgres":
        assert made["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
        job = made["Job"]["spec"]["template"]["metadata"]["labels"]
        assert policy.items() <= job.items()
        assert job != labels


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_kubernetes_sets_no_variable_that_is_a_setting(overlay: str) -> None:
    """A service `muniment` would set MUNIMENT_PORT to a URL in pods with service links."""
    pods = [
        each["spec"]["template"]["spec"] for kind, each in objects(overlay).items() if kind in {"Deployment", "Job"}
    ]
    assert [pod["enableServiceLinks"] for pod in pods] == [False] * len(pods)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_transparency_log_has_a_place_for_its_name_and_its_key(overlay: str) -> None:
    """On SQLite the service makes the key; on PostgreSQL it never signs without one."""
    made = objects(overlay)
    assert made["ConfigMap"]["data"]["MUNIMENT_TLOG_NAME"] == ""
    assert ("MUNIMENT_TLOG_KEY_FILE" in made["ConfigMap"]["data"]) == (overlay == "postgres")
    for pod in (made[kind]["spec"]["template"]["spec"] for kind in ("Deployment", "Job") if kind in made):
        mounts = {each["name"]: each["mountPath"] for each in pod["containers"][0]["volumeMounts"]}
        files = [Path(value) for name, value in made["ConfigMap"]["data"].items() if name.endswith("_FILE")]
        assert {str(file.parent) for file in files} == {mounts["secret"]}


def test_pods_on_postgresql_share_the_secret_and_no_directory() -> None:
    made = objects("postgres")
    assert made["HorizontalPodAutoscaler"]["spec"]["minReplicas"] >= 2
    assert "replicas" not in made["Deployment"]["spec"], "that would undo what the autoscaler did"
    volumes = {each["name"]: each for each in made["Deployment"]["spec"]["template"]["spec"]["volumes"]}
    assert volumes["data"] == {"name": "data", "emptyDir": {}}
    assert volumes["secret"]["secret"]["secretName"] == "muniment"
    assert made["ConfigMap"]["data"]["MUNIMENT_SECRET_FILE"] == "/run/secrets/muniment/secret"


def test_one_pod_has_the_volume_of_sqlite() -> None:
    deployment = objects("sqlite")["Deployment"]["spec"]
    assert (deployment["replicas"], deployment["strategy"]) == (1, {"type": "Recreate"})
    data = next(each for each in deployment["template"]["spec"]["volumes"] if each["name"] == "data")
    assert data == {"name": "data", "persistentVolumeClaim": {"claimName": "muniment"}}
