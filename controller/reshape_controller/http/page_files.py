"""Handlers of the page that people open in a browser: its files, under a strict policy.

Does: serves the files of the folder ``page`` as they are, without a token; they hold no data. The
page asks the API for everything that it shows. Never: serves a file outside of that folder.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

from reshape_controller.access.rights import Right
from reshape_controller.http.base import Gate
from reshape_controller.http.errors import ApiError, ErrorBody

FOLDER = Path(__file__).resolve().parent / "page"
INDEX = "index.html"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json; charset=utf-8",
    ".svg": "image/svg+xml; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
}
"""Kinds of files that the page may have."""
POLICY = "; ".join(
    (
        "default-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "object-src 'none'",
    )
)
"""The browser runs and shows nothing but these files, and sends nothing elsewhere."""
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
}


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file of the page, as it is sent."""

    content: bytes
    kind: str


@functools.cache
def page_files() -> dict[str, PageFile]:
    """Return the files of the page by their path below its folder; they are read once."""
    found = {}
    for path in sorted(FOLDER.rglob("*")):
        if path.is_file() and path.suffix in TYPES:
            content = path.read_bytes()
            found[path.relative_to(FOLDER).as_posix()] = PageFile(content, TYPES[path.suffix])
    return found


class Public(Gate):
    """Base of the handlers that need no token."""

    def right(self) -> Right:
        """No token is needed."""
        return Right.OPEN

    def set_default_headers(self) -> None:
        super().set_default_headers()
        for name, value in HEADERS.items():
            self.set_header(name, value)

    def template(self) -> str:
        """One name for all paths, for the metrics."""
        return "/page/"


class ToPage(Public):
    """GET ``/`` and ``/page``: the page is below."""

    def get(self) -> None:
        self.redirect("/page/")


class Page(Public):
    """GET a file of the page."""

    def get(self, name: str) -> None:
        file = page_files().get(name or INDEX)
        if file is None:
            raise ApiError(404, ErrorBody("not-found", f"the page has no file {name!r:.80}"))
        self.set_header("Content-Type", file.kind)
        self.set_header("Cache-Control", "no-cache")
        self.finish(file.content)  # with an ETag, or as 304
