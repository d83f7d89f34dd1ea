"""`tollway prices`: the price book, and which backends have no price."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import App, Parameter

from gateway import prices
from gateway.catalog import Price
from gateway.cli.database import fail, instant, run, table
from gateway.money.pricing import usd

app = App(name="prices", help="What models cost: the price book, and which backends have no price.")


@dataclass(frozen=True)
class Rates:
    """USD per million tokens."""

    input: str
    "Of the prompt."
    output: str
    "Of the answer."
    cache_read: str | None = None
    "Of the prompt, read from the vendor's cache. Without it, as below: the dearer neighbour."
    cache_write_5m: str | None = None
    "Written to it for five minutes."
    cache_write_1h: str | None = None
    "Written to it for an hour."
    reasoning: str | None = None
    "Of the answer, thought but not said."
    input_audio: str | None = None
    "Audio in the prompt."
    output_audio: str | None = None
    "Audio in the answer."
    per_request: str | None = None
    "USD for each request."


@app.command(name="list")
def list_(*, everything: Annotated[bool, Parameter(name="--all")] = False) -> None:
    """Prices in force and to come, in USD per million tokens.

    Parameters
    ----------
    everything
        Those too that were superseded.
    """
    found = run(lambda engine, _: prices.list_prices(engine, everything))
    shown = [name for name in prices.RATES if name in ("input", "output") or any(name in one.usd for one in found)]
    rows = [
        (
            one.vendor,
            one.model,
            *(one.usd.get(name, "-") for name in shown),
            one.tiers,
            one.source,
            one.state.replace(" ", "-"),
            instant(one.from_us),
        )
        for one in found
    ]
    print(table(("vendor", "model", *shown, "tiers", "source", "state", "from"), rows))


@app.command(name="set")
def set_(
    *, vendor: str, model: str, rates: Annotated[Rates, Parameter(name="*")], starts: Annotated[str, Parameter(name="--from")] = ""
) -> None:
    """Set a price; it wins over a published one. Rows that were billed stay as they are.

    Parameters
    ----------
    vendor
        As in the settings of a backend.
    model
        As the vendor calls it.
    starts
        From when: 12h, 30d, 2027-01-31 or 2027-01-31T12:00:00Z. Without it: now.
    """
    given = {name: getattr(rates, name) for name in prices.RATES}
    new = prices.NewPrice(vendor=vendor, model=model, starts=starts or None, **given)
    made = run(lambda engine, _: prices.set_price(engine, new))
    told = ", ".join(f"{name} {rate}" for name, rate in made.usd.items())
    print(f"{made.vendor} {made.model}: {told} USD, from {instant(made.from_us)}")


@app.command
def check() -> None:
    """What each backend is billed at. Exit status 1 when one has no price."""
    found = run(prices.of_backends)
    rows = [(one.backend, one.vendor, one.model, *_told(one.price)) for one in found]
    print(table(("backend", "vendor", "model", "input", "output", "price"), rows))
    unpriced = [one.backend for one in found if one.price is None]
    if unpriced:
        fail(f"no price: {', '.join(unpriced)}. Set it with `tollway prices set` or as backends.price")


def _told(price: Price | None) -> tuple[str, str, str]:
    return (usd(None), usd(None), "-") if price is None else (usd(price.input), usd(price.output), price.id)
