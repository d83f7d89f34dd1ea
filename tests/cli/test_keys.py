"""`tollway keys`: the secret is printed once."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import text

from gateway.auth import digest_of
from gateway.settings import Storage
from tests.cli.conftest import Tollway

KEY = r"tw-[0-9A-Za-z]{12}-[0-9A-Za-z]{43}"


def test_a_key_is_printed_once_and_can_be_ended(tollway: Tollway) -> None:
    tollway("teams", "add", "search")
    made = tollway("keys", "add", "--team", "search", "--expires", "2099-01-31", "--labels", "residency=eu")
    assert made.status == 0 and re.fullmatch(KEY, made.lines[0])
    assert "2099-01-31T00:00:00Z" in made.lines[1]
    key = made.lines[0]
    listed = tollway("keys", "list")
    assert key[3:15] in listed.out and key[16:] not in listed.out and "residency=eu" in listed.out
    ended = tollway("keys", "revoke", key[3:15])
    assert ended.status == 0 and key[3:15] in ended.out
    assert re.search(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$", tollway("keys", "list", "--team", "search").lines[1])
    assert tollway("keys", "revoke", "AAAAAAAAAAAA").status == 1


def test_quiet_prints_the_key_alone_and_it_is_digested_under_the_folders_secret(
    tollway: Tollway, storage: Storage, on_database: Callable[[Callable[..., Any]], Any]
) -> None:
    tollway("teams", "add", "search")
    made = tollway("keys", "add", "--team", "search", "--quiet", "--models", "assistant, gpt-4o", "--admin")
    assert re.fullmatch(KEY + "\n", made.out) and made.err == ""
    secret = (Path(storage.state_dir) / "tollway.secret").read_bytes().strip()

    async def stored(engine: Any) -> Any:
        async with engine.connect() as connection:
            return (await connection.execute(text("SELECT digest, models, scopes FROM api_keys"))).one()

    row = on_database(stored)
    assert bytes(row.digest) == digest_of(made.out.strip().encode(), secret)
    assert (row.models, row.scopes) == ('["assistant","gpt-4o"]', "admin inference")


def test_a_key_needs_a_team_that_is_there(tollway: Tollway) -> None:
    refused = tollway("keys", "add", "--team", "nobody")
    assert (refused.status, refused.out) == (1, "") and "tollway teams add nobody" in refused.err


def test_a_key_is_rotated_and_blocked(tollway: Tollway) -> None:
    tollway("teams", "add", "search")
    first = tollway("keys", "add", "--team", "search", "--quiet", "--role", "finance").out.strip()
    rotated = tollway("keys", "rotate", first[3:15], "--overlap", "2d")
    assert re.fullmatch(KEY, rotated.lines[0]) and rotated.lines[0] != first
    assert re.fullmatch(rf"Shown this once. {first[3:15]} works until \S+Z.", rotated.lines[1])
    alone = tollway("keys", "rotate", first[3:15], "--overlap", "none", "--quiet").out.strip()
    assert re.fullmatch(KEY, alone)
    assert tollway("keys", "block", alone).out == f"key {alone[3:15]} of team search is blocked\n"
    row = tollway("keys", "list").lines[1].split()
    assert (row[0], row[3]) == (alone[3:15], "finance") and re.fullmatch(r"\d{4}-\S+Z", row[-2])
    assert tollway("keys", "unblock", alone[3:15]).out == f"key {alone[3:15]} of team search is no longer blocked\n"
    assert tollway("keys", "list").lines[1].split()[-2] == "-"
