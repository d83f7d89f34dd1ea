"""The templates' environment: filters that need to know the zone and the present, from `tz` and `now_us` of the page. Import it late: a
worker that nobody looks at does without jinja.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup

from gateway.console import assets
from gateway.money.pricing import nanousd
from gateway.money.windows import zone
from gateway.views import figures

RANGES_SHOWN = ("1h", "24h", "7d", "30d", "month")


def page(template: str, values: dict[str, Any]) -> str:
    return environment().get_template(template).render(_with_macros(values))


def block(template: str, name: str, values: dict[str, Any]) -> str:
    """One block of a template, without what stands around it."""
    found = environment().get_template(template)
    return "".join(found.blocks[name](found.new_context(_with_macros(values))))


def _with_macros(values: dict[str, Any]) -> dict[str, Any]:
    """`c`: the components, which see what the page sees."""
    return values | {"c": environment().get_template("components.html").make_module(values)}


@cache
def environment() -> Environment:
    """Compiled once per worker. An unknown name in a template is an error."""
    made = Environment(
        loader=FileSystemLoader(assets.folder() / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"money": money, "tokens": tokens, "when": when, "day": day, "ago": ago, "offset": offset, "local_input": local_input}
    made.filters |= {"clock": clock, "of_usd": of_usd}
    made.filters |= {"usd": figures.money, "exact": figures.exact, "duration_ms": figures.duration, "share": figures.share}
    made.filters |= {"share_fine": figures.share_fine}
    made.filters |= {"count": figures.count, "percent": figures.percent, "spark": figures.spark, "rate": figures.rate, "initials": initials}
    made.globals |= {"static": assets.url, "per_million": figures.per_million, "change": figures.change, "ratio": figures.ratio}
    made.globals |= {"RANGES": RANGES_SHOWN, "kinds_of": pairs}
    return made


def money(nanousd: int | None) -> Markup:
    """Short, with all nine decimals in the title and behind the key x."""
    if nanousd is None:
        return Markup('<span class="warn">unpriced</span>')
    told = Markup('<data class="money" value="{}" title="{}"><span class="m-s">{}</span><span class="m-x">{}</span></data>')
    exact = figures.exact(nanousd)
    return told.format(nanousd, exact, figures.money(nanousd), exact)


def tokens(number: int) -> Markup:
    return Markup('<data value="{}" title="{}">{}</data>').format(number, figures.count(number), figures.tokens(number))


@pass_context
def when(context: Context, at_us: int | None, absent: str = "never") -> Markup:
    if at_us is None:
        return Markup("{}").format(absent)
    where = zone(context["tz"])
    return Markup('<time datetime="{}">{}</time>').format(figures.rfc3339(at_us, where), figures.when(at_us, where, context["now_us"]))


@pass_context
def day(context: Context, at_us: int) -> str:
    return figures.day(at_us, zone(context["tz"]), context["now_us"])


@pass_context
def ago(context: Context, at_us: int | None) -> Markup:
    if at_us is None:
        return Markup("never")
    told = figures.ago(at_us, context["now_us"])
    return Markup('<time datetime="{}">{}</time>').format(figures.rfc3339(at_us, zone(context["tz"])), told)


@pass_context
def clock(context: Context, at_us: int) -> str:
    return figures.clock(at_us, zone(context["tz"]))


def of_usd(text: str) -> int:
    """Nano-USD of the text that a view tells."""
    return nanousd(text, "usd")


@pass_context
def offset(context: Context, name: str) -> str:
    return figures.offset(context["now_us"], zone(name))


@pass_context
def local_input(context: Context, at_us: int) -> str:
    return figures.local_input(at_us, zone(context["tz"]))


def pairs(words: Iterable[str]) -> list[tuple[str, str]]:
    """Options that are called what they are."""
    return [(word, word) for word in words]


def initials(name: str) -> str:
    """Two letters for the circle beside a name."""
    words = name.replace("@", " ").replace(".", " ").split()
    return "".join(word[0] for word in words[:2]).upper() or "?"
