"""The values of the page's login, as the API answers them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SessionView:
    """A session of the page. ``csrf``: goes into the header X-Reshape-CSRF of each request that
    changes something; empty for a token, which needs none."""

    user: str
    role: str
    csrf: str


@dataclass(frozen=True, slots=True)
class PageLink:
    """A secret that opens one session of the page, within so many seconds."""

    link: str
    expires_in_s: float
