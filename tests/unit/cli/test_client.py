"""The CLI's client against servers that answer badly, or are none of ours."""

from __future__ import annotations

import contextlib
import os
import shlex
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from reshape_controller.cli.exits import Exit, code_of
from reshape_controller.cli.home import Home
from reshape_gpu.client import Client
from reshape_gpu.errors import ClientError
from reshape_gpu.home import Address
from reshape_gpu.requests import Request
from reshape_gpu.target import Target, of_home
from reshape_gpu.values import GpuList, Health

HEALTH = Request("GET", "/healthz", Health)


@contextlib.contextmanager
def server(answer: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """Answers each connection with the same bytes; what it was sent."""
    listening = socket.create_server(("127.0.0.1", 0))
    heard: list[bytes] = []

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listening.accept()
                with connection:
                    heard.append(connection.recv(65536))
                    connection.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", heard
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()


def answer(status: int, body: str) -> bytes:
    head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return (head + body).encode()


def asked(data: bytes, folder: Path) -> ClientError:
    """The error that a client makes of an answer."""
    with server(data) as (url, _):
        with pytest.raises(ClientError) as error:
            Client.at(Target(url, "token", "", "", home=Home(folder))).ask(HEALTH)
        return error.value


@pytest.mark.parametrize(
    ("data", "code", "what"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", Exit.UNREACHABLE, "cannot be reached"),
        (b"", Exit.UNREACHABLE, "cannot be reached"),
        (answer(200, "<html>"), Exit.FAILED, "does not match this version"),
        (answer(200, '{"status": 1}'), Exit.FAILED, "does not match this version"),
        (answer(404, "<html>not found</html>"), Exit.NOT_FOUND, "not from a Reshape daemon"),
        (answer(500, '{"code": "internal"}'), Exit.FAILED, "not from a Reshape daemon"),
        (answer(503, '{"message": "not ready: starts"}'), Exit.UNREACHABLE, "not ready"),
        (answer(409, '{"message": "is completed"}'), Exit.REJECTED, "is completed"),
        (answer(302, ""), Exit.FAILED, "not from a Reshape daemon"),
    ],
)
def test_every_bad_answer_becomes_words_and_an_exit_code(
    tmp_path: Path, data: bytes, code: Exit, what: str
) -> None:
    error = asked(data, tmp_path)
    assert (code_of(error), what in str(error)) == (code, True), error
    assert all(problem.where for problem in error.problems)


def test_token_and_user_are_sent_in_headers_and_paths_are_quoted(tmp_path: Path) -> None:
    with server(answer(200, '{"gpus": []}')) as (url, heard):
        query = {"after": "x&y", "limit": None}
        request = Request("GET", "/v1/jobs/a b?c", GpuList, query)
        Client.at(Target(url, "s3cret", "", "")).ask(request)
    head = heard[0].decode()
    assert head.startswith("GET /v1/jobs/a%20b%3Fc?after=x%26y HTTP/1.1")
    assert "Authorization: Bearer s3cret" in head
    assert "Reshape-User: " in head


def test_the_remedy_can_be_pasted_into_a_shell_whatever_the_home_is_called(tmp_path: Path) -> None:
    home = Home(tmp_path / "my home")
    home.prepare()
    home.token()
    home.write_address(Address("http://127.0.0.1:1", 1, "0"))
    with pytest.raises(ClientError) as error:
        of_home(home)
    words = shlex.split(error.value.problems[0].remedy)
    assert words[-4:] == ["reshape", "up", "--home", str(home.folder)]


def test_the_token_is_not_sent_to_whoever_has_the_port_of_a_dead_daemon(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.prepare()
    home.token()
    os.close(home.lock())
    with server(answer(200, "{}")) as (url, heard):
        home.write_address(Address(url, 1, "0"))
        with pytest.raises(ClientError, match="is not running") as error:
            of_home(home)
        assert heard == []
    assert code_of(error.value) is Exit.UNREACHABLE


def test_a_daemon_that_runs_and_does_not_answer_is_not_to_be_started(tmp_path: Path) -> None:
    assert "start it: reshape up" in asked(b"", tmp_path).problems[0].remedy
    lock = Home(tmp_path).lock()
    try:
        assert "see its log" in asked(b"", tmp_path).problems[0].remedy
    finally:
        os.close(lock)
