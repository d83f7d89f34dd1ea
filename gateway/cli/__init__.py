"""The `tollway` command: one file per noun, named here by import string so that a command loads only what it needs.

Knows no command's meaning. `settings()` is how a command reads the configuration that `--config` and the environment give.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from gateway.settings import EXIT_CONFIG, ConfigError, Settings, load


def _version() -> str:
    try:
        return importlib.metadata.version("tollway")
    except importlib.metadata.PackageNotFoundError:
        return "of a checkout that is not installed"


app = App(name="tollway", version=_version, help="Self-hosted inference gateway and cost router.")

app.command("gateway.cli.serve:serve", help="Serve until told to stop.")
app.command("gateway.cli.hello:hello", help="A key and a request to copy, once the gateway answers.")
app.command("gateway.cli.demo:demo", help="A gateway with scripted backends, a little traffic and its report.")
app.command("gateway.cli.check:check", help="Configuration, database, backends and prices: what would not work, and why.")
app.command("gateway.cli.migrate:migrate", help="Bring the database to this program's schema.")
app.command("gateway.cli.teams:app", name="teams", help="Teams: what a key belongs to and spend is accounted to.")
app.command("gateway.cli.keys:app", name="keys", help="API keys of teams.")
app.command("gateway.cli.members:app", name="members", help="People who sign in to the console.")
app.command("gateway.cli.budgets:app", name="budgets", help="Hard limits on spend, per key, team or organisation.")
app.command("gateway.cli.limits:app", name="limits", help="Rate limits, per key, team or organisation.")
app.command("gateway.cli.prices:app", name="prices", help="What models cost: the price book, and which backends have no price.")
app.command("gateway.cli.report:app", name="report", help="What was spent, by whom, on what; statements and forecasts.")
app.command("gateway.cli.owned:owned", help="Owned hardware: what it came to, and where a hosted backend would cost the same.")
app.command("gateway.cli.ledger:app", name="ledger", help="The ledger: check it, export it, settle what is unknown, prune it.")
app.command("gateway.cli.processes:app", name="processes", help="Gateway processes and the budget money they hold.")
app.command("gateway.cli.explain:explain", help="Why a request went to the backend it went to.")
app.command("gateway.cli.route:route", help="Where a request would go and why, without calling anybody.")
app.command("gateway.cli.quality:app", name="quality", help="Models that say where a weak backend will do: train and judge them.")
app.command("gateway.cli.vendors:vendors", help="Whom Tollway speaks to, and what each can carry.")
app.command("gateway.cli.models:app", name="models", help="Models on this machine, for backends of the vendor `local`.")

_chosen: list[Path | None] = [None]


def settings() -> Settings:
    """The checked settings of this call. Raises ConfigError, which `main` tells the user."""
    return load(_chosen[0], os.environ)


def chosen_file() -> Path | None:
    """What `--config` named, for a command that calls another."""
    return _chosen[0]


@app.meta.default
def _launch(
    *tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    config: Annotated[Path | None, Parameter(help="Settings file; without it ./tollway.toml where there is one.")] = None,
) -> object:
    _chosen[0] = config
    return app(tokens)


def main() -> None:
    """Run one command; a setting that cannot work is one line on stderr and exit status 78."""
    try:
        app.meta(sys.argv[1:])
    except ConfigError as error:
        print(f"tollway: {error}", file=sys.stderr)
        sys.exit(EXIT_CONFIG)
    except KeyboardInterrupt:
        sys.exit(130)
