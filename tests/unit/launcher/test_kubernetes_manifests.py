"""Manifests of the Kubernetes launcher: safe for any job record, and literal for any text."""

from __future__ import annotations

import base64
import io
import json
import random
import re
import string
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reshape_launcher.kubernetes import images, manifests, naming, pod, sidecar_archive
from reshape_launcher.kubernetes.gpus import SimulatedDevices
from reshape_launcher.kubernetes.pod_mounts import CHECKPOINTS, OWN, mounts_of
from reshape_launcher.kubernetes.settings import ClaimMount, PodSettings
from reshape_launcher.kubernetes.validation import refusals
from reshape_launcher.spec import DeviceMode, LaunchSpec, RecordRefused, worker_token
from reshape_sidecar import codec, limits
from reshape_sidecar.agent.spec import AttemptSpec
from tests.support import pod_security
from tests.support.hostile_texts import HOSTILE

GENERATED = 10_000
SIDECAR = sidecar_archive.Archive(b"not looked at here")
SETTINGS = PodSettings(namespace="jobs", controller="c1", image="base:1", storage_claim="storage")
BUILDING = replace(SETTINGS, registry="registry.example")
SPEC = LaunchSpec(
    job="a-0123456789",
    attempt=1,
    name="a",
    host="node1",
    command=("python", "train.py"),
    code="claim:code/a",
    checkpoints=str(OWN / "a-0123456789" / "checkpoints"),
    coordinator_url="http://192.0.2.1:7471",
    epoch=1,
    device_mode=DeviceMode.SIMULATED,
    host_devices=("sim-node1-0", "sim-node1-1"),
)


def made(spec: LaunchSpec, settings: PodSettings = SETTINGS) -> pod.Attempt:
    environment = SimulatedDevices(2).environment(spec)
    return pod.Attempt(spec, settings, mounts_of(spec, settings), SIDECAR, environment)


def job_of(spec: LaunchSpec, settings: PodSettings = SETTINGS) -> dict[str, Any]:
    return manifests.job(made(spec, settings))


def pod_of(spec: LaunchSpec, settings: PodSettings = SETTINGS) -> dict[str, Any]:
    found: dict[str, Any] = job_of(spec, settings)["spec"]["template"]["spec"]
    return found


def told(spec: LaunchSpec) -> AttemptSpec:
    data = manifests.secret(made(spec), "secret", None)["data"]["spec.json"]
    return codec.loads(AttemptSpec, base64.b64decode(data))


def test_a_pod_that_vanished_is_never_replaced_by_kubernetes() -> None:
    spec = job_of(SPEC)["spec"]
    assert spec["backoffLimit"] == 0
    assert spec["podReplacementPolicy"] == "Failed"
    assert (spec["completions"], spec["parallelism"]) == (1, 1)
    assert spec["template"]["spec"]["restartPolicy"] == "Never"
    kept = {t["key"]: t for t in spec["template"]["spec"]["tolerations"]}
    for taint in ("node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"):
        assert kept[taint]["effect"] == "NoExecute"
        assert "tolerationSeconds" not in kept[taint]


