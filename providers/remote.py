"""A provider over HTTP, for any vendor's row: encode by the row's dialect, send, decode what comes back as it comes.

Knows no wire language (the dialect does) and no socket (http.py does). Decides what an answer is that is neither: a redirect, a web
page, the wrong form, a stream that ends too soon.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import httpx
from msgspec.structs import replace

from providers import signers
from providers.dialects import DIALECTS, StreamDecoder, to_neutral
from providers.errors import BadAnswer, ProviderError
from providers.figures import Figures, NoFigures, page_url, read
from providers.http import Answer, Endpoint, Upstream
from providers.limit_headers import Limits, told
from providers.types import Deadline, Event, Failed, Finished, Frame, Metered, Request, Started, Target, Usage, Vector
from providers.vendors import Vendor

NO_PAGE = frozenset({401, 403, 404, 405, 501})  # 501: llama.cpp without --metrics
CHECK = Deadline(connect_s=3.0, first_byte_s=5.0, idle_s=5.0, total_s=8.0)


class RemoteProvider:
    """One backend's address and credential. Many calls at once; holds no state of a call. The Upstream belongs to whoever made it."""

    def __init__(self, vendor: Vendor, base_url: str, credential: str, upstream: Upstream, metrics_url: str = "") -> None:
        """base_url as in the vendor's row; an empty credential sends none. metrics_url: of the engine's figures, where they do not lie
        beside base_url; it gets the credential only if it is the same server's."""
        self.dialect = vendor.dialect
        self._vendor = vendor
        self._language = DIALECTS[vendor.dialect]
        self._upstream = upstream
        signers.conceal_url(base_url)
        signers.conceal_url(metrics_url)
        base = base_url.rstrip("/")
        carried = {**signers.headers(vendor.signer, credential), **vendor.headers}
        sent = {**carried, "content-type": "application/json"}
        self._whole = Endpoint("POST", base + vendor.path, {**sent, "accept": "application/json"})
        self._streamed = Endpoint("POST", base + vendor.path, {**sent, "accept": "text/event-stream"})
        self._models = Endpoint("GET", base + vendor.models_path, {**carried, "accept": "application/json"})
        self._page: Endpoint | None = None
        if vendor.page is not None:
            url = metrics_url or page_url(base, vendor.page)
            same = _origin(url) == _origin(base)
            self._page = Endpoint("GET", url, {**(carried if same else {}), "accept": "text/plain"})

    async def call(self, request: Request, target: Target, deadline: Deadline) -> AsyncGenerator[Frame, None]:
        """As Provider.call. An answer in the other form than asked for (whole for a stream, a stream for whole) is taken as it is."""
        if request.inputs:
            async with aclosing(self._embed(request, target, deadline)) as frames:
                async for frame in frames:
                    yield frame
            return
        if request.dialect != self.dialect:
            to_neutral(request)
        body = self._language.encode_request(request, target, self._vendor.quirks)
        answer = await self._upstream.open(self._endpoint(request, target), body, deadline)
        try:
            if answer.status != 200:
                raise await self._refusal(answer)
            limits = told(answer.headers.raw)
            if not _streams(request, answer):
                yield self._identified(self._language.decode_answer(await answer.read()), answer, limits)
                return
            decoder = self._language.stream_decoder()
            begun = over = False
            while not over:
                frame, over = await _next(answer, decoder, begun)
                if not begun and frame.events:
                    begun = True
                    frame = self._identified(frame, answer, limits)
                if frame.events or frame.wire or frame.usage_wire:
                    yield frame
        finally:
            await answer.close()

    def _endpoint(self, request: Request, target: Target) -> Endpoint:
        """With the headers of this call alone: those that a client's language carries, and its trace."""
        endpoint = self._streamed if request.stream and not request.inputs else self._whole
        carried = request.headers if request.dialect == self.dialect else {}
        if not carried and not target.headers:
            return endpoint
        return Endpoint(endpoint.method, str(endpoint.url), {**endpoint.headers, **carried, **target.headers})

    async def _embed(self, request: Request, target: Target, deadline: Deadline) -> AsyncGenerator[Frame, None]:
        """Vectors of all inputs, in as many calls as the vendor's maximum asks for; a frame per call with the usage so far.

        The end comes with the last one: until then nothing is an answer, and what was billed before a failure is known.
        """
        most, used, endpoint = self._vendor.inputs_most, Usage(), self._endpoint(request, target)
        began = asyncio.get_running_loop().time()
        for first in range(0, len(request.inputs), most):
            part = replace(request, inputs=request.inputs[first : first + most])
            body = self._language.encode_request(part, target, self._vendor.quirks)
            request.dropped = part.dropped
            left_s = deadline.total_s - (asyncio.get_running_loop().time() - began)
            answer = await self._upstream.open(endpoint, body, replace(deadline, total_s=max(left_s, 0.001)))
            try:
                if answer.status != 200:
                    raise await self._refusal(answer)
                limits = told(answer.headers.raw)
                frame = self._identified(self._language.decode_answer(await answer.read()), answer, limits)
            finally:
                await answer.close()
            events, used = _numbered(frame.events, first, len(part.inputs), used)
            if first + most >= len(request.inputs):
                events.append(Finished("stop"))
            yield Frame(events=events, dialect=self.dialect, limits=frame.limits)

    def _identified(self, frame: Frame, answer: Answer, limits: Limits | None) -> Frame:
        """An answer's first frame with what its headers say. The vendor's request id stands in for an answer's missing id, so that the
        ledger can name the call."""
        frame.limits = limits
        first = frame.events[0] if frame.events else None
        if type(first) is Started and not first.id:
            named = answer.headers.get(self._vendor.request_id_header, "")
            frame.events[0] = Started(id=named, model=first.model, created=first.created)
        return frame

    async def _refusal(self, answer: Answer) -> ProviderError:
        status = answer.status
        if 300 <= status < 400:
            return BadAnswer(
                f"the backend redirects (HTTP {status}); redirects are not followed, give base_url its final address", answered=True
            )
        if status < 300:
            return BadAnswer(f"the backend answered HTTP {status} where 200 was due")
        try:
            body = await answer.read()
        except ProviderError:
            body = b""  # the status was read and says enough
        return self._language.http_error(status, answer.headers, body)

    async def check(self) -> str | None:
        """As Provider.check: asks for the list of models."""
        try:
            answer = await self._upstream.open(self._models, b"", CHECK)
        except ProviderError as error:
            return error.message
        await answer.close()
        if answer.status in (401, 403):
            return f"the credential was refused (HTTP {answer.status}); check api_key"
        if 200 <= answer.status < 300 or answer.status in (404, 405):  # not every server lists models
            return None
        return f"HTTP {answer.status} from {self._vendor.models_path}; check base_url"

    async def figures(self, within_s: float, most_bytes: int) -> Figures:
        """As Provider.figures: one look at the page, cut at its limits."""
        if self._page is None or self._vendor.page is None:
            raise NoFigures(f"{self._vendor.name} publishes none")
        deadline = Deadline(connect_s=within_s, first_byte_s=within_s, idle_s=within_s, total_s=within_s)
        answer = await self._upstream.open(self._page, b"", deadline)
        try:
            if answer.status in NO_PAGE:
                raise NoFigures(f"HTTP {answer.status} from {self._page.url.path}", answered=True)
            if answer.status != 200:
                raise BadAnswer(f"HTTP {answer.status} from {self._page.url.path}", answered=True)
            parts, left = [], most_bytes
            while part := await answer.receive():
                parts.append(part)
                left -= len(part)
                if left < 0:
                    raise BadAnswer(f"the page is larger than {most_bytes} bytes (figures.max_bytes)")
        finally:
            await answer.close()
        return read(b"".join(parts), self._vendor.page)

    async def close(self) -> None:
        """Nothing: connections are the Upstream's."""


