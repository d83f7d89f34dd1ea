"""`tollway budgets`: hard limits on what a key, a team or an organisation may spend in a period."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import App, Parameter

from gateway import people
from gateway.access import COMMAND_LINE
from gateway.cli.database import fail, instant, run, table
from gateway.money.pricing import nanousd, usd

app = App(name="budgets", help="Hard limits on spend, per key, team or organisation.")


@dataclass(frozen=True)
class Scope:
    """Exactly one of them."""

    team: str = ""
    "A team's."
    key: str = ""
    "A key's, by its 12 public characters."
    org: str = ""
    "An organisation's."

    def one(self, what: str = "a budget") -> tuple[str, str]:
        """(scope_kind, name)"""
        named = [(kind, name) for kind, name in (("team", self.team), ("key", self.key), ("organisation", self.org)) if name]
        if len(named) != 1:
            fail(f"{what} is for one of --team, --key and --org")
        return named[0]


NOBODY = Scope()


@app.command(name="set")
def set_(
    *,
    scope: Annotated[Scope, Parameter(name="*")] = NOBODY,
    limit: Annotated[str, Parameter(name="--usd")],
    per: str,
    model: str = "",
    timezone: str = "UTC",
    alerts: str = "",
) -> None:
    """Set a limit; the same scope, model, period and zone again changes it.

    Parameters
    ----------
    limit
        A decimal number of US dollars.
    per
        day, week, month or total.
    model
        Only what is asked of this route. Without it: of all.
    timezone
        Where the period begins at midnight, for example Europe/Berlin.
    alerts
        Percents of the limit whose crossing is told, such as 50,80,100, or none. Without it: as they are, 80,100 of a new budget.
    """
    kind, name = scope.one()
    try:
        limit_nanousd = nanousd(limit, "--usd")
    except ValueError as error:
        fail(str(error))
    new = people.NewBudget(
        scope_kind=kind,
        scope=name,
        limit_nanousd=limit_nanousd,
        period=per,
        timezone=timezone,
        model=model or None,
        alerts=_percents(alerts),
    )
    print(_told(run(lambda engine, _: people.set_budget(engine, new, actor=COMMAND_LINE))))


def _percents(text: str) -> tuple[int, ...] | None:
    if text in ("", "none"):
        return () if text else None
    words = text.split(",")
    if not all(word.strip().isdecimal() for word in words):
        fail(f"--alerts '{text[:80]}': write percents such as 50,80,100, or none")
    return tuple(int(word) for word in words)


def _told(budget: people.Budget) -> str:
    of = f"{budget.scope_kind} {budget.scope}" + ("" if budget.model is None else f" on {budget.model}")
    period = "in all" if budget.period == "total" else f"per {budget.period} ({budget.timezone})"
    told = f"budget {budget.id}: {of}, {usd(budget.limit_nanousd)} USD {period}"
    if budget.override_nanousd is not None:
        told += f", until {instant(budget.override_until_us)} {usd(budget.override_nanousd)} USD"
    told += f"; spent so far {usd(budget.spent_nanousd)}"
    if budget.ceiling_nanousd > budget.cap_nanousd:
        told += f". What is spent or held already comes to at most {usd(budget.ceiling_nanousd)} USD"
    return told


@app.command(name="list")
def list_() -> None:
    """All budgets with their present period."""
    head = (
        *("budget", "scope", "name", "model", "per", "timezone", "limit_usd", "override_usd", "override_until"),
        *("spent_usd", "held_usd", "resets", "alerts"),
    )
    rows = [
        (
            budget.id,
            budget.scope_kind,
            budget.scope,
            budget.model or "all",
            budget.period,
            budget.timezone,
            usd(budget.limit_nanousd),
            "-" if budget.override_nanousd is None else usd(budget.override_nanousd),
            instant(budget.override_until_us),
            usd(budget.spent_nanousd),
            usd(budget.leased_nanousd),
            instant(budget.resets_at_us, "never"),
            ",".join(map(str, budget.alerts)) or "none",
        )
        for budget in run(lambda engine, _: people.list_budgets(engine))
    ]
    print(table(head, rows))


@app.command
def override(budget: int, *, limit: Annotated[str, Parameter(name="--usd")] = "", until: str = "", end: bool = False) -> None:
    """Another limit for a while; it ends by itself.

    Parameters
    ----------
    budget
        Its number, as `tollway budgets list` shows it.
    limit
        A decimal number of US dollars.
    until
        12h, 30d, 8w, 2027-01-31 or 2027-01-31T12:00:00Z.
    end
        End the override that runs.
    """
    if end:
        if limit or until:
            fail("--end stands alone")
        print(_told(run(lambda engine, _: people.end_override(engine, budget, actor=COMMAND_LINE))))
        return
    if not limit or not until:
        fail("say --usd and --until, or --end")
    try:
        limit_nanousd = nanousd(limit, "--usd")
    except ValueError as error:
        fail(str(error))
    print(_told(run(lambda engine, _: people.override_budget(engine, budget, limit_nanousd, until, actor=COMMAND_LINE))))


@app.command
def delete(budget: int) -> None:
    """Lift a limit.

    Parameters
    ----------
    budget
        Its number, as `tollway budgets list` shows it.
    """
    run(lambda engine, _: people.delete_budget(engine, budget, actor=COMMAND_LINE))
    print(f"budget {budget} is deleted")
