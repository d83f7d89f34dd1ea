"""`tollway keys`: API keys of teams. A key's text is printed once, when it is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import App, Parameter
from msgspec.structs import replace
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway import auth, people
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
        scopes=("inference", "admin") if admin else ("inference",),
        models=tuple(word.strip() for word in use.models.split(",")) if use.models else None,
        expires=expires or None,
    )

    async def work(engine: AsyncEngine, chosen: Settings) -> tuple[str, people.Key]:
        secrets = await auth.ensure_secret(chosen, engine)
        return await people.add_key(engine, secrets[0], replace(new, labels=mapping(use.labels, "labels")))

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
    ended = run(lambda engine, _: people.revoke_key(engine, key))
    print(f"key {ended.public} of team {ended.team} was revoked at {instant(ended.revoked_at_us)}")


@app.command(name="list")
def list_(*, team: str = "") -> None:
    """All keys, without their secrets.

    Parameters
    ----------
    team
        Only this team's.
    """
    found = run(lambda engine, _: people.list_keys(engine, team or None))
    head = ("key", "team", "name", "scopes", "models", "labels", "created", "expires", "revoked")
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
            instant(key.revoked_at_us),
        )
        for key in found
    ]
    print(table(head, rows))