def _origin(url: str) -> tuple[str, str, int | None]:
    parsed = httpx.URL(url)
    return parsed.scheme, parsed.host, parsed.port


def _streams(request: Request, answer: Answer) -> bool:
    """Whether the body is an event stream: by what the backend says it is, else by what was asked for. Raises BadAnswer for a page."""
    kind = answer.headers.get("content-type", "").lower()
    if "html" in kind:
        raise BadAnswer("the backend answered with a web page; its base_url is not that of an API")
    return "event-stream" in kind or (request.stream and "json" not in kind)


def _numbered(events: list[Event], first: int, wanted: int, used: Usage) -> tuple[list[Event], Usage]:
    """One call's events with its vectors numbered from `first`, and the usage of all calls so far. Raises BadAnswer where an input has
    no vector, or two."""
    vectors = [event for event in events if isinstance(event, Vector)]
    if sorted(vector.index for vector in vectors) != list(range(wanted)):
        raise BadAnswer(f"the backend answered {len(vectors)} embeddings to {wanted} inputs, or numbered them wrongly")
    found: list[Event] = [event for event in events if isinstance(event, Started) and not first]
    found += [Vector(first + vector.index, vector.data) for vector in vectors]
    stated = next((event.usage for event in events if isinstance(event, Metered)), None)
    if stated is not None:
        used = Usage(input=used.input + stated.prompt_tokens)
        found.append(Metered(used))
    return found, used


async def _next(answer: Answer, decoder: StreamDecoder, begun: bool) -> tuple[Frame, bool]:
    """The next frame of a stream and whether it is the last. What breaks it is raised before its first event, its last event after it."""
    try:
        chunk = await answer.receive()
        if not chunk:
            return decoder.close(), True
        frame = decoder.feed(chunk)
    except ProviderError as error:
        if not begun:
            raise
        return Frame(events=[Failed(error)]), True
    if decoder.done:
        answer.finish()
    return frame, decoder.done
