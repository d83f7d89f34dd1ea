"""`tollway keys`: API keys of teams. A key's text is printed once, when it is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import App, Parameter
from msgspec.structs import replace
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway import auth, people
from gateway.access import COMMAND_LINE
from gateway.cli.database import instant, run, table
from gateway.labels import mapping, text_of
from gateway.settings import Settings


@dataclass(frozen=True)
class Use:
    """What a key may be used for."""

    models: str = ""
    "Routes or upstream models, separated by commas. Without it: everything."
    labels: str = ""
    "What the backend of each of its requests must carry, beside its team's labels: residency=eu,retention=none."
    role: str = ""
    "finance or team_admin: it may use /admin/… as that, and call no model."


ANY = Use()

app = App(name="keys", help="API keys of teams.")


@app.command
def add(
    *,
    team: str,
    use: Annotated[Use, Parameter(name="*")] = ANY,
    expires: str = "",
    name: str = "",
    admin: Annotated[bool, Parameter(negative=())] = False,
    quiet: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Make a key and print it, once.

    Parameters
    ----------
    team
        Whose key it is.
    expires
        12h, 30d, 8w, 2027-01-31 or 2027-01-31T12:00:00Z. Without it: never.
    name
        What it is for.
    admin
        It may also use /admin/…
    quiet
        Print the key alone.
    """
    new = people.NewKey(
        team=team,
        name=name,
        scopes=("inference", "admin") if admin else (use.role or "inference",),
        models=tuple(word.strip() for word in use.models.split(",")) if use.models else None,
        expires=expires or None,
    )

    async def work(engine: AsyncEngine, chosen: Settings) -> tuple[str, people.Key]:
        secrets = await auth.ensure_secret(chosen, engine)
        return await people.add_key(engine, secrets[0], replace(new, labels=mapping(use.labels, "labels")), actor=COMMAND_LINE)

    text, key = run(work)
    if quiet:
        print(text)
        return
    print(text)
    print(f"Shown this once. Team {key.team}, expires {instant(key.expires_at_us, 'never')}. To end it: tollway keys revoke {key.public}")


@app.command
def revoke(key: str) -> None:
    """End a key; every worker refuses it within about two seconds.

    Parameters
    ----------
    key
        Its 12 public characters, as `tollway keys list` shows them, or the whole key.
    """
    ended = run(lambda engine, _: people.revoke_key(engine, key, actor=COMMAND_LINE))
    print(f"key {ended.public} of team {ended.team} was revoked at {instant(ended.revoked_at_us)}")


@app.command
def rotate(key: str, *, overlap: str = people.OVERLAP, quiet: Annotated[bool, Parameter(negative=())] = False) -> None:
    """Give a key a new secret and print it, once. It stays the same key, with its budgets, limits and past.

    Parameters
    ----------
    key
        Its 12 public characters, as `tollway keys list` shows them, or the whole key.
    overlap
        Until when the secret before works too: 24h, 7d, 2027-01-31; none = no longer.
    quiet
        Print the key alone.
    """

    async def work(engine: AsyncEngine, chosen: Settings) -> tuple[str, people.Key]:
        return await people.rotate_key(
            engine, auth.load_secrets(chosen)[0], key, None if overlap == "none" else overlap, actor=COMMAND_LINE
        )

    text, rotated = run(work)
    print(text)
    if not quiet:
        former = ", ".join(f"{one.public} works until {instant(one.until_us)}" for one in rotated.former)
        print(f"Shown this once. {former or 'The secret before works no longer'}.")


@app.command
def block(key: str) -> None:
    """Refuse a key's requests until it is unblocked; every worker does within about two seconds."""
    blocked = run(lambda engine, _: people.block_key(engine, key, actor=COMMAND_LINE))
    print(f"key {blocked.public} of team {blocked.team} is blocked")


@app.command
def unblock(key: str) -> None:
    """Let a blocked key work again."""
    freed = run(lambda engine, _: people.unblock_key(engine, key, actor=COMMAND_LINE))
    print(f"key {freed.public} of team {freed.team} is no longer blocked")


@app.command(name="list")
def list_(*, team: str = "") -> None:
    """All keys, without their secrets.

    Parameters
    ----------
    team
        Only this team's.
    """
    found = run(lambda engine, _: people.list_keys(engine, team or None))
    head = ("key", "team", "name", "scopes", "models", "labels", "created", "expires", "blocked", "revoked")
    rows = [
        (
            key.public,
            key.team,
            key.name or "-",
            " ".join(key.scopes),
            "all" if key.models is None else ",".join(key.models),
            text_of(key.labels.items()) or "-",
            instant(key.created_at_us),
            instant(key.expires_at_us, "never"),
            instant(key.blocked_at_us),
            instant(key.revoked_at_us),
        )
        for key in found
    ]
    print(table(head, rows))
