"""The Kubernetes API as tests use it: JSON over HTTPS, standard library and PyYAML only.

Does: reads a kubeconfig (token or client certificate), gets, creates, changes and deletes. Never:
shares code with the launcher, so that a test does not see the cluster through what it tests. State:
none.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import tempfile
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

TIMEOUT_S = 20.0
SEND_S = 300.0
"""For what is large."""
NOT_FOUND = 404
MERGE = "application/merge-patch+json"


class ApiError(Exception):
    """The API server refused, or could not be reached (``status`` None)."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Api:
    """One API server with one user's credentials. Paths are those of the API."""

    url: str
    token: str | None
    trust: ssl.SSLContext

    @classmethod
    def of(cls, kubeconfig: Path) -> Api:
        """The current context of a kubeconfig. Raises ApiError."""
        try:
            whole = yaml.safe_load(kubeconfig.read_text())
            context = _named(whole["contexts"], whole["current-context"])["context"]
            cluster = _named(whole["clusters"], context["cluster"])["cluster"]
            user = _named(whole["users"], context["user"])["user"]
        except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
            raise ApiError(
                f"{kubeconfig} is no kubeconfig with a current context: {error!r}"
            ) from None
        if "token" not in user and not any(key.startswith("client-cert") for key in user):
            raise ApiError(f"{kubeconfig}: tests need a token or a client certificate in it")
        trust = _trust(cluster, user)
        return cls(cluster["server"].rstrip("/"), user.get("token"), trust)

    def get(self, path: str) -> Any:
        return json.loads(self._ask("GET", path))

    def text(self, path: str) -> str:
        """An answer that is no JSON: logs, health."""
        return self._ask("GET", path).decode(errors="replace")

    def find(self, path: str) -> Any | None:
        """An object, or None if there is none."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.status == NOT_FOUND:
                return None
            raise

    def create(self, path: str, thing: dict[str, Any]) -> Any:
        """Create ``thing`` in the collection ``path``."""
        return json.loads(self._ask("POST", path, thing))

    def change(self, path: str, patch: dict[str, Any]) -> Any:
        """A merge patch."""
        return json.loads(self._ask("PATCH", path, patch, kind=MERGE))

    def delete(self, path: str, grace_s: int | None = None) -> None:
        """Delete an object with what it owns; one that is gone is no error."""
        options: dict[str, Any] = {"propagationPolicy": "Background"}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        try:
            self._ask("DELETE", path, options)
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise

    def send(self, verb: str, path: str, body: bytes) -> None:
        """Bytes for a pod, through the API server's proxy to it."""
        self._ask(verb, path, body, kind="application/octet-stream", timeout_s=SEND_S)

    def stream(self, path: str, read_s: float) -> Any:
        """An answer that goes on, as of a watch: a context, and the lines in it."""
        return self._open(self._request("GET", path), read_s)

    def _ask(
        self,
        verb: str,
        path: str,
        body: object = None,
        *,
        kind: str = "application/json",
        timeout_s: float = TIMEOUT_S,
    ) -> bytes:
        request = self._request(verb, path, body, kind=kind)
        try:
            with self._open(request, timeout_s) as answer:
                found: bytes = answer.read()
                return found
        except urllib.error.HTTPError as error:
            with error:
                said = error.read().decode(errors="replace")
            raise ApiError(f"{verb} {path}: {error.code} {_message(said)}", error.code) from None
        except (OSError, http.client.HTTPException) as error:
            raise ApiError(f"{verb} {path}: {self.url} cannot be reached: {error}") from None

    def _request(
        self, verb: str, path: str, body: object = None, *, kind: str = "application/json"
    ) -> urllib.request.Request:
        headers = {"Accept": "application/json, */*", "Content-Type": kind}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        return urllib.request.Request(self.url + path, data, headers, method=verb)

    def _open(self, request: urllib.request.Request, timeout_s: float) -> Any:
        # Its own opener: a proxy of the environment is not for this machine's bridge.
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=self.trust)
        )
        return opener.open(request, timeout=timeout_s)


def _named(entries: list[dict[str, Any]], name: str) -> dict[str, Any]:
    for entry in entries:
        if entry["name"] == name:
            return entry
    raise KeyError(name)


def _trust(cluster: dict[str, Any], user: dict[str, Any]) -> ssl.SSLContext:
    authority = cluster.get("certificate-authority-data")
    trust = ssl.create_default_context(
        cafile=cluster.get("certificate-authority"),
        cadata=base64.b64decode(authority).decode() if authority else None,
    )
    if "client-certificate-data" in user:
        with tempfile.NamedTemporaryFile() as file:
            for part in ("client-certificate-data", "client-key-data"):
                file.write(base64.b64decode(user[part]) + b"\n")
            file.flush()
            trust.load_cert_chain(file.name)
    elif "client-certificate" in user:
        trust.load_cert_chain(user["client-certificate"], user["client-key"])
    return trust


def _message(said: str) -> str:
    try:
        return str(json.loads(said)["message"])
    except (ValueError, KeyError, TypeError):
        return said[:500]
