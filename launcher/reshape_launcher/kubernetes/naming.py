"""Names and labels of what this launcher makes: by them it finds its own and touches nothing else.

Does: short, valid names that two attempts never share. Never: puts a user's text into a name or a
label as it is. State: none.
"""

from __future__ import annotations

import hashlib
import re

DOMAIN = "reshape.dev"
CONTROLLER = f"{DOMAIN}/controller"
JOB_KEY = f"{DOMAIN}/job-key"
ATTEMPT = f"{DOMAIN}/attempt"
PROBE = f"{DOMAIN}/gpu-probe"
JOB = f"{DOMAIN}/job"
"""Annotation: the job's whole id. A label has no room for it."""
REASON = f"{DOMAIN}/reason"
"""Annotation: why the controller itself ended the attempt."""
LASTING = f"{DOMAIN}/lasting"
"""Annotation: another attempt would end in the same way."""
JOB_NAME_LABEL = "batch.kubernetes.io/job-name"
MANAGED_BY = "app.kubernetes.io/managed-by"
PROGRAM = "reshape"
NAME_CHARS_MAX = 50
"""A Job's name is a label of its pods (63), and theirs has up to eleven characters more: the number
of a worker and six random ones."""
DIGEST_CHARS = 10
LABEL = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
"""What the value of a label matches, and its key after the domain."""
_NOT_IN_NAME = re.compile(r"[^a-z0-9-]+")


def is_label(text: str) -> bool:
    """Whether the text can be the value of a label."""
    return re.fullmatch(LABEL, text) is not None


def key_of(controller: str, job: str) -> str:
    """A short name of a controller's job, of characters that a DNS name may have."""
    return hashlib.sha256(f"{controller}/{job}".encode()).hexdigest()[:DIGEST_CHARS]


def object_name(controller: str, job: str, attempt: int) -> str:
    """Name of the Job (and the Secret) of an attempt: readable first, then unique."""
    end = f"-{key_of(controller, job)}-{attempt}"
    words = _NOT_IN_NAME.sub("-", job.lower())[: NAME_CHARS_MAX - len(end)].strip("-")
    return f"{words or 'job'}{end}"


def labels(controller: str, job: str, attempt: int, version: str) -> dict[str, str]:
    """Labels of everything that belongs to an attempt."""
    return {
        "app.kubernetes.io/name": PROGRAM,
        "app.kubernetes.io/instance": key_of(controller, job),
        "app.kubernetes.io/component": "training",
        "app.kubernetes.io/part-of": PROGRAM,
        "app.kubernetes.io/version": version,
        MANAGED_BY: PROGRAM,
        CONTROLLER: controller,
        JOB_KEY: key_of(controller, job),
        ATTEMPT: str(attempt),
    }


def probe_name(node: str, run: str) -> str:
    """Name of the Job of a probe; another for each ``run``."""
    digest = hashlib.sha256(f"{node}/{run}".encode()).hexdigest()[:DIGEST_CHARS]
    words = _NOT_IN_NAME.sub("-", node.lower())[: NAME_CHARS_MAX - len(digest) - 11].strip("-")
    return f"gpu-probe-{words}-{digest}"


def probe_labels(controller: str) -> dict[str, str]:
    """Labels of probes; ``selector`` does not find them."""
    return {"app.kubernetes.io/name": PROGRAM, MANAGED_BY: PROGRAM, PROBE: controller}


def probes(controller: str) -> str:
    """Label selector of a controller's probes."""
    return f"{MANAGED_BY}={PROGRAM},{PROBE}={controller}"


def ours(controller: str) -> dict[str, str]:
    """Labels of what belongs to an attempt's Job; ``selector`` finds by them."""
    return {MANAGED_BY: PROGRAM, CONTROLLER: controller}


def selector(controller: str) -> str:
    """Label selector of everything that a controller made."""
    return f"{MANAGED_BY}={PROGRAM},{CONTROLLER}={controller}"
