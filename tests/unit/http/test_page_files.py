"""The page's files are served without a token, under a strict policy, and nothing else is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from reshape_controller.http.page_files import FOLDER, page_files
from tests.support.http_bed import Api, run
from tests.support.vendored import TABLES, differing, entries


def test_the_root_leads_to_the_page_which_needs_no_token(tmp_path: Path) -> None:
    async def test(it: Api) -> None:
        found = await it.ask("GET", "/", token=None)  # the client follows the redirection
        assert found.code == 200
        assert b'<div id="app">' in found.body
        assert found.headers["content-type"] == "text/html; charset=utf-8"

    run(tmp_path, test)


def test_every_file_of_the_page_comes_with_the_strict_policy(tmp_path: Path) -> None:
    async def test(it: Api) -> None:
        for name, file in page_files().items():
            found = await it.ask("GET", f"/page/{name}", token=None)
            assert (found.code, found.body) == (200, file.content), name
            policy = found.headers["content-security-policy"]
            assert "default-src 'self'" in policy
            assert "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy
            assert found.headers["x-content-type-options"] == "nosniff"
            assert found.headers["referrer-policy"] == "no-referrer"

    run(tmp_path, test)


def test_a_file_that_did_not_change_is_not_sent_again(tmp_path: Path) -> None:
    async def test(it: Api) -> None:
        etag = (await it.get("/page/app.js")).headers["etag"]
        again = await it.get("/page/app.js", If_None_Match=etag)
        assert (again.code, again.body) == (304, b"")

    run(tmp_path, test)


def test_no_file_outside_of_the_page_is_served(tmp_path: Path) -> None:
    async def test(it: Api) -> None:
        for path in ("../app.py", "..%2fapp.py", "%2e%2e/app.py", "//etc/passwd", "nothing.js"):
            head = f"GET /page/{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
            found = await it.raw(head.encode())
            assert found.startswith(b"HTTP/1.1 404"), path

    run(tmp_path, test)


@pytest.mark.parametrize("table", TABLES, ids=lambda path: path.parts[-4])
def test_the_vendored_files_are_those_that_their_table_names(table: Path) -> None:
    assert differing(table) == []
    for entry in entries(table):
        assert all(entry[key] for key in ("package", "version", "path", "licence"))


def test_the_page_needs_no_inline_script_or_style_and_writes_no_markup() -> None:
    index = (FOLDER / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", index)
    for path in FOLDER.glob("*.js"):
        text = path.read_text()
        for name in ("innerHTML", "outerHTML", "insertAdjacentHTML", "eval(", "document.write"):
            assert name not in text, f"{path.name}: {name}"
        assert "https://" not in text, f"{path.name} names another machine"
        assert len(text.splitlines()) <= 500, f"split {path.name}"
