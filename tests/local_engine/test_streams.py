from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from local_engine.sampling import Pick
from local_engine.streams import Stream, TokenLog
from local_engine.transport import Connection
from local_engine.wire import Logged, Params, Submit

WORDS = {1: b"ab", 2: "é".encode(), 3: b"END", 4: b""}


@pytest.fixture
def connection() -> Iterator[Connection]:
    with socket.socket(socket.AF_UNIX) as sock:
        yield Connection(sock, 1000, lambda _: None)


def family(connection: Connection, count: int, **params: int) -> list[Stream]:
    found: list[Stream] = []
    for key in range(count):
        found.append(Stream(key, connection, Submit(id=9, text="x", params=Params(n=count, **params)), found))
    return found


def test_choices_have_seeds_of_their_own_of_which_the_first_is_the_client_s(connection: Connection) -> None:
    seeds = [one.params.seed for one in family(connection, 5, seed=2**63)]
    assert seeds[0] == 2**63 and len(set(seeds)) == 5
    assert all(0 <= seed < 2**64 for seed in seeds if seed is not None)
    assert {one.params.seed for one in family(connection, 3)} == {None}
    assert all(one.family is family_ for family_ in [family(connection, 2)] for one in family_)


def test_log_probabilities_wait_for_their_text_and_end_with_it() -> None:
    log = TokenLog(WORDS.__getitem__)
    log.add(Pick(1, -0.5, ((1, -0.5), (2, -1.0))))
    log.add(Pick(2, -0.25))
    assert log.take("abé", stopped=False) == [Logged(b"ab", -0.5, [(b"ab", -0.5), (WORDS[2], -1.0)]), Logged(WORDS[2], -0.25)]
    log.add(Pick(1, -1.0))
    log.add(Pick(3, -2.0))
    assert [one.token for one in log.take("a", stopped=True)] == [b"ab"]  # "b" and what follows it was the stop string
    assert log.take("", stopped=False) == []


def test_a_token_without_text_goes_with_the_next() -> None:
    log = TokenLog(WORDS.__getitem__)
    log.add(Pick(4, -0.5))
    log.add(Pick(3, -0.5))
    assert [one.token for one in log.take("EN", stopped=True)] == [b"", b"END"]
