"""Both overlays make objects that Kubernetes knows."""

from __future__ import annotations

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


def built(overlay: str) -> str:
    done = run(installed("kubectl"), "kustomize", DEPLOY / "kustomize" / "overlays" / overlay)
    assert done.returncode == 0, done.stderr
    return done.stdout


def objects(overlay: str) -> dict[str, Any]:
    """The kind of each object, with the object."""
    return {each["kind"]: each for each in yaml.safe_load_all(built(overlay))}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_object_and_every_member_is_known(overlay: str, tmp_path: Path) -> None:
    assert set(objects(overlay)) == KINDS[overlay]
    file = tmp_path / "built.yaml"
    file.write_text(built(overlay))
    done = run(packaged("kubernetes-validate"), "--strict", file)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_misspelt_member_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "built.yaml"
    file.write_text(built("sqlite").replace("readOnlyRootFilesystem", "readOnlyRootFileSystem"))
    assert run(packaged("kubernetes-validate"), "--strict", file).returncode != 0


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


def test_one_pod_has_the_volume_of_sqlite() -> None:
    deployment = objects("sqlite")["Deployment"]["spec"]
    assert (deployment["replicas"], deployment["strategy"]) == (1, {"type": "Recreate"})
    data = next(each for each in deployment["template"]["spec"]["volumes"] if each["name"] == "data")
    assert data == {"name": "data", "persistentVolumeClaim": {"claimName": "muniment"}}
