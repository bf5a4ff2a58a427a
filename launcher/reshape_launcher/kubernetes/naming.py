"""Names and labels of this launcher's objects; by the labels it finds them and no others.

Names are short, valid, and differ between attempts. A user's text is reduced to valid characters.
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
"""Annotation: the job's whole id, which is too long for a label."""
HOST = f"{DOMAIN}/host"
"""Annotation: the node of a Job and its pods that are a part of a gang."""
REASON = f"{DOMAIN}/reason"
"""Annotation: why the controller itself ended the attempt."""
LASTING = f"{DOMAIN}/lasting"
"""Annotation: another attempt would end in the same way."""
RELEASED = f"{DOMAIN}/released"
"""Annotation: the launch is complete, so a suspension is another controller's."""
QUEUE = "kueue.x-k8s.io/queue-name"
"""Label of a Job that a queueing system admits; the operator or the system's webhook sets it."""
JOB_CONTROLLER = "kubernetes.io/job-controller"
"""Value of ``managedBy`` of a Job that no other controller starts."""
USER, JOB_NAME, JOB_TYPE = f"{DOMAIN}/user", f"{DOMAIN}/job-name", f"{DOMAIN}/job-type"
"""Labels by which tools tell costs apart. Reshape itself does not read them."""
NODE_LEASE = f"{DOMAIN}/node-lease"
"""Label of the Leases of nodes."""
NODE = f"{DOMAIN}/node"
"""Annotation: the node of a Lease."""
HOLDER = f"{DOMAIN}/held-by"
"""Annotation: the controller that has a Lease, in words."""
JOB_NAME_LABEL = "batch.kubernetes.io/job-name"
MANAGED_BY = "app.kubernetes.io/managed-by"
PROGRAM = "reshape"
NAME_CHARS_MAX = 50
"""Limit of a Job's name: it is a label of its pods (63 characters), whose own names have up to
eleven characters more (the worker's number and six random ones)."""
OBJECT_CHARS_MAX = 253
"""Limit of an object's name."""
DIGEST_CHARS = 10
LABEL = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
"""Pattern of a label's value, and of its key after the domain."""
LABEL_CHARS_MAX = 63
_NOT_IN_LABEL = re.compile(r"[^A-Za-z0-9._-]+")
_NOT_IN_NAME = re.compile(r"[^a-z0-9-]+")


def is_label(text: str) -> bool:
    """True if the text can be the value of a label."""
    return re.fullmatch(LABEL, text) is not None


def label_of(text: str) -> str:
    """Return any text as the value of a label. Where it has to be changed it gets a digest, so that
    two texts never have one label."""
    if is_label(text) or not text:
        return text
    end = f"-{hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()[:DIGEST_CHARS]}"
    words = _NOT_IN_LABEL.sub("-", text)[: LABEL_CHARS_MAX - len(end)].strip("._-")
    return f"{words or 'x'}{end}"


def cost_labels(user: str, job_name: str, job_type: str | None) -> dict[str, str]:
    """Return the labels that say whose and what job it is, without those that are not known."""
    texts = {USER: user, JOB_NAME: job_name, JOB_TYPE: job_type or ""}
    return {key: label_of(text) for key, text in texts.items() if text}


def key_of(controller: str, job: str) -> str:
    """Return a short name of a controller's job, valid as a part of a DNS name."""
    return hashlib.sha256(f"{controller}/{job}".encode()).hexdigest()[:DIGEST_CHARS]


def object_name(controller: str, job: str, attempt: int, host: int | None = None) -> str:
    """Return the name of an attempt's Job and Secret: a readable part, then a unique one.

    ``host``: the number of one of a gang's hosts, which has a Job and a Secret of its own.
    """
    part = "" if host is None else f"-host{host}"
    end = f"-{key_of(controller, job)}-{attempt}{part}"
    words = _NOT_IN_NAME.sub("-", job.lower())[: NAME_CHARS_MAX - len(end)].strip("-")
    return f"{words or 'job'}{end}"


def node_lease_name(node: str) -> str:
    """Return the name of a node's Lease."""
    digest = hashlib.sha256(node.encode()).hexdigest()[:DIGEST_CHARS]
    name = f"reshape-node-{node}"
    return name if len(name) <= OBJECT_CHARS_MAX else f"{name[: OBJECT_CHARS_MAX - 11]}-{digest}"


def labels(controller: str, job: str, attempt: int, version: str) -> dict[str, str]:
    """Return the labels of everything that belongs to an attempt."""
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
    """Return the name of a probe's Job, which differs for each ``run``."""
    digest = hashlib.sha256(f"{node}/{run}".encode()).hexdigest()[:DIGEST_CHARS]
    words = _NOT_IN_NAME.sub("-", node.lower())[: NAME_CHARS_MAX - len(digest) - 11].strip("-")
    return f"gpu-probe-{words}-{digest}"


def check_name(run: str) -> str:
    """Return the name of the Job by which ``doctor`` tries the image and the address."""
    return f"doctor-{run}"


def probe_labels(controller: str) -> dict[str, str]:
    """Return the labels of probes; ``selector`` does not match them."""
    return {"app.kubernetes.io/name": PROGRAM, MANAGED_BY: PROGRAM, PROBE: controller}


def probes(controller: str) -> str:
    """Return the label selector of a controller's probes."""
    return f"{MANAGED_BY}={PROGRAM},{PROBE}={controller}"


def ours(controller: str) -> dict[str, str]:
    """Return the labels of objects that belong to an attempt's Job; ``selector`` matches them."""
    return {MANAGED_BY: PROGRAM, CONTROLLER: controller}


def attempt_labels(controller: str, job: str, attempt: int) -> dict[str, str]:
    """Return the labels by which the Jobs and pods of an attempt are found, on all its hosts."""
    own = {JOB_KEY: key_of(controller, job), ATTEMPT: str(attempt)}
    return ours(controller) | own


def selector(controller: str) -> str:
    """Return the label selector of all objects of a controller except probes."""
    return f"{MANAGED_BY}={PROGRAM},{CONTROLLER}={controller}"
