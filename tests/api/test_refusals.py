"""What /admin refuses: for every call each field missing, of every wrong type, hostile, huge or unknown, ids that no row has, and what
schemathesis makes of the document. Each is told as documented with the field's name, and changes nothing."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode

from gateway.errors import MESSAGE_MOST
from tests.api.bodies import AMOUNTS, IDS, NUMBERS, OF_TYPES, PRICE, RATES, TEAM, UNREADABLE, VALID, WORDS
from tests.api.conftest import Api
from tests.api.test_document import NEEDS_A_SUPERVISOR, send

KEPT = (
    *("organisations", "teams", "api_keys", "former_secrets", "members", "memberships", "budgets", "budget_thresholds", "limits"),
    *("price_book", "made_entries", "backend_orders", "audit"),
)
METHODS = ("get", "put", "post", "patch", "delete")
EXAMPLES = 2  # of each call, from the document
ODD = (*WORDS[:6], "", "1e99999", "-1", str(1 << 64), "9" * 400)  # of a parameter
MAKES = ("PUT /admin/backends/{name}", "PUT /admin/routes/{name}")  # the id in the path is a name that may be free


class Asking:
    """Calls with things that are there. `wrong` is what was not refused as it should be."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.names = api.furnish()
        self.paths: dict[str, Any] = api.document["paths"]
        self.wrong: list[str] = []
        self._reading = sqlite3.connect(api.database)

    @property
    def calls(self) -> list[str]:
        return [
            f"{method.upper()} {path}"
            for path, has in self.paths.items()
            if path.startswith("/admin")
            for method in has
            if method in METHODS
        ]

    def described(self, call: str) -> dict[str, Any]:
        method, path = call.split()
        found: dict[str, Any] = self.paths[path][method.lower()]
        return found

    def ask(self, call: str, body: Any = None, *, path: str = "", **more: Any) -> httpx.Response:
        method, template = call.split()
        names = self.names | ({"name": TEAM} if "/teams/{name}" in call else {})
        content = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        where = re.sub(r"{(\w+)}", lambda found: names[found[1]], path or template)
        return self.api.call(method, where, content=content, headers={"content-type": "application/json"}, **more)

    def refused(self, answer: httpx.Response, what: object, field: str | None = None, codes: tuple[int, ...] = (400,)) -> None:
        """An answer that must be a refusal; field: what its `param` must name, None = anything."""
        found = error_of(answer)
        named = field is None or (found is not None and field in re.split(r"[.\[]", str(found["param"])))
        if answer.status_code not in codes or found is None or not named:
            self.wrong.append(
                f"{answer.request.method} {answer.request.url.path[:60]}, {str(what)[:60]}: {answer.status_code} {answer.text[:200]}"
            )

    def told(self) -> list[str]:
        """What was wrong since it was told last."""
        found, self.wrong = self.wrong, []
        return found

    def kept(self) -> list[Any]:
        """All that people made."""
        return [self._reading.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall() for table in KEPT]

    def changes(self) -> Any:
        """Moves with every change: each is audited in its own transaction."""
        return self._reading.execute("SELECT max(id) FROM audit").fetchone()


def error_of(answer: httpx.Response) -> dict[str, Any] | None:
    """What is told, in the shape of all our errors; None where it is another."""
    try:
        found: dict[str, Any] = answer.json()["error"]
    except (ValueError, KeyError, TypeError):
        return None
    return (
        found if set(found) == {"message", "type", "param", "code"} and found["message"] and len(found["message"]) <= MESSAGE_MOST else None
    )


def types_of(schema: dict[str, Any], known: dict[str, Any]) -> set[str]:
    """The JSON types that a field may have."""
    if "$ref" in schema:
        return types_of(known[schema["$ref"].rpartition("/")[2]], known)
    one = schema.get("type", [])
    found = {one} if isinstance(one, str) else set(one)
    for name in ("oneOf", "anyOf"):
        for part in schema.get(name, ()):
            found |= types_of(part, known)
    found |= {
        "null" if value is None else "string" for value in (*schema.get("enum", ()), *([schema["const"]] if "const" in schema else ()))
    }
    return found | ({"integer"} if "number" in found else set())


