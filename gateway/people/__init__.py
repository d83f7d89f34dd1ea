"""Organisations, teams, API keys, members and budgets: making, listing and ending them. The command line, the admin API and the console
call these.

Every change moves `catalog_version` in its own transaction, so that all workers see it about a second later, and is written into the
audit log there. `actor` is who asks; a thing of a team that it may not see is not there for it. Knows no request and no HTTP; what cannot
be done is a GatewayError that says what to do.
"""

from gateway.people.budgets import ALERTS, Budget, NewBudget, delete_budget, end_override, list_budgets, override_budget, set_budget
from gateway.people.common import no_key
from gateway.people.keys import (
    OVERLAP,
    Key,
    KeyChange,
    NewKey,
    add_key,
    block_key,
    change_key,
    list_keys,
    revoke_key,
    rotate_key,
    unblock_key,
)
from gateway.people.teams import DEFAULT_ORG, Organisation, Team, add_team, delete_team, label_team, list_organisations, list_teams
from gateway.people.used import LOOK_DAYS, LastUse, Use

__all__ = [
    "ALERTS",
    "DEFAULT_ORG",
    "LOOK_DAYS",
    "OVERLAP",
    "Budget",
    "Key",
    "KeyChange",
    "LastUse",
    "NewBudget",
    "NewKey",
    "Organisation",
    "Team",
    "Use",
    "add_key",
    "add_team",
    "block_key",
    "change_key",
    "delete_budget",
    "delete_team",
    "end_override",
    "label_team",
    "list_budgets",
    "list_keys",
    "list_organisations",
    "list_teams",
    "no_key",
    "override_budget",
    "revoke_key",
    "rotate_key",
    "set_budget",
    "unblock_key",
]
