"""The operator's file about a Kubernetes cluster: settings of every pod of this controller.

Does: read the file strictly and report all problems at once. It has no credentials.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from reshape_controller.cli.exits import CliError, Exit, failed
from reshape_controller.records.memory import memory_bytes
from reshape_gpu import strict_yaml
from reshape_gpu.errors import Problem
from reshape_gpu.strict_yaml import NotYaml
from reshape_launcher.kubernetes import naming
from reshape_launcher.kubernetes import settings as defaults
from reshape_launcher.kubernetes.settings import ClaimMount, OpenClaim, PodSettings
from reshape_sidecar import foreign

_NAME = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
_PART = r"[A-Za-z0-9_-][A-Za-z0-9._-]*"
_FOLDER = rf"^(/{_PART})+$"
_SUB_FOLDER = rf"^{_PART}(/{_PART})*$"
_USERS_FOLDER = rf"^$|^({_PART}|\{{user\}})(/({_PART}|\{{user\}}))*$"
_DOMAIN = r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?"
_RESERVED = f"{naming.DOMAIN}/"


def _not_reserved(key: str) -> str:
    """Refuse keys by which the launcher finds its objects."""
    if key.startswith(_RESERVED):
        raise ValueError(f"{key!r}: Reshape sets the keys of {naming.DOMAIN} itself; leave it out")
    return key


Name = Annotated[str, Field(pattern=_NAME)]
Label = Annotated[str, Field(pattern=rf"^({_DOMAIN}/)?{naming.LABEL}$")]
OwnLabel = Annotated[Label, AfterValidator(_not_reserved)]
LabelValue = Annotated[str, Field(pattern=rf"^({naming.LABEL})?$")]
Image = Annotated[str, Field(min_length=1, max_length=255)]
Bytes = Annotated[int, Field(ge=1 << 20, le=1 << 46), BeforeValidator(memory_bytes)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Mount(_Strict):
    """A claim that every pod gets."""

    claim: Name
    path: str = Field(pattern=_FOLDER)
    folder: str = Field("", pattern=rf"^$|{_SUB_FOLDER}")
    read_only: bool = True


class Claim(_Strict):
    """A claim, or a folder of it, that records may name."""

    claim: Name
    folder: str = Field("", pattern=_USERS_FOLDER)
    read_only: bool = True


class ClusterFile(_Strict):
    """Everything has a default but the namespace."""

    namespace: Name
    controller: str = Field("reshape", max_length=63)
    image: str | None = None
    registry: str | None = Field(None, pattern=r"^[a-z0-9][a-z0-9._:/-]{0,200}[a-z0-9]$")
    storage_claim: Name | None = None
    storage_folder: str | None = Field(None, pattern=_FOLDER)
    controller_claim: Name | None = None
    claims: list[Claim] | None = None
    images: list[Image] = Field(default_factory=list)
    mounts: list[Mount] = Field(default_factory=list)
    user_id: int = Field(defaults.USER_ID, ge=1, le=2**31 - 1)
    cpus: float = Field(defaults.CPUS, gt=0, le=4096)
    memory: Bytes = defaults.MEMORY_BYTES
    scratch: Bytes = defaults.SCRATCH_BYTES
    keep_finished_s: int = Field(defaults.FINISHED_TTL_S, ge=1, le=30 * 24 * 3600)
    runtime_class: Name | None = None
    tolerate_taints: list[str] = Field(default_factory=list)
    node_labels: dict[Label, LabelValue] = Field(default_factory=dict)
    labels: dict[OwnLabel, LabelValue] = Field(default_factory=dict)
    annotations: dict[OwnLabel, str] = Field(default_factory=dict)
    priority_class: Name | None = None
    image_pull_secrets: list[Name] = Field(default_factory=list)
    node_lease_namespace: Name = defaults.NODE_LEASE_NAMESPACE


def read(path: Path) -> PodSettings:
    """Return the settings in the file. Raises CliError (usage) with every problem."""
    try:
        text = foreign.read_text(path, foreign.SETTINGS_BYTES_MAX)
    except (OSError, UnicodeDecodeError) as error:
        what = f"the cluster file cannot be read: {getattr(error, 'strerror', None) or error}"
        raise failed(
            Exit.USAGE, what, str(path), "give a YAML file with at least `namespace: NAME`"
        ) from None
    try:
        value = strict_yaml.load(text)
    except NotYaml as error:
        what = f"the cluster file cannot be read as YAML: {error}"
        raise failed(Exit.USAGE, what, str(path), "write lines like: namespace: NAME") from None
    try:
        file = ClusterFile.model_validate(value)
    except ValidationError as error:
        found = error.errors(include_url=False)
        raise CliError(Exit.USAGE, *(_problem(path, one) for one in found)) from None
    if not naming.is_label(file.controller):
        what = f"controller: {file.controller!r} is not a valid Kubernetes label"
        raise failed(Exit.USAGE, what, str(path), "use letters, digits and -")
    jobs_have = {file.storage_claim, *(each.claim for each in (*file.mounts, *(file.claims or ())))}
    if file.controller_claim in jobs_have - {None}:
        what = f"controller_claim: {file.controller_claim!r} has the controller's token and store"
        remedy = "give jobs another claim in storage_claim, mounts and claims"
        raise failed(Exit.USAGE, what, str(path), remedy)
    return _settings(file)


def _settings(file: ClusterFile) -> PodSettings:
    return PodSettings(
        namespace=file.namespace,
        controller=file.controller,
        image=file.image,
        registry=file.registry,
        storage_claim=file.storage_claim,
        storage_folder=file.storage_folder,
        controller_claim=file.controller_claim,
        claims=None
        if file.claims is None
        else tuple(OpenClaim(c.claim, c.folder, c.read_only) for c in file.claims),
        images=tuple(file.images),
        mounts=tuple(ClaimMount(m.claim, m.path, m.folder, m.read_only) for m in file.mounts),
        user_id=file.user_id,
        cpus=file.cpus,
        memory_bytes=file.memory,
        scratch_bytes=file.scratch,
        finished_ttl_s=file.keep_finished_s,
        runtime_class=file.runtime_class,
        tolerated_taints=tuple(file.tolerate_taints),
        node_labels=tuple(sorted(file.node_labels.items())),
        labels=tuple(sorted(file.labels.items())),
        annotations=tuple(sorted(file.annotations.items())),
        priority_class=file.priority_class,
        image_pull_secrets=tuple(file.image_pull_secrets),
        node_lease_namespace=file.node_lease_namespace,
    )


def _problem(path: Path, error: object) -> Problem:
    assert isinstance(error, dict)
    field = ".".join(str(part) for part in error["loc"]) or "the file"
    known = ", ".join(ClusterFile.model_fields)
    return Problem(f"{field}: {error['msg']}", str(path), f"known fields: {known}")
