"""What comes of a call to the API server when it is not the document that was asked for.

Does: turns every failure of the official client into ApiTrouble, and what is no document too: a
proxy on the way may answer with a page of its own. Never: retries, or shows a credential. State:
none.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

from kubernetes import client
from urllib3.exceptions import HTTPError

from reshape_launcher.kubernetes.values import ApiTrouble

T = TypeVar("T")


def call(what: str, ask: Callable[..., T], *arguments: Any, **options: Any) -> T:
    """What ``ask`` gives. Raises ApiTrouble, of which ``what`` says what could not be done."""
    try:
        found = ask(*arguments, **options)
    except client.ApiException as error:
        raise ApiTrouble(what, int(error.status or 0), *_said(error)) from None
    except (HTTPError, OSError) as error:
        raise ApiTrouble(what, 0, f"the API server does not answer: {error}") from None
    except (ValueError, TypeError, RecursionError) as error:  # as the client's parser ends
        first = str(error).partition("\n")[0]
        raise ApiTrouble(what, 0, f"the API server's answer is not valid: {first}") from None
    if found is None:
        raise ApiTrouble(what, 0, "the API server's answer is not valid: null")
    return found


def unless(why: int | str, ask: Callable[[], T]) -> T | None:
    """What ``ask`` gives; None where it was refused with this status or reason."""
    try:
        return ask()
    except ApiTrouble as trouble:
        if why not in (trouble.status, trouble.reason):
            raise
        return None


def _said(error: Any) -> tuple[str, str]:
    """The API's own message and reason, from its Status document."""
    try:
        said = json.loads(error.body)
        return str(said["message"]), str(said.get("reason"))
    except (TypeError, ValueError, KeyError):
        return str(error.reason or error.status), ""
