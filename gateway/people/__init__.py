"""Organisations, teams, API keys and their budgets: making, listing and ending them. The command line, the admin API and the console
call these.

Every change moves `catalog_version` in its own transaction, so that all workers see it about a second later. Knows no request and no HTTP;
what cannot be done is a GatewayError that says what to do.
"""

from gateway.people.budgets import ALERTS, Budget, NewBudget, delete_budget, end_override, list_budgets, override_budget, set_budget
from gateway.people.keys import Key, NewKey, add_key, list_keys, revoke_key
from gateway.people.teams import DEFAULT_ORG, Team, add_team, delete_team, label_team, list_teams

__all__ = [
    "ALERTS",
    "DEFAULT_ORG",
    "Budget",
    "Key",
    "NewBudget",
    "NewKey",
    "Team",
    "add_key",
    "add_team",
    "delete_budget",
    "delete_team",
    "end_override",
    "label_team",
    "list_budgets",
    "list_keys",
    "list_teams",
    "override_budget",
    "revoke_key",
    "set_budget",
]
