"""Two attempts at once: the first good frame wins, the other is booked at once and closed, whatever else happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.exchange import Attempt, Exchange
from gateway.race import Runner, race
from providers.errors import ServerFailed
from providers.types import Frame, TextDelta
from tests.fixtures.waiting import until


class Course:
    """Attempts as attempts.py runs them: the first frame commits the exchange."""

    def __init__(self) -> None:
        self.x = cast(Exchange, SimpleNamespace(answered_by=None))
        self.closed: list[Any] = []
        self.lost: list[Any] = []
        self.asked = 0
        self.tasks: list[asyncio.Task[None]] = []

    async def frames(self, name: str, go: asyncio.Event, error: bool = False) -> AsyncGenerator[Frame, None]:
        try:
            await go.wait()
            if error:
                raise ServerFailed(name)
            if self.x.answered_by is None:
                self.x.answered_by = cast(Attempt, name)
            for n in range(3):
                yield Frame(events=[TextDelta(f"{name}{n}")])
                await asyncio.sleep(0)
        finally:
            self.closed.append(name)

    def runner(self, name: str, go: asyncio.Event, error: bool = False) -> Runner:
        return Runner(cast(Attempt, name), self.frames(name, go, error))

    def run(self, first: Runner, second: Runner | None, wait_s: float = 0.0) -> AsyncGenerator[Frame, None]:
        async def other() -> Runner | None:
            self.asked += 1
            return second

        return race(self.x, first, wait_s, other, self.lost.append)


def then(course: Course, happened: Callable[[], object], go: asyncio.Event) -> None:
    """Let `go` once something happened: on a busy machine two times say nothing of an order."""

    async def wait() -> None:
        await until(happened, "what comes before")
        go.set()

    course.tasks.append(asyncio.create_task(wait()))


def event(set_: bool = False) -> asyncio.Event:
    made = asyncio.Event()
    if set_:
        made.set()
    return made


async def texts(frames: AsyncGenerator[Frame, None]) -> list[str]:
    return [one.text async for frame in frames for one in frame.events if isinstance(one, TextDelta)]


async def test_in_time_nobody_else_is_asked() -> None:
    course = Course()
    assert await texts(course.run(course.runner("a", event(True)), None, 60.0)) == ["a0", "a1", "a2"]
    assert (course.asked, course.closed, course.lost) == (0, ["a"], [])


async def test_the_second_wins_and_the_first_is_booked_and_closed_before_more_is_read() -> None:
    course = Course()
    frames = course.run(course.runner("a", event()), course.runner("b", event(True)))
    assert (await anext(frames)).events == [TextDelta("b0")]
    assert course.lost == ["a"], "booked at once"
    await until(lambda: course.closed == ["a"], "and closed, though nobody reads on")
    assert await texts(frames) == ["b1", "b2"]
    assert course.closed == ["a", "b"]


async def test_the_first_may_still_win() -> None:
    course, go = Course(), event()
    frames = course.run(course.runner("a", go), course.runner("b", event()))
    then(course, lambda: course.asked, go)
    assert await texts(frames) == ["a0", "a1", "a2"]
    assert (course.lost, course.closed) == (["b"], ["b", "a"])


async def test_both_in_the_same_turn_is_one_winner() -> None:
    course, go = Course(), event()
    frames = course.run(course.runner("a", go), course.runner("b", go))
    then(course, lambda: course.asked, go)
    got = await texts(frames)
    assert got in (["a0", "a1", "a2"], ["b0", "b1", "b2"])
    assert len(course.lost) == 1 and sorted(course.closed) == ["a", "b"]


async def test_without_a_second_the_first_goes_on() -> None:
    course, go = Course(), event()
    then(course, lambda: course.asked, go)
    assert await texts(course.run(course.runner("a", go), None)) == ["a0", "a1", "a2"]
    assert course.asked == 1


@pytest.mark.parametrize("late", ["a", "b"])
async def test_one_that_fails_leaves_the_race_to_the_other(late: str) -> None:
    course = Course()
    events = {name: event(name != late) for name in "ab"}
    wait_s = 0.0 if late == "a" else 60.0
    second = course.runner("b", events["b"], late != "b")
    frames = course.run(course.runner("a", events["a"], late != "a"), second, wait_s)
    if late == "b":  # the first failed before the second was asked for
        with pytest.raises(ServerFailed):
            await texts(frames)
        await second.stop()
        return
    then(course, lambda: course.asked and "b" in course.closed, events["a"])
    assert await texts(frames) == [f"{late}{n}" for n in range(3)]


async def test_all_fail_with_the_last_error() -> None:
    course, go, later = Course(), event(), event()
    frames = course.run(course.runner("a", later, True), course.runner("b", go, True))
    then(course, lambda: course.asked, go)
    then(course, lambda: "b" in course.closed, later)
    with pytest.raises(ServerFailed, match="a"):
        await texts(frames)
    assert sorted(course.closed) == ["a", "b"]


async def test_closing_the_race_closes_both() -> None:
    course = Course()
    task = asyncio.create_task(texts(course.run(course.runner("a", event()), course.runner("b", event()))))
    await until(lambda: course.asked, "the second is asked")
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(course.closed) == ["a", "b"]
