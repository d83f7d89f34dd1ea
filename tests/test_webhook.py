"""A signed POST over a real socket: what it says, and what counts as taken."""

from __future__ import annotations

import pytest

from gateway.webhook import Webhook, sign
from tests.fakes.upstream import FakeUpstream, Reply, body_reply, close, hang, head, send

SECRET = b"whsec"
BODY = b'{"percent":80}'


def test_the_signature_is_hmac_sha256_over_timestamp_and_body() -> None:
    """By `printf '1700000000.{"percent":80}' | openssl dgst -sha256 -hmac whsec`."""
    assert sign(SECRET, "1700000000", BODY) == "v1=78a70c20e87fcbf6c04e4b057081e61fbfd79af92dcd4d46476093ee013cc28b"
    assert sign(SECRET, "1700000001", BODY) != sign(SECRET, "1700000000", BODY) != sign(b"other", "1700000000", BODY)


async def posted(*replies: Reply, timeout_s: float = 10.0) -> tuple[str, FakeUpstream]:
    async with FakeUpstream(*replies) as receiver:
        webhook = Webhook(f"{receiver.url}/hooks/tollway?a=b", SECRET, timeout_s, clock=lambda: 1700000000.9)
        try:
            return await webhook.post("delivery-1", BODY), receiver
        finally:
            await webhook.close()


async def test_what_is_sent() -> None:
    wrong, receiver = await posted(body_reply(b"thanks", 202))
    got = receiver.requests[0]
    assert (wrong, got.method, got.target, got.body) == ("", "POST", "/hooks/tollway?a=b", BODY)
    assert got.headers["x-tollway-timestamp"] == "1700000000"
    assert got.headers["x-tollway-signature"] == sign(SECRET, "1700000000", BODY)
    assert (got.headers["x-tollway-delivery"], got.headers["content-type"]) == ("delivery-1", "application/json")


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (body_reply(b"", 500), "status 500"),
        (body_reply(b"", 404), "status 404"),
        ([head(204, length=0)], ""),
        ([head(200, length=10_000_000), send(b"x" * 100_000), hang()], ""),
        ([close()], "connection"),
    ],
)
async def test_any_2xx_is_taken_and_nothing_else(reply: Reply, told: str) -> None:
    wrong, _ = await posted(reply)
    assert (told in wrong) if told else wrong == ""


async def test_redirects_are_not_followed() -> None:
    async with FakeUpstream() as elsewhere:
        wrong, _ = await posted(body_reply(b"", 307, {"location": elsewhere.url}))
        assert wrong == "status 307" and elsewhere.connections == 0


async def test_a_receiver_that_does_not_answer_is_left() -> None:
    wrong, receiver = await posted([hang()], timeout_s=0.3)
    assert wrong and len(receiver.requests) == 1


async def test_nobody_listens() -> None:
    webhook = Webhook("http://127.0.0.1:1/", SECRET, 5.0)
    assert await webhook.post("delivery-1", BODY)
    await webhook.close()
