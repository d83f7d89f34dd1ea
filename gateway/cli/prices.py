"""`tollway prices`: the price book, and which backends have no price."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import App, Parameter

from gateway import prices
from gateway.access import COMMAND_LINE
from gateway.cli.database import fail, instant, run, table
from gateway.money.pricing import CLASSES, usd
from gateway.settings import TierSettings

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
    input_image: str | None = None
    "Images in the prompt, where the vendor counts them apart."
    output_image: str | None = None
    "Images in the answer."
    per_request: str | None = None
    "USD for each request."
    batch_discount: str | None = None
    "The share that the vendor takes off a batch, such as 0.5. Without it: batches are billed in full."


@app.command(name="list")
def list_(*, everything: Annotated[bool, Parameter(name="--all")] = False) -> None:
    """Prices in force and to come, in USD per million tokens.

    Parameters
    ----------
    everything
        Those too that were superseded or withdrawn, with ids.
    """
    found = run(lambda engine, _: prices.list_prices(engine, everything))
    shown = [name for name in prices.RATES if name in ("input", "output") or any(name in one.usd for one in found)]
    rows = [
        (
            one.vendor,
            one.model,
            *(one.usd.get(name, "-") for name in shown),
            ",".join(f">{tier.above}" for tier in one.tiers) or "-",
            one.source,
            one.state.replace(" ", "-"),
            instant(one.from_us),
            *((one.id,) if everything else ()),
        )
        for one in found
    ]
    print(table(("vendor", "model", *shown, "tiers", "source", "state", "from", *(("id",) if everything else ())), rows))


@app.command(name="set")
def set_(
    *,
    vendor: str,
    model: str,
    rates: Annotated[Rates, Parameter(name="*")],
    tier: tuple[str, ...] = (),
    starts: Annotated[str, Parameter(name="--from")] = "",
) -> None:
    """Set a price; it wins over a published one. Rows that were billed stay as they are.

    Parameters
    ----------
    vendor
        As in the settings of a backend.
    model
        As the vendor calls it.
    tier
        Rates of a whole request whose prompt is longer, such as 200000:input=6,output=22.5,cache_read=0.6. Repeat it for more.
    starts
        From when: 12h, 30d, 2027-01-31 or 2027-01-31T12:00:00Z, also one that is past. Without it: now.
    """
    given = {name: getattr(rates, name) for name in (*prices.RATES, "batch_discount")}
    new = prices.NewPrice(vendor=vendor, model=model, starts=starts or None, tiers=tuple(_tier(one) for one in tier), **given)
    made = run(lambda engine, _: prices.set_price(engine, new, actor=COMMAND_LINE))
    told = ", ".join(f"{name} {rate}" for name, rate in made.usd.items())
    longer = "".join(f"; above {one.above} tokens " + ", ".join(f"{name} {rate}" for name, rate in one.usd.items()) for one in made.tiers)
    print(f"{made.vendor} {made.model}: {told} USD{longer}, from {instant(made.from_us)}")
    if starts and made.state != "upcoming":
        print(f"What was billed since then stays as it is until `tollway ledger reprice --since {instant(made.from_us)}`.")


def _tier(text: str) -> TierSettings:
    above, _, rest = text.partition(":")
    words = [word.partition("=") for word in rest.split(",")]
    names = [name.strip().replace("-", "_") for name, _, _ in words]
    rates = dict(zip(names, (rate.strip() for _, _, rate in words), strict=True))
    if len(rates) < len(names):
        fail(f"--tier '{text[:200]}': a class of tokens stands there twice.")
    unknown = [name for name in rates if name not in CLASSES]
    if not above.isdecimal() or not rest or unknown or not {"input", "output"} <= rates.keys():
        wrong = f" '{unknown[0]}' is no class of tokens: {', '.join(CLASSES)}." if unknown and rest else ""
        fail(f"--tier '{text[:200]}':{wrong} Write 200000:input=6,output=22.5 with a number of prompt tokens first.")
    return TierSettings(above=int(above), **rates)


@app.command
def delete(price: str) -> None:
    """Withdraw a price that was set; the one before it holds again.

    Parameters
    ----------
    price
        Its id, as `tollway prices list --all` shows it.
    """
    gone = run(lambda engine, _: prices.delete_price(engine, price, actor=COMMAND_LINE))
    print(f"{gone.vendor} {gone.model}: {gone.id} is withdrawn")


@app.command
def check() -> None:
    """What each backend is billed at. Exit status 1 when one has no price."""
    found = run(prices.of_backends)
    rows = [(one.backend, one.vendor, one.model, *_told(one)) for one in found]
    print(table(("backend", "vendor", "model", "input", "output", "price"), rows))
    unpriced = [one.backend for one in found if one.price is None]
    if unpriced:
        fail(f"no price: {', '.join(unpriced)}. Set it with `tollway prices set` or as backends.price")


def _told(one: prices.Priced) -> tuple[str, str, str]:
    if one.hourly is not None:
        return "-", "-", f"{usd(one.hourly)} USD per hour"
    return (usd(None), usd(None), "-") if one.price is None else (usd(one.price.input), usd(one.price.output), one.price.id)