def test_a_failed_job_tells_by_its_rule_that_the_cluster_took_its_pod() -> None:
    (rule,) = job_of(SPEC)["spec"]["podFailurePolicy"]["rules"]
    assert rule["action"] == "FailJob", "no pod is made again"
    assert rule["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]
    assert "onExitCodes" not in rule, "the pods of a suspended Job have exit codes too"


def test_no_pod_is_made_before_its_secret_is_there() -> None:
    assert job_of(SPEC)["spec"]["suspend"] is True
    secret = manifests.secret(made(SPEC), "x", None)
    owners = manifests.owned(secret, job_of(SPEC), "uid-1")["metadata"]["ownerReferences"]
    assert [(o["kind"], o["uid"]) for o in owners] == [("Job", "uid-1")]


def test_the_pod_may_run_on_its_host_alone_and_the_scheduler_still_looks_for_room() -> None:
    found = pod_of(SPEC)
    assert "nodeName" not in found
    assert "node1" in json.dumps(found["affinity"])


@pytest.mark.parametrize("save_s", [0.5, 120.0, 3600.0])
def test_kubernetes_gives_more_time_to_end_than_a_save_takes(save_s: float) -> None:
    found = pod_of(replace(SPEC, save_s=save_s))
    needed_s = save_s + limits.LEFTOVER_GRACE_S + limits.AGENT_END_S
    assert found["terminationGracePeriodSeconds"] > needed_s
    command = found["containers"][0]["command"]
    assert float(command[command.index("--grace-s") + 1]) == save_s


def test_the_token_and_the_environment_are_in_the_secret_alone() -> None:
    spec = replace(SPEC, env=(("CANARY", "sesame"),))
    assert "sesame" not in json.dumps(job_of(spec))
    made_secret = manifests.secret(made(spec), "bearer-sesame", None)
    assert base64.b64decode(made_secret["data"]["token"]) == b"bearer-sesame"
    assert told(spec).env == (("CANARY", "sesame"),)
    (volume,) = [v for v in pod_of(spec)["volumes"] if "secret" in v]
    readers = [
        container["name"]
        for container in (*pod_of(spec)["containers"], *pod_of(spec)["initContainers"])
        if volume["name"] in {mount["name"] for mount in container["volumeMounts"]}
    ]
    assert readers == ["place-sidecar"]


def test_what_the_record_names_is_what_the_scheduler_keeps_free() -> None:
    named = pod_of(replace(SPEC, cpus=1.5, memory_bytes=1 << 30))["containers"][0]["resources"]
    assert named["requests"]["cpu"] == named["limits"]["cpu"] == "1500m"
    assert named["requests"]["memory"] == named["limits"]["memory"] == str(1 << 30)
    usual = pod_of(SPEC)["containers"][0]["resources"]
    assert usual["limits"]["memory"] == str(SETTINGS.memory_bytes)
    assert usual["requests"]["memory"] == str(pod.MEMORY_REQUEST_BYTES)


def test_a_script_has_a_folder_to_write_in_that_outlives_its_pod() -> None:
    assert told(SPEC).work == f"{CHECKPOINTS}/work"
    unnamed = replace(SPEC, code=str(OWN / SPEC.job / "work"), image="own:1")
    assert told(unnamed).code == told(unnamed).work, "without code it runs there"
    assert "code" not in {volume["name"] for volume in pod_of(unnamed)["volumes"]}


def test_shared_memory_is_half_of_the_memory_unless_the_record_names_it() -> None:
    def shared(spec: LaunchSpec) -> int:
        (volume,) = [v for v in pod_of(spec)["volumes"] if v["name"] == "shared-memory"]
        return int(volume["emptyDir"]["sizeLimit"])

    assert shared(SPEC) == SETTINGS.memory_bytes // 2
    assert shared(replace(SPEC, memory_bytes=64 << 30)) == 32 << 30
    assert shared(replace(SPEC, memory_bytes=64 << 30, shared_memory_bytes=40 << 30)) == 40 << 30
    refused, _ = refusals(replace(SPEC, shared_memory_bytes=9 << 30), SETTINGS)
    assert refused.field == "shared_memory_gb"
    assert refused.remedy == "give the job more memory"


def test_autoscalers_leave_the_node_of_a_pod_with_gpus_alone() -> None:
    for framework in ("keras", "pytorch", "other"):
        job = job_of(replace(SPEC, framework=framework))
        annotations = job["spec"]["template"]["metadata"]["annotations"]
        assert annotations["cluster-autoscaler.kubernetes.io/safe-to-evict"] == "false"
        assert annotations["karpenter.sh/do-not-disrupt"] == "true"


def test_tools_that_tell_costs_apart_find_user_job_and_type_as_labels() -> None:
    spec = replace(SPEC, user="ada", name="resnet", job_type="resnet50.b128")
    for of in (job_of(spec), job_of(spec)["spec"]["template"]):
        labels = of["metadata"]["labels"]
        assert labels["reshape.dev/user"] == "ada"
        assert labels["reshape.dev/job-name"] == "resnet"
        assert labels["reshape.dev/job-type"] == "resnet50.b128"
    assert "reshape.dev/user" not in job_of(SPEC)["metadata"]["labels"]


def test_two_users_never_have_one_label() -> None:
    users = ["ada@lab", "ada lab", "ada-lab", "ädä", "", "-", "x" * 64, "x" * 65, "."]
    labels = [naming.label_of(user) for user in users]
    assert len(set(labels)) == len(users)
    assert labels[0].startswith("ada-lab-")
    assert all(naming.is_label(label) for label in labels if label)


def test_the_folders_of_a_record_are_claims_in_the_pod() -> None:
    spec = replace(SPEC, dataset="claim:data/cifar")
    mounts = {m["mountPath"]: m for m in pod_of(spec)["containers"][0]["volumeMounts"]}
    assert mounts["/reshape/code"]["subPath"] == "a"
    assert mounts["/reshape/dataset"]["readOnly"]
    assert mounts[CHECKPOINTS]["subPath"] == f"{SPEC.job}/checkpoints"
    seen = told(spec)
    assert (seen.code, seen.dataset, seen.checkpoints) == (
        "/reshape/code",
        "/reshape/dataset",
        CHECKPOINTS,
    )


def test_the_log_files_outlive_the_pod_where_there_is_a_storage_claim() -> None:
    mounts = {m["mountPath"]: m for m in pod_of(SPEC)["containers"][0]["volumeMounts"]}
    assert mounts["/reshape/attempt/logs"]["subPath"] == f"{SPEC.job}/attempt-1/logs"
    assert not mounts["/reshape/attempt/logs"]["readOnly"]
    without = replace(SPEC, checkpoints="claim:own")
    found = pod_of(without, replace(SETTINGS, storage_claim=None))["containers"][0]
    assert "/reshape/attempt/logs" not in {m["mountPath"] for m in found["volumeMounts"]}


def test_several_workers_are_one_indexed_job_with_a_headless_service_of_its_own() -> None:
    spec = replace(SPEC, workers=3)
    job = job_of(spec)
    assert (job["spec"]["completions"], job["spec"]["parallelism"]) == (3, 3)
    assert (job["spec"]["completionMode"], job["spec"]["backoffLimit"]) == ("Indexed", 0)
    service = manifests.service(made(spec))
    assert service is not None
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"] == {naming.JOB_NAME_LABEL: job["metadata"]["name"]}
    assert pod_of(spec)["subdomain"] == service["metadata"]["name"]
    assert re.fullmatch(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?", service["metadata"]["name"])
    owned = manifests.owned(service, job, "uid-1")["metadata"]["ownerReferences"]
    assert [(owner["kind"], owner["uid"]) for owner in owned] == [("Job", "uid-1")]
    assert manifests.service(made(SPEC)) is None
    assert "completionMode" not in job_of(SPEC)["spec"]


def test_each_of_several_workers_has_a_token_and_a_folder_for_its_logs() -> None:
    spec = replace(SPEC, workers=2)
    files = manifests.secret(made(spec), "sesame", None)["data"]
    tokens = {name: base64.b64decode(text) for name, text in files.items() if "token" in name}
    assert tokens == {"token-0": b"sesame", "token-1": worker_token("sesame", 1).encode()}
    mounts = {m["mountPath"]: m for m in pod_of(spec)["containers"][0]["volumeMounts"]}
    logs = mounts["/reshape/attempt/logs"]
    assert logs["subPathExpr"] == f"{SPEC.job}/attempt-1/worker-$(JOB_COMPLETION_INDEX)/logs"
    assert "subPath" not in logs


def test_one_claim_used_twice_is_one_volume() -> None:
    spec = replace(SPEC, code="claim:one/code", dataset="claim:one/data")
    claims = [v for v in pod_of(spec)["volumes"] if "persistentVolumeClaim" in v]
    assert [c["persistentVolumeClaim"]["claimName"] for c in claims] == ["one", "storage"]


@pytest.mark.parametrize(
    ("field", "changes", "settings", "what"),
    [
        (
            "checkpoints",
            {"checkpoints": "/data/c"},
            SETTINGS,
            "is in the pod and would be lost with it",
        ),
        ("checkpoints", {}, replace(SETTINGS, storage_claim=None), "cluster file has no"),
        ("image", {}, replace(SETTINGS, image=None), "the record has no image"),
        ("image", {"image": "-it"}, SETTINGS, "is not an image name"),
        ("image", {"code": "/here"}, replace(BUILDING, image=None), "there is no base image"),
        ("code", {"code": "work"}, SETTINGS, "neither a volume claim nor an absolute path"),
        ("code", {"code": "/reshape/attempt"}, SETTINGS, "is reserved for Reshape"),
        ("code", {"code": "claim:x/../y"}, SETTINGS, "is not a volume claim"),
        ("dataset", {"dataset": "claim:UPPER"}, SETTINGS, "is not a volume claim"),
    ],
)
def test_what_cannot_be_launched_is_refused_before_and_at_its_launch(
    field: str, changes: dict[str, str], settings: PodSettings, what: str
) -> None:
    spec = replace(SPEC, **({"code": str(OWN)} | changes))  # type: ignore[arg-type]
    (refused,) = refusals(spec, settings)
    assert refused.field == field
    assert what in refused.what
    assert refused.remedy
    with pytest.raises(RecordRefused, match=re.escape(str(refused))) as caught:
        job_of(images.build_for(spec, settings)[0], settings)
    assert not caught.value.retryable


def test_every_wrong_field_of_a_record_is_named_at_once() -> None:
    spec = replace(SPEC, image="-it", code="work", dataset="work", checkpoints="work")
    found = [refused.field for refused in refusals(spec, SETTINGS)]
    assert found == ["image", "code", "dataset", "checkpoints"]
    assert refusals(replace(SPEC, code="claim:storage/code/a"), SETTINGS) == ()


def test_a_writable_volume_of_the_operator_may_hold_checkpoints() -> None:
    shared = ClaimMount("shared", "/data", read_only=False)
    spec = replace(SPEC, checkpoints="/data/run-1")
    assert told_with(spec, replace(SETTINGS, mounts=(shared,))).checkpoints == "/data/run-1"
    with pytest.raises(RecordRefused, match="would be lost"):
        job_of(spec, replace(SETTINGS, mounts=(replace(shared, read_only=True),)))


def told_with(spec: LaunchSpec, settings: PodSettings) -> AttemptSpec:
    data = manifests.secret(made(spec, settings), "t", None)["data"]["spec.json"]
    return codec.loads(AttemptSpec, base64.b64decode(data))


@pytest.mark.parametrize(
    ("word", "python"),
    [
        ("python", "python3"),
        ("python3.12", "python3.12"),
        ("/opt/venv/bin/python", "/opt/venv/bin/python"),
        ("venv/bin/python", "python3"),
        ("./train", "python3"),
        ("$(X)/python", "python3"),
    ],
)
def test_the_sidecar_runs_with_the_commands_own_python(word: str, python: str) -> None:
    found = pod_of(replace(SPEC, command=(word, "train.py")))
    assert found["containers"][0]["command"][0] == python
    assert found["initContainers"][0]["command"][0] == python


def test_names_are_valid_and_no_two_attempts_share_one() -> None:
    draw = random.Random(1)
    letters = string.ascii_letters + string.digits + "._-"
    names = set()
    jobs = {"a" + "".join(draw.choices(letters, k=draw.randrange(128))) for _ in range(2000)}
    for job in jobs:
        for controller, attempt in (("c1", 1), ("c2", 1), ("c1", 999_999_999)):
            name = naming.object_name(controller, job, attempt)
            assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,50}[a-z0-9])?", name), name
            names.add(name)
    assert len(names) == 3 * len(jobs)