def fields_of(asking: Asking, call: str) -> tuple[dict[str, set[str]], list[str]]:
    """(field -> its types, those that must be there) of a body; no field where the document says an object alone."""
    known = asking.api.document["components"]["schemas"]
    schema = asking.described(call)["requestBody"]["content"]["application/json"]["schema"]
    schema = known[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    return {name: types_of(one, known) for name, one in schema.get("properties", {}).items()}, schema.get("required", [])


@pytest.fixture(scope="module")
def asking(api: Api) -> Iterator[Asking]:
    made = Asking(api)
    yield made
    made._reading.close()


Wrong = tuple[Any, str, str | None]


def shapes(asking: Asking, call: str, body: dict[str, Any]) -> Iterator[Wrong]:
    """Bodies of a wrong shape: (the body, what is wrong, the field)."""
    types, needed = fields_of(asking, call)
    assert set(body) >= set(types), f"{call}: a field that is new stands in bodies.py too: {set(types) - set(body)}"
    for content in UNREADABLE:
        yield content, str(content[:20]), None
    yield body | {"surprise": 1}, "a field more", "surprise"
    for name in needed:
        yield {one: value for one, value in body.items() if one != name}, f"without {name}", name
    for name, allowed in types.items():
        for kind, value in OF_TYPES.items():
            if kind not in allowed:
                yield body | {name: value}, f"{name} as {kind}", name


def amounts(asking: Asking, call: str, body: dict[str, Any]) -> Iterator[Wrong]:
    """The same of numbers that are none, or too many."""
    types, _ = fields_of(asking, call)
    for name in body:
        numbers = NUMBERS if "integer" in types.get(name, ()) else AMOUNTS if name in ("usd", *PRICE, *RATES, "per_request") else ()
        for number in numbers:
            yield body | {name: number}, f"{name}: {number}", name


def test_every_body_of_a_wrong_shape_is_refused_by_the_name_of_its_field(asking: Asking) -> None:
    with_body = {call for call in asking.calls if "requestBody" in asking.described(call)}
    assert set(VALID) == with_body, "a call that is new stands in bodies.py too"
    before = asking.kept()
    for call, body in VALID.items():
        for content, what, field in (*shapes(asking, call, body), *amounts(asking, call, body)):
            asking.refused(asking.ask(call, content), what, field)
    assert asking.told() == []
    assert asking.kept() == before


def test_hostile_words_are_refused_by_the_name_of_their_field_or_kept_as_they_are(asking: Asking) -> None:
    for call, body in VALID.items():
        for name, value in body.items():
            for word in WORDS:
                held = (
                    word
                    if isinstance(value, str)
                    else [word]
                    if isinstance(value, list)
                    else {word: word}
                    if isinstance(value, dict)
                    else None
                )
                if held is None:
                    continue
                before = asking.changes()
                answer = asking.ask(call, body | {name: held})
                if answer.status_code >= 300:
                    asking.refused(answer, f"{name}: {word[:20]!r}", name, (400, 404, 409))
                    assert asking.changes() == before, (call, name, word[:20])
                elif not word.isprintable() or len(word) > 5000:
                    asking.wrong += [f"{call} takes {name}: {word[:20]!r}"] * (name != "prompt")
    assert asking.told() == []


def test_an_id_that_no_row_has_finds_nothing_and_a_parameter_that_is_not_known_is_named(asking: Asking) -> None:
    before = asking.kept()
    for call in asking.calls:
        for place in re.findall(r"{(\w+)}", call):
            for one in IDS:
                if call in MAKES and re.fullmatch(r"[0-9x.]+", one):
                    continue
                answer = asking.ask(call, VALID.get(call), path=call.split()[1].replace(f"{{{place}}}", one))
                asking.refused(answer, f"{place} {one[:20]}", codes=(400, 404, 405))
        asking.refused(asking.ask(call, VALID.get(call), params={"surprise": "1"}), "a parameter more", "surprise")
        for parameter in asking.described(call).get("parameters", ()):
            if parameter["in"] == "query":
                for word in ODD:
                    answer = asking.ask(call, VALID.get(call), params={parameter["name"]: word[:5000]})
                    if answer.status_code >= 300:
                        asking.refused(answer, f"{parameter['name']}={word[:20]!r}", codes=(400, 404))
    assert asking.told() == []
    assert asking.kept() == before


def test_what_the_document_does_not_allow_is_refused_and_changes_nothing(asking: Asking) -> None:
    """Of calls for which schemathesis can make something wrong: those with a body, or a parameter that is no text."""
    schema: Any = schemathesis.openapi.from_dict(asking.api.document)
    before = asking.kept()
    tried = []
    for found in schema.get_all_operations():
        operation = found.ok()
        if f"{operation.method.upper()} {operation.path}" not in VALID and not operation.query:
            continue

        @settings(max_examples=EXAMPLES, phases=[Phase.generate], database=None, derandomize=True, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy(generation_mode=GenerationMode.NEGATIVE))
        def answered(case: schemathesis.Case) -> None:
            answer = send(asking.api, case)
            tried.append(answer.status_code)
            asking.refused(answer, answer.request.content[:60] or answer.request.url.query[:60], codes=(400, 404))

        if operation.path.startswith("/admin") and operation.path != NEEDS_A_SUPERVISOR:
            answered()
    assert asking.told() == [] and len(tried) > 40
    assert asking.kept() == before
