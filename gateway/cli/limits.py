"""`tollway limits`: requests and tokens per minute and requests at once, of a key, a team or an organisation."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from gateway import rates
from gateway.access import COMMAND_LINE
from gateway.cli.budgets import NOBODY, Scope
from gateway.cli.database import run, table

app = App(name="limits", help="Rate limits, per key, team or organisation.")


@app.command(name="set")
def set_(
    *,
    scope: Annotated[Scope, Parameter(name="*")] = NOBODY,
    rpm: int | None = None,
    tpm: int | None = None,
    parallel: int | None = None,
    model: str = "",
) -> None:
    """Set limits; the same scope and model again replaces all three.

    Parameters
    ----------
    rpm
        Requests in any 60 seconds.
    tpm
        Tokens in any 60 seconds, prompt and answer together.
    parallel
        Requests at once.
    model
        Only what is asked of this route. Without it: of all.
    """
    kind, name = scope.one("a limit")
    new = rates.NewLimit(scope_kind=kind, scope=name, rpm=rpm, tpm=tpm, parallel=parallel, model=model or None)
    limit = run(lambda engine, _: rates.set_limit(engine, new, actor=COMMAND_LINE))
    of = f"{limit.scope_kind} {limit.scope}" + ("" if limit.model is None else f" on {limit.model}")
    figures = ((limit.rpm, "requests/min"), (limit.tpm, "tokens/min"), (limit.parallel, "at once"))
    print(f"limit {limit.id}: {of}, " + ", ".join(f"{figure} {unit}" for figure, unit in figures if figure is not None))


@app.command(name="list")
def list_() -> None:
    """All limits."""
    rows = [
        (
            one.id,
            one.scope_kind,
            one.scope,
            one.model or "all",
            *("-" if figure is None else figure for figure in (one.rpm, one.tpm, one.parallel)),
        )
        for one in run(lambda engine, _: rates.list_limits(engine))
    ]
    print(table(("limit", "scope", "name", "model", "rpm", "tpm", "parallel"), rows))


@app.command
def delete(limit: int) -> None:
    """Lift a limit.

    Parameters
    ----------
    limit
        Its number, as `tollway limits list` shows it.
    """
    run(lambda engine, _: rates.delete_limit(engine, limit, actor=COMMAND_LINE))
    print(f"limit {limit} is deleted")