def random_spec(draw: random.Random) -> LaunchSpec:
    """A launch whose every field is drawn, many of them from the payloads."""

    def text(*usual: str) -> str:
        return draw.choice(HOSTILE) if draw.random() < 0.1 else draw.choice(usual)

    return replace(
        SPEC,
        job=f"j{draw.randrange(10**9)}-{draw.choice(['a', 'B.c', 'x_y'])}0",
        attempt=draw.randrange(1, 10**6),
        name=text("a", "b"),
        host=draw.choice(["node1", "node2.example"]),
        command=tuple(text("python", "train.py", "-u", "--x") for _ in range(draw.randrange(1, 6))),
        code=text("claim:code/a", "/app", str(OWN / "x" / "work")),
        checkpoints=text("claim:ckpt/deep/er", "claim:code", str(OWN / "x" / "checkpoints")),
        dataset=draw.choice([None, text("claim:data", "/data/cifar")]),
        image=draw.choice([None, text("img", "registry.example/team/x:1", "x@sha256:" + "a" * 64)]),
        cpus=draw.choice([None, 0.0001, 2.5, 4096.0]),
        memory_bytes=draw.choice([None, 1 << 20, 1 << 40]),
        env=tuple((f"X{i}", text("1", "2")) for i in range(draw.randrange(4))),
        save_s=draw.choice([0.0, 30.0, 7200.0]),
        workers=draw.choice([1, 1, 2, 16]),
    )


