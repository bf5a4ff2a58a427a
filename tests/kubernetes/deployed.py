"""The manifests of deploy/ as tests use them: read, rendered by helm, and fitted to a test's place.

Does: gives documents. Never: changes what the manifests say of security, rights or probes. State:
none.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.kubernetes import helm
from tests.kubernetes.running import run

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
PLAIN = (DEPLOY / "kubernetes.yaml", DEPLOY / "controller.yaml")
CHART = DEPLOY / "chart"
Document = dict[str, Any]


def plain(namespace: str = "training") -> list[Document]:
    """What an operator applies by hand, without the namespace itself."""
    text = "\n---\n".join(file.read_text() for file in PLAIN)
    text = text.replace("training", namespace)
    if namespace != "training":  # other tests use these nodes too
        text = text.replace("kube-public", namespace)
    return [d for d in yaml.safe_load_all(text) if d["kind"] != "Namespace"]


def rendered(*values: str, namespace: str = "training", release: str = "reshape") -> list[Document]:
    """What helm makes of the chart. Raises ClusterError with helm's own words."""
    words = [word for value in values for word in ("--set", value)]
    text = run(helm.provide(), "template", release, CHART, "--namespace", namespace, *words)
    _, _, documents = text.partition("---\n")  # before them helm speaks of the chart's link
    return [document for document in yaml.safe_load_all(documents) if document]


def by_name(documents: list[Document]) -> dict[tuple[str, str], Document]:
    """Documents by kind and name."""
    return {(d["kind"], d["metadata"]["name"]): d for d in documents}
