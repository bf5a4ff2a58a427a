"""Failures of calls to the API server, as KubernetesError.

Does: translate every failure of the official client, and an answer that is no document of the API
(a proxy on the way may answer with a page of its own). Never: show a credential.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, TypeVar

from kubernetes import client
from urllib3.exceptions import HTTPError

from reshape_launcher.kubernetes.values import KubernetesError

RETRY_AFTER_MAX_S = 60.0
"""Longest pause that a server can ask for."""
_OBJECT = re.compile(r"<[^<>]* object at 0x[0-9a-f]+>: ")
"""Differs at each failure, so the same failure would be logged each time."""

T = TypeVar("T")


def call(what: str, ask: Callable[..., T], *arguments: Any, **options: Any) -> T:
    """Return the result of ``ask``. Raises KubernetesError; ``what`` names the call that failed."""
    try:
        found = ask(*arguments, **options)
    except client.ApiException as error:
        raise refusal(what, error) from None
    except (HTTPError, OSError) as error:
        raise unreached(what, error) from None
    except (ValueError, TypeError, RecursionError) as error:  # the client's parser fails so
        first = str(error).partition("\n")[0]
        raise KubernetesError(what, 0, f"the API server's answer is not valid: {first}") from None
    if found is None:
        raise KubernetesError(what, 0, "the API server's answer is not valid: null")
    return found


def refusal(what: str, error: Any) -> KubernetesError:
    """Return the failure of a call to which the server answered with an ApiException."""
    return KubernetesError(what, int(error.status or 0), *_said(error), _retry_after_s(error))


def unreached(what: str, error: Exception) -> KubernetesError:
    """Return the failure of a call to which no answer came."""
    text = _OBJECT.sub("", str(getattr(error, "reason", None) or error))
    return KubernetesError(what, 0, f"the Kubernetes API server does not answer: {text}")


def none_if(why: int | str, ask: Callable[[], T]) -> T | None:
    """Return the result of ``ask``; None if the server refuses with this status or reason."""
    try:
        return ask()
    except KubernetesError as trouble:
        if why not in (trouble.status, trouble.reason):
            raise
        return None


def _retry_after_s(error: Any) -> float:
    """Return the pause that the server asks for, in whole seconds; 0 if it asks for none."""
    text = (error.headers or {}).get("Retry-After") or ""
    return min(RETRY_AFTER_MAX_S, float(text)) if text.isascii() and text.isdigit() else 0.0


def _said(error: Any) -> tuple[str, str]:
    """Return the message and reason of the API's Status document."""
    try:
        said = json.loads(error.body)
        return str(said["message"]), str(said.get("reason"))
    except (TypeError, ValueError, KeyError):
        return str(error.reason or error.status), ""