def test_ten_thousand_generated_jobs_are_within_the_restricted_profile() -> None:
    draw = random.Random(20261121)
    launched = 0
    for _ in range(GENERATED):
        spec = random_spec(draw)
        try:
            found = job_of(spec)
        except RecordRefused:
            continue
        launched += 1
        wrong = list(pod_security.violations(found["spec"]["template"]["spec"]))
        assert wrong == [], spec
    assert launched > GENERATED / 2, "too few to say anything"


TEXT_FIELDS = ("name", "command", "code", "dataset", "checkpoints", "image", "env", "framework")


@pytest.mark.parametrize("field", TEXT_FIELDS)
def test_a_hostile_text_arrives_as_data_or_is_refused(field: str) -> None:
    usual = {"image": "img", "dataset": "/d", "code": "/c", "command": ("python", "x.py")}
    if field == "framework":
        usual["framework"] = "other"  # like each payload it is none that can save
    plain = job_of(replace(SPEC, **usual))  # type: ignore[arg-type]
    refused: list[str] = []
    for payload in HOSTILE:
        value: object = payload
        if field == "command":
            value = ("python", payload)
        elif field == "env":
            value = (("X", payload),)
        spec = replace(SPEC, **{**usual, field: value})  # type: ignore[arg-type]
        try:
            found = job_of(spec)
        except RecordRefused:
            refused.append(payload)
            continue
        if field == "name":
            for of in (found, found["spec"]["template"]):
                label = of["metadata"]["labels"].pop(naming.JOB_NAME, "none")
                assert naming.is_label(label), "it is a label as well, and one that can be"
                of["metadata"]["labels"][naming.JOB_NAME] = SPEC.name
        assert shape(found) == shape(plain), payload
        if field in ("name", "command", "env", "framework"):
            assert found == plain, "it is in the Secret alone"
            assert getattr(told(spec), field) == value
    assert (refused == []) == (field not in ("code", "dataset", "checkpoints", "image"))


def shape(value: object) -> object:
    """Keys and lengths of a manifest, without its texts."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    return [shape(inner) for inner in value] if isinstance(value, list) else type(value).__name__


def test_all_modules_of_the_sidecar_are_imported_from_the_archive_alone(tmp_path: Path) -> None:
    with zipfile.ZipFile(io.BytesIO(sidecar_archive.build().data)) as packed:
        packed.extractall(tmp_path)
        names = [name for name in packed.namelist() if name.startswith("reshape_sidecar/")]
    parts = ("agent", "init", "session", "wire")
    modules = [
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name in names
        if name.split("/")[1].removesuffix(".py") in parts and not name.endswith("__main__.py")
    ]
    assert len(modules) > 30
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n" + "\n".join(
        f"import {module}" for module in modules
    )
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)


def test_the_archive_is_the_same_bytes_each_time_and_fits_into_a_config_map() -> None:
    first = sidecar_archive.build()
    assert first == sidecar_archive.build()
    text = json.dumps(manifests.config_map(first, SETTINGS))
    assert len(text) < 1 << 20
    assert first.name != SIDECAR.name
