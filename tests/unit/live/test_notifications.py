"""Notifications: of what, to whom, to which addresses, and signed."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from ipaddress import IPv4Network, ip_network
from types import SimpleNamespace

import pytest

from reshape_controller.core.attempts import PAUSED
from reshape_controller.core.model import Job
from reshape_controller.live.notifications import delivery
from reshape_controller.live.notifications.addresses import is_permitted
from reshape_controller.live.notifications.delivery import DeliveryFailed, Outcome, deliver
from reshape_controller.live.notifications.messages import Message, of_entry, of_wait
from reshape_controller.live.notifications.targets import Event, unknown_targets
from tests.support.notifications import ADA, DEADLINE_S, LOOPBACK, entry, target
from tests.support.receiver import SECRET, Receiver
from tests.support.store_values import SPEC

MESSAGE = Message("7-0", Event.ENDED, b"{}")


CHAT = target("https://hooks.example.org/T00/path-secret")


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0"),
        *("100.64.0.1", "100.100.100.200", "192.0.0.192", "224.0.0.1", "240.0.0.1"),
        *("255.255.255.255", "168.63.129.16", "::1", "::", "fe80::1%eth0", "fd00:ec2::254"),
        *("fec0::1", "ff02::1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "2001:db8::1"),
        *("64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "2002:7f00:1::", "2001::1"),
    ],
)
def test_an_address_that_is_not_public_is_refused(address: str) -> None:
    assert not is_permitted(address, ())
    assert not is_permitted(address, (ip_network("198.51.100.0/24"),))


def test_public_addresses_and_those_of_the_target_are_permitted() -> None:
    for address in ("1.1.1.1", "8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"):
        assert is_permitted(address, ())
    assert is_permitted("10.1.2.3", (ip_network("10.1.2.0/24"),))
    assert is_permitted("::ffff:10.1.2.3", (ip_network("10.1.2.0/24"),))
    assert not is_permitted("10.1.3.3", (ip_network("10.1.2.0/24"),))


@pytest.mark.parametrize(
    ("kind", "job", "events"),
    [
        ("completed", ADA, [Event.ENDED]),
        ("cancelled", ADA, [Event.ENDED]),
        ("failed", ADA, [Event.FAILED]),
        ("reshape-cost", ADA, [Event.RESHAPED]),
        ("differs", ADA, [Event.DIFFERS]),
        ("proved", ADA, []),
        ("failure", ADA, []),
        ("failure", replace(ADA, reason=f"{PAUSED}no retry is left"), [Event.FAILED]),
        ("granted", replace(ADA, started_at_s=200.0), []),
        ("completed", replace(ADA, spec=replace(ADA.spec, notify=("other",))), []),
        ("launched", ADA, []),
    ],
)
def test_an_entry_is_one_event_for_the_targets_of_its_job(
    kind: str, job: Job, events: list[Event]
) -> None:
    assert [each.event for each in of_entry(CHAT, 7, 0, entry(kind), job)] == events


def test_a_target_gets_what_it_wants_and_a_failure_as_an_end() -> None:
    ends = replace(CHAT, events=frozenset({Event.ENDED}))
    assert [each.event for each in of_entry(ends, 7, 0, entry("failed"), ADA)] == [Event.ENDED]
    assert list(of_entry(ends, 7, 0, entry("reshape-cost"), ADA)) == []


def test_a_quarantined_gpu_is_for_each_target_that_wants_it() -> None:
    quarantined = entry("gpu-quarantined", job=None)
    assert [each.id for each in of_entry(CHAT, 7, 3, quarantined, None)] == ["7-3"]
    assert list(of_entry(replace(CHAT, events=frozenset()), 7, 3, quarantined, None)) == []


def test_a_wait_that_was_too_long_has_one_id_wherever_it_is_noticed() -> None:
    began = replace(ADA, started_at_s=5000.0)
    (late,) = of_entry(CHAT, 9, 0, entry("granted", 5000.0), began)
    assert late == of_wait(CHAT, ADA)
    again = entry("granted", 9000.0)
    assert list(of_entry(CHAT, 10, 0, again, began)) == [], "these are not its first GPUs"
    both = [each.event for each in of_entry(CHAT, 9, 0, entry("cancelled", 5000.0), ADA)]
    assert both == [Event.WAITING, Event.ENDED]


def test_an_unknown_target_is_named_with_the_remedy() -> None:
    spec = replace(SPEC, notify=("chat", "nowhere"))
    (error,) = unknown_targets(spec, (CHAT,))
    assert (error.path, error.hint) == ("notify[1]", "use one of: chat")
    assert "'nowhere' is not a target" in error.message
    assert "--notify FILE" in unknown_targets(spec, ())[0].hint


def test_neither_the_secret_nor_the_path_is_in_the_text_of_a_target() -> None:
    for text in (repr(CHAT), str(CHAT), CHAT.shown):
        assert SECRET not in text
        assert "path-secret" not in text
    assert CHAT.shown == "https://hooks.example.org/***"


async def with_receiver(receiver: Receiver) -> Outcome:
    await receiver.open()
    try:
        return await deliver(target(receiver.url), MESSAGE, 1234.5)
    finally:
        await receiver.close()


def test_a_notification_is_a_signed_post() -> None:
    receiver = Receiver()
    assert asyncio.run(with_receiver(receiver)) is Outcome.DELIVERED
    (got,) = receiver.received
    assert got.headers["request"] == "POST /hook?key=path-secret HTTP/1.1"
    assert (got.headers["reshape-id"], got.headers["reshape-event"]) == ("7-0", "ended")
    signed = got.headers["reshape-timestamp"].encode() + b"." + got.body
    right = hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest()
    assert got.headers["reshape-signature"] == f"sha256={right}"
    assert got.headers["reshape-timestamp"] == "1234"


def test_a_redirect_is_not_followed() -> None:
    async def test() -> Receiver:
        other = Receiver()
        await other.open()
        first = Receiver(307, f"Location: {other.url}\r\n")
        with pytest.raises(DeliveryFailed, match="answered 307, and redirects are not followed"):
            await with_receiver(first)
        await other.close()
        return other

    assert asyncio.run(test()).received == []


@pytest.mark.parametrize(("status", "outcome"), [(200, "delivered"), (422, "refused")])
def test_an_answer_takes_or_refuses_the_message(status: int, outcome: str) -> None:
    assert asyncio.run(with_receiver(Receiver(status))).value == outcome


@pytest.mark.parametrize("status", [301, 401, 404, 429, 500, 503])
def test_every_other_answer_is_a_failure_that_may_pass(status: int) -> None:
    with pytest.raises(DeliveryFailed, match=f"answered {status}"):
        asyncio.run(with_receiver(Receiver(status)))


@pytest.mark.parametrize("allow", [(), LOOPBACK])
def test_a_name_is_resolved_once_and_the_connection_goes_to_the_checked_address(
    monkeypatch: pytest.MonkeyPatch, allow: tuple[IPv4Network, ...]
) -> None:
    async def test() -> None:
        receiver, looks = Receiver(), []
        await receiver.open()

        def resolve(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
            looks.append(host)
            address = "127.0.0.1" if len(looks) == 1 else "127.0.0.2"
            return [(2, 1, 6, "", (address, port))]

        monkeypatch.setattr(delivery, "socket", SimpleNamespace(getaddrinfo=resolve, SOCK_STREAM=1))
        to = target(f"http://hooks.example.org:{receiver.port}/", allow=allow)
        if allow:
            assert await deliver(to, MESSAGE, 0.0) is Outcome.DELIVERED
        else:
            with pytest.raises(DeliveryFailed, match=r"127\.0\.0\.1 is not public"):
                await deliver(to, MESSAGE, 0.0)
        assert looks == ["hooks.example.org"]
        assert len(receiver.received) == len(allow)
        await receiver.close()

    asyncio.run(test())


def test_names_that_nothing_answers_leave_the_threads_of_the_daemon_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, answers = threading.Event(), threading.Event()

    def resolve(*_: object, **__: object) -> list[object]:
        begun.set()
        answers.wait(DEADLINE_S)
        raise OSError("no server of the DNS answers")

    async def test() -> None:
        stub = SimpleNamespace(getaddrinfo=resolve, SOCK_STREAM=1)
        monkeypatch.setattr(delivery, "socket", stub)
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        waits = [asyncio.create_task(deliver(CHAT, MESSAGE, 0.0)) for _ in range(3)]
        try:
            async with asyncio.timeout(DEADLINE_S / 2):
                while not begun.is_set():
                    await asyncio.sleep(0.01)
                await asyncio.to_thread(lambda: None)
        finally:
            answers.set()
            await asyncio.gather(*waits, return_exceptions=True)

    asyncio.run(test())


def test_a_receiver_that_keeps_the_connection_does_not_keep_the_daemon_from_stopping(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Writer:
        closes = asyncio.Event()

        def write(self, _: bytes) -> None: ...

        async def drain(self) -> None: ...

        def close(self) -> None: ...

        async def wait_closed(self) -> None:
            self.closes.set()
            await asyncio.Event().wait()

    async def connect(*_: object, **__: object) -> tuple[asyncio.StreamReader, Writer]:
        reader = asyncio.StreamReader()
        reader.feed_data(b"HTTP/1.1 204 \r\n")
        return reader, writer

    async def test() -> None:
        monkeypatch.setattr(asyncio, "open_connection", connect)
        task = asyncio.create_task(deliver(target("http://127.0.0.1:9/"), MESSAGE, 0.0))
        await writer.closes.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    writer = Writer()
    asyncio.run(test())


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"", "closes the connection without an answer"),
        (b"SSH-2.0-OpenSSH\r\n", "does not answer by HTTP/1"),
        (b"HTTP/1.1 ok\r\n", "does not answer by HTTP/1"),
        (b"HTTP/1.1\r\n", "does not answer by HTTP/1"),
        (b"HTTP/1.1 " + b"2" * 10_000, "is longer|exceed|limit"),
    ],
)
def test_an_answer_that_is_none_is_named(answer: bytes, text: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        writer.write(answer)
        writer.close()

    async def test() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(DeliveryFailed, match=text):
            await deliver(target(f"http://127.0.0.1:{port}/"), MESSAGE, 0.0)
        server.close()

    asyncio.run(test())
