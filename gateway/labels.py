"""Labels: facts that a request asks of its backend, such as residency=eu. Read from text, kept of teams and keys, joined for one request.

What any of them asks must be carried; none can take back what another asked. Knows no backend.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from gateway.errors import InvalidRequest

HEADER = b"x-tollway-labels"
LABELS_MOST = 16  # of one text
TEXT_MOST = 1024
_PAIR = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,63})=([A-Za-z0-9][A-Za-z0-9._:/-]{0,63})")

Labels = tuple[tuple[str, str], ...]
"""(name, value), sorted, none twice. Two values of one name: no backend carries both."""


def parse(text: str, field: str) -> Labels:
    """Of `residency=eu, retention=none`; an empty text asks for nothing. InvalidRequest names `field`."""
    if not text.strip():
        return ()
    found = [_PAIR.fullmatch(word.strip()) for word in text[:TEXT_MOST].split(",")]
    read = [(pair[1], pair[2]) for pair in found if pair is not None]
    if len(read) < len(found) or len(found) > LABELS_MOST or len(text) > TEXT_MOST:
        raise InvalidRequest(
            f"{field}: '{text[:80]}' are no labels: write at most {LABELS_MOST} of name=value, separated by commas, in letters, digits, "
            "dots, dashes and underscores; values may have colons and slashes too.",
            param=field,
        )
    return tuple(sorted(set(read)))


def text_of(labels: Iterable[tuple[str, str]]) -> str:
    """The other way round; what the database keeps."""
    return ",".join([f"{name}={value}" for name, value in labels])


def mapping(text: str, field: str) -> dict[str, str]:
    """Of a text in which each name has one value. InvalidRequest names `field`."""
    pairs = parse(text, field)
    if len(told := dict(pairs)) < len(pairs):
        raise InvalidRequest(f"{field}: '{text[:80]}' asks for two values of one label, which no backend has.", param=field)
    return told


def checked(given: Mapping[str, str], field: str) -> str:
    """The text of what a JSON body gives, by the rules of `parse`. InvalidRequest names `field`."""
    told = text_of(sorted(given.items()))
    if mapping(told, field) != dict(given):
        raise InvalidRequest(f"{field}: a name or value of a label holds a comma or an equals sign.", param=field)
    return told


def stored(team: str, key: str) -> Labels:
    """Of the texts that the database keeps of a key's team and of the key: what holds for its requests."""
    if not team and not key:
        return ()
    return tuple(sorted({(pair.partition("=")[0], pair.partition("=")[2]) for text in (team, key) if text for pair in text.split(",")}))


def required(route: Mapping[str, str], principal: Labels, header: bytes | None) -> Labels:
    """What this request's backend must carry: its route's labels, its team's and key's, and those of its own header. InvalidRequest."""
    if header is None and not principal:
        return tuple(route.items()) if route else ()
    asked = () if header is None else parse(header.decode("latin-1"), HEADER.decode())
    return tuple(sorted({*route.items(), *principal, *asked}))
