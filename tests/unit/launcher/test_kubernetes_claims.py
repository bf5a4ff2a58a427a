"""Which volume claims, folders and images a record may name, and what its pod mounts of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reshape_launcher.kubernetes.pod_mounts import CHECKPOINTS, CODE, DATASET, OWN, mounts_of
from reshape_launcher.kubernetes.settings import ClaimMount, OpenClaim, PodSettings
from reshape_launcher.kubernetes.validation import refusals
from reshape_launcher.spec import LaunchSpec, RecordRefused
from tests.unit.launcher.test_kubernetes_manifests import SPEC

UNLISTED = PodSettings(
    namespace="jobs",
    controller="c1",
    image="base:1",
    storage_claim="storage",
    controller_claim="reshape",
)
LISTED = replace(
    UNLISTED,
    claims=(
        OpenClaim("data"),
        OpenClaim("work", "{user}", read_only=False),
        OpenClaim("storage", "code"),
        OpenClaim("storage", "home/{user}/runs", read_only=False),
    ),
    images=("registry.example/team/",),
)
OTHERS = "victim-0a1b2c3d"


def ada(**fields: Any) -> LaunchSpec:
    own = {"code": str(OWN), "checkpoints": str(OWN / SPEC.job / "checkpoints"), "user": "ada"}
    return replace(SPEC, **(own | fields))


FOREIGN = {
    "the controller's claim as a dataset": {"dataset": "claim:reshape"},
    "a folder of the controller's claim": {"code": "claim:reshape/home"},
    "the controller's claim as checkpoints": {"checkpoints": "claim:reshape/home/jobs"},
    "another job's checkpoints": {"checkpoints": f"claim:storage/{OTHERS}/checkpoints"},
    "another job's checkpoints as data": {"dataset": f"claim:storage/{OTHERS}/checkpoints"},
    "another job's logs as code": {"code": f"claim:storage/{OTHERS}/attempt-1/logs"},
    "a folder of jobs with dots before it": {"code": f"claim:storage/.//./{OTHERS}"},
    "another job's folder in capitals": {"code": f"claim:storage/{OTHERS.upper()}/logs"},
    "another job's folder with a dot": {"checkpoints": f"claim:storage/{OTHERS}./checkpoints"},
    "another job's folder with a blank": {"dataset": f"claim:storage/{OTHERS} ./checkpoints"},
    "the whole storage claim": {"dataset": "claim:storage"},
    "the whole storage claim with dots": {"checkpoints": "claim:storage/./"},
    "a claim that nobody opened": {"dataset": "claim:theirs/data"},
    "one above": {"code": "claim:storage/code/../x"},
    "one above, to a job": {"dataset": f"claim:work/../{OTHERS}"},
}
CLOSED = {
    "another user's folder": {"checkpoints": "claim:work/bob/run"},
    "a folder that begins with the user's name": {"checkpoints": "claim:work/adam"},
    "the parent of the users' folders": {"dataset": "claim:work"},
    "checkpoints on a claim for reading": {"checkpoints": "claim:data/run"},
    "beside the listed folder": {"code": "claim:storage/codes"},
    "another user's home": {"dataset": "claim:storage/home/bob/runs"},
    "another image": {"image": "registry.example/secret/model:1"},
}


@pytest.mark.parametrize("settings", [UNLISTED, LISTED], ids=["no list", "list"])
@pytest.mark.parametrize("fields", FOREIGN.values(), ids=FOREIGN.keys())
def test_what_is_not_open_is_refused_with_field_and_remedy(
    fields: dict[str, str], settings: PodSettings
) -> None:
    (refused,) = refusals(ada(**fields), settings)
    assert refused.field in fields
    assert refused.remedy


@pytest.mark.parametrize("fields", CLOSED.values(), ids=CLOSED.keys())
def test_what_a_list_does_not_open_to_this_user_is_refused(fields: dict[str, str]) -> None:
    (refused,) = refusals(ada(**fields), LISTED)
    assert refused.field in fields
    assert refused.remedy


@pytest.mark.parametrize("user", ["", "..", "a/b", "unverified:ada", "{user}", "a\n"])
def test_a_user_whose_name_is_no_folder_has_none(user: str) -> None:
    spec = ada(checkpoints=f"claim:work/{user}/x", user=user)
    assert [refused.field for refused in refusals(spec, LISTED)] == ["checkpoints"]


def test_the_controllers_claim_is_not_mounted_whatever_was_accepted_before() -> None:
    for field in ("code", "dataset", "checkpoints"):
        with pytest.raises(RecordRefused, match="the controller's own claim"):
            mounts_of(ada(**{field: "claim:reshape/home"}), UNLISTED)


def test_without_a_list_the_storage_claim_is_open_outside_of_the_folders_of_jobs() -> None:
    spec = ada(
        code="claim:storage/code/x", dataset="claim:storage/d", checkpoints="claim:storage/c"
    )
    assert refusals(spec, UNLISTED) == ()
    code, checkpoints, dataset, _logs = mounts_of(spec, UNLISTED).claims
    assert code == ClaimMount("storage", CODE, "code", read_only=False)
    assert mounts_of(spec, UNLISTED).code == f"{CODE}/x", "a link below leads nowhere else"
    assert checkpoints == ClaimMount("storage", CHECKPOINTS, "c", read_only=False)
    assert dataset == ClaimMount("storage", DATASET, "d", read_only=True)
    assert refusals(ada(), UNLISTED) == (), "its own folder, which it does not name"
    assert refusals(ada(), replace(UNLISTED, controller_claim=None)) == ()


def test_of_a_listed_claim_the_listed_folder_is_mounted_so_links_lead_nowhere_else() -> None:
    spec = ada(
        code="claim:storage/code/x/y",
        dataset="claim:data/cifar",
        checkpoints="claim:storage/home/ada/runs/one",
    )
    assert refusals(spec, LISTED) == ()
    found = mounts_of(spec, LISTED)
    code, checkpoints, dataset, _logs = found.claims
    assert code == ClaimMount("storage", CODE, "code", read_only=True)
    assert checkpoints == ClaimMount("storage", CHECKPOINTS, "home/ada/runs", read_only=False)
    assert dataset == ClaimMount("data", DATASET, "", read_only=True)
    places = (found.code, found.checkpoints, found.dataset)
    assert places == (f"{CODE}/x/y", f"{CHECKPOINTS}/one", f"{DATASET}/cifar")


def test_a_listed_storage_claim_never_has_the_folders_of_jobs_in_a_pod() -> None:
    whole = replace(UNLISTED, claims=(OpenClaim("storage", read_only=False),))
    spec = ada(code="claim:storage/code/x", checkpoints=f"claim:storage/{OTHERS}/checkpoints")
    assert [refused.field for refused in refusals(spec, whole)] == ["checkpoints"]
    assert mounts_of(spec, whole).claims[0].sub_path == "code"


def test_what_was_accepted_before_a_list_is_launched_as_before() -> None:
    spec = ada(checkpoints="claim:theirs/run")
    assert refusals(spec, LISTED)
    assert mounts_of(spec, LISTED).claims[0] == ClaimMount("theirs", CHECKPOINTS, "run", False)
