"""How a vendor's own tokens compare to our count, learnt per family of models from what vendors state.

Two figures: a bound, for what may be reserved, which only grows; and a mean, for estimates where nothing is stated. Learnt off the event
loop from a sample of the answers, kept in memory and learnt anew after a start. Knows no price and no backend.
"""

from __future__ import annotations

from providers import tokens
from providers.types import Request

START = 1.5  # our count × this is an upper bound for a family of which nothing is known
MAX = 4.0
FAMILIES_MOST = 256
SAMPLES_FIRST = 32  # prompts of a family that are all counted; after them one in SAMPLE_EVERY
SAMPLE_EVERY = 64
SAMPLES_LEAST = 8  # before the mean is used
LEAST_TOKENS = 256  # in a shorter prompt the chat template's own text decides
LEAST_BYTES = 1024  # of a prompt that may have so many
PLAUSIBLE = 0.25  # of our count: a vendor that states less counts something else
EXACT = {"gpt": 1.0, "o": 1.0, "chatgpt": 1.0}  # our tokenizer is theirs


def family(model: str) -> str:
    """A model's family, for what is learnt of its tokenizer: its name without maker, version and size."""
    name = model.rpartition("/")[2].lower()
    letters = name.split(":")[0].replace(".", "-").split("-")[0].rstrip("0123456789")
    return letters or name


class Factors:
    """One per worker."""

    def __init__(self) -> None:
        self._upper: dict[str, float] = dict(EXACT)
        self._learnt: dict[str, float] = {}
        self._means: dict[str, tuple[int, float]] = {}  # samples, mean
        self._offered: dict[str, int] = {}

    def upper(self, model: str) -> float:
        """Our count × this is the bound for this model's family."""
        return self._upper.get(family(model), START)

    def learnt(self, model: str) -> float:
        """What vendors' own counts have shown for this family; 0 where nothing was learnt."""
        return self._learnt.get(family(model), 0.0)

    def expected(self, model: str) -> float:
        """Our count × this is what a vendor would probably state; 1 while too little is known."""
        name = family(model)
        samples, mean = self._means.get(name, (0, 1.0))
        return mean if samples >= SAMPLES_LEAST and name not in EXACT else 1.0

    def means(self) -> dict[str, float]:
        """By family, for the metrics."""
        return {name: mean for name, (samples, mean) in self._means.items() if samples >= SAMPLES_LEAST}

    def offer(self, request: Request, model: str, stated: int) -> None:
        """A vendor stated the tokens of a prompt: perhaps count it too, later, and learn from it. Nearly always this does nothing."""
        if request.media or not LEAST_BYTES <= request.prompt_bytes <= tokens.SAMPLE_BYTES:
            return
        name = family(model)
        offered = self._offered.get(name, 0)
        if name not in self._offered and len(self._offered) >= FAMILIES_MOST:
            return
        due = offered < SAMPLES_FIRST or offered % SAMPLE_EVERY == 0
        if not due or tokens.count_later(request, model, lambda counted: self.observe(model, counted, stated)):
            self._offered[name] = offered + 1

    def observe(self, model: str, counted: int, stated: int) -> None:
        """Take in one prompt's tokens by our count and by the vendor's."""
        if counted < LEAST_TOKENS or not PLAUSIBLE * counted <= stated <= MAX * counted:
            return
        self.learn(model, counted, stated)
        name = family(model)
        samples, mean = self._means.get(name, (0, 1.0))
        if not samples and len(self._means) >= FAMILIES_MOST:
            return
        samples = min(samples + 1, SAMPLE_EVERY)
        self._means[name] = samples, mean + (stated / counted - mean) / samples

    def learn(self, model: str, counted: int, stated: int) -> bool:
        """Take in what a vendor stated for a prompt that we counted; True where the bound had to grow."""
        if counted < 16 or stated <= counted * self.upper(model):
            return False  # in a short prompt the template's own text decides
        if family(model) not in self._upper and len(self._upper) >= FAMILIES_MOST:
            return False
        self._upper[family(model)] = self._learnt[family(model)] = min(MAX, stated / counted)
        return True
