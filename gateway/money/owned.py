"""What a request on hardware priced by the hour pays: its share of busy time, by the tokens that it holds and the time it holds them.

While requests are in flight each pays rate · dt · its weight / all weights. One integral per backend, what a unit of weight has paid since
the worker began, makes a start and an end cost the same however many are in flight. Integers alone; knows no SQL; the clock is passed in.
"""

from __future__ import annotations

from gateway.catalog import Backend, Price

HOURLY = "hourly:"  # how the price ids of such backends begin
NS_PER_HOUR = 3_600_000_000_000
BITS = 40  # of the integral behind the point: what is cut off is less than a nano-dollar per request
HISTORY_TOKENS = 10_000  # fewer say nothing about what a token costs


class Machine:
    """One backend's hardware as one worker sees it. rate: nano-USD per hour. others: mean weight that other workers have in flight."""

    __slots__ = ("_area", "_at_ns", "_integral", "_since_ns", "average", "others", "rate", "weight")

    def __init__(self, rate: int, now: float) -> None:
        self.rate = rate
        self.others = 0
        self.weight = 0  # of this worker's requests in flight
        self.average: int | None = None  # nano-USD per million tokens, of the last hour's shares; None = too few to say
        self._integral = 0
        self._at_ns = self._since_ns = int(now * 1e9)
        self._area = 0  # weight · ns since `_since_ns`

    def enter(self, weight: int, now: float) -> Share:
        """A request begins. Exactly one `leave` must follow on the Share."""
        self._advance(now)
        share = Share(self, weight if weight > 0 else 1, self._integral)
        self.weight += share.weight
        return share

    def leave(self, share: Share, now: float) -> int:
        """Nano-USD, rounded down, so that the shares of a time never exceed what the time costs."""
        self._advance(now)
        self.weight -= share.weight
        return share.weight * (self._integral - share.entered) >> BITS

    def set_rate(self, rate: int, now: float) -> None:
        self._advance(now)
        self.rate = rate

    def set_others(self, others: int, now: float) -> None:
        self._advance(now)
        self.others = others

    def mean_weight(self, now: float) -> int:
        """What this worker had in flight on average since it was last asked, rounded up."""
        self._advance(now)
        passed = self._at_ns - self._since_ns
        mean = -(-self._area // passed) if passed else self.weight
        self._since_ns, self._area = self._at_ns, 0
        return mean

    def _advance(self, now: float) -> None:
        at_ns = int(now * 1e9)
        passed = at_ns - self._at_ns
        if passed <= 0:
            return
        self._at_ns = at_ns
        if self.weight:
            self._area += self.weight * passed
            self._integral += (self.rate * passed << BITS) // (NS_PER_HOUR * (self.weight + self.others))


class Share:
    """One request's part of a machine."""

    __slots__ = ("entered", "machine", "weight")

    def __init__(self, machine: Machine, weight: int, entered: int) -> None:
        self.machine = machine
        self.weight = weight
        self.entered = entered

    def leave(self, now: float) -> int:
        """The request is over: what it pays, in nano-USD. Call once."""
        return self.machine.leave(self, now)


class Owned:
    """The machines of one worker, by backend. Plain calls on the request's path."""

    def __init__(self) -> None:
        self.machines: dict[str, Machine] = {}

    def machine(self, backend: Backend, now: float) -> Machine:
        """Of a backend with an hourly rate. A rate that a reload changed is set by the next beat (hours.py)."""
        found = self.machines.get(backend.name)
        if found is None:
            assert backend.hourly_nanousd is not None
            found = self.machines[backend.name] = Machine(backend.hourly_nanousd, now)
        return found

    def enter(self, backend: Backend, tokens: int, now: float) -> Share | None:
        """The share of an attempt that is about to be sent; None where tokens are paid for. tokens: prompt and expected answer."""
        return None if backend.hourly_nanousd is None else self.machine(backend, now).enter(tokens, now)

    def reserving(self, backend: Backend) -> Price | None:
        """The price that a worst case is reckoned at: the backend's own, or what tokens of owned hardware lately cost on average."""
        if backend.hourly_nanousd is None or backend.price is None:
            return backend.price
        found = self.machines.get(backend.name)
        per_million = found.average if found is not None and found.average is not None else alone(backend)
        return Price(id=backend.price.id, input=per_million, output=per_million)


def alone(backend: Backend) -> int:
    """Nano-USD per million tokens where nothing is known: one request has the machine, which takes the prior's time for each token."""
    assert backend.hourly_nanousd is not None
    return -(-backend.hourly_nanousd * int(backend.tpot_prior_ms * 1000) // 3600)
