"""The pages of the console in the order of the side bar: a page adds its line when it lands. Data."""

from __future__ import annotations

from msgspec import Struct

from gateway.access import EVERYONE, MONEY, TEAM_EDIT, WATCH


class Entry(Struct, frozen=True):
    """path: after /console/. icon: of icons.svg. open_to: the roles that see it, as its handlers say."""

    path: str
    title: str
    icon: str
    open_to: frozenset[str]
    key: str = ""  # after g


GROUPS: tuple[tuple[str, tuple[Entry, ...]], ...] = (
    (
        "Watch",
        (
            Entry("overview", "Overview", "gauge", EVERYONE, "o"),
            Entry("requests", "Requests", "list-filter", WATCH, "r"),
            Entry("backends", "Backends", "server", WATCH, "b"),
            Entry("routes", "Routes", "route", WATCH),
        ),
    ),
    (
        "Money",
        (
            Entry("reports", "Reports", "chart-column", MONEY | TEAM_EDIT, "c"),
            Entry("teams", "Teams and keys", "users", EVERYONE, "t"),
            Entry("budgets", "Budgets", "wallet", MONEY | TEAM_EDIT, "u"),
        ),
    ),
    (
        "Do",
        (
            Entry("playground", "Playground", "terminal", WATCH, "p"),
            Entry("audit", "Audit log", "scroll-text", TEAM_EDIT),
            Entry("settings", "Settings", "settings", MONEY),
        ),
    ),
)
PHONE = ("overview", "requests", "backends", "reports")  # in the tab bar; the rest is behind More

ENTRIES = tuple(entry for _, group in GROUPS for entry in group)
