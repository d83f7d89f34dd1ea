"""Asks, for routes with weak backends, whether a prompt needs a strong one: loaded models, thresholds, and the thread for long prompts.

One per worker. Routes without `quality` never come here. Reads the text of the user's messages; keeps none of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gateway.catalog import QualityRule, Route
from gateway.routing.decision import Quality
from gateway.routing.prompt_text import MOST_CHARS
from gateway.routing.quality import DEFAULT, MILLION, Model, QualityError, Verdict, load
from providers.dialects import DIALECTS, DecodeError
from providers.types import Message, Request, Text

INLINE_BYTES = 500  # of a prompt that is judged on the event loop: about 0.3 ms
MAX_WAITING = 32  # prompts in the thread's queue; beyond it they go to a strong backend
PLAIN = frozenset({"n", "logprobs", "stream"})  # needs that change nothing about what is asked
STEP = 0.01  # by which a threshold moves for each prompt, in shares of prompts

UNLIKE = Verdict(0, 0, MILLION, False)


class Share:
    """The threshold that sends a wanted share of prompts to strong backends. It starts where held-out prompts say, and each prompt moves it
    by up to STEP: after n prompts the realised share is within 1.2 / (STEP × n) of the wanted one, whatever the traffic is like, as long
    as no more than that is unfamiliar (online conformal inference, Gibbs and Candès, 2021)."""

    __slots__ = ("_gains", "_place", "_wanted")

    def __init__(self, gains: tuple[float, ...], wanted: float) -> None:
        self._gains = gains
        self._wanted = wanted
        self._place = 1.0 - wanted  # among the gains in ascending order, 0 to 1; outside of it: all or none

    @property
    def limit(self) -> int:
        """In millionths: a gain above it needs a strong backend."""
        place = self._place * (len(self._gains) - 1)
        if place <= 0.0:
            return -MILLION - 1
        if place >= len(self._gains) - 1:
            return MILLION
        low = int(place)
        return round(MILLION * (self._gains[low] + (place - low) * (self._gains[low + 1] - self._gains[low])))

    def took(self, strong: bool) -> None:
        self._place = min(1.1, max(-0.1, self._place + STEP * ((1.0 if strong else 0.0) - self._wanted)))


class Judges:
    """`load` the models that the routes name, then ask `of` for each request."""

    def __init__(self) -> None:
        self._models: dict[str, Model] = {}
        self._shares: dict[tuple[str, str, float], Share] = {}
        self._thread: ThreadPoolExecutor | None = None
        self._waiting = 0

    def load(self, routes: Mapping[str, Route]) -> None:
        """Read the files that routes name. Raises ValueError naming the route; then nothing has changed. Others stay, for requests that
        began before a reload."""
        models: dict[str, Model] = {}
        for route in routes.values():
            rule = route.quality
            if rule is None or rule.model in models:
                continue
            try:
                models[rule.model] = load(Path(rule.model) if rule.model else DEFAULT)
            except QualityError as error:
                raise ValueError(f"routes.{route.name}.quality.model: {error}") from None
        self._models = self._models | models

    async def of(self, route: Route, rule: QualityRule, request: Request) -> Quality:
        """What the route's model says of this request, on the event loop where that is short."""
        model = self._models.get(rule.model)
        if model is None:
            return _unknown(rule)
        if not request.needs <= PLAIN:
            verdict = UNLIKE
        elif request.prompt_bytes <= INLINE_BYTES:
            verdict = _verdict(model, request)
        elif self._waiting >= MAX_WAITING:
            verdict = UNLIKE
        else:
            verdict = await self._later(model, request)
        share = None if rule.strong_share is None else self._share(route, model, rule.strong_share)
        found = _ruled(rule, model, verdict, share)
        if share is not None:
            share.took(found.needs_strong)
        return found

    def now(self, route: Route, rule: QualityRule, request: Request) -> Quality:
        """The same at once and changing nothing, for a request that nobody sent."""
        model = self._models.get(rule.model)
        if model is None:
            return _unknown(rule)
        verdict = _verdict(model, request) if request.needs <= PLAIN else UNLIKE
        return _ruled(rule, model, verdict, None if rule.strong_share is None else self._share(route, model, rule.strong_share))

    def _share(self, route: Route, model: Model, wanted: float) -> Share:
        name = (route.name, model.version, wanted)
        share = self._shares.get(name)
        if share is None:
            share = self._shares[name] = Share(model.gains, wanted)
        return share

    async def _later(self, model: Model, request: Request) -> Verdict:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "tollway-quality")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, _verdict, model, request)
        finally:
            self._waiting -= 1


def _unknown(rule: QualityRule) -> Quality:
    return Quality("", 0, 0, MILLION, MILLION, 0, rule.weak)


def _ruled(rule: QualityRule, model: Model, verdict: Verdict, share: Share | None) -> Quality:
    limit = rule.most_gain if share is None else share.limit
    return Quality(model.version, verdict.gain, verdict.weak, verdict.unseen, limit, round(model.unseen_most * MILLION), rule.weak)


def _verdict(model: Model, request: Request) -> Verdict:
    text = asked(request)
    return UNLIKE if not text else model.judge(text)


def asked(request: Request) -> str:
    """What the user said, all turns, the last one whole at least; empty where nothing can be read."""
    dialect = DIALECTS.get(request.dialect)
    try:
        messages = request.decoded if dialect is None else dialect.messages(request)
    except DecodeError:
        return ""
    said: list[str] = []
    size = 0
    for message in reversed(messages or ()):
        if message.role in ("user", ""):
            text = _text(message)
            said.append(text)
            size += len(text)
            if size >= MOST_CHARS:
                break
    return "\n".join(reversed(said))


def _text(message: Message) -> str:
    content = message.content
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join([part.text for part in content if isinstance(part, Text)])
