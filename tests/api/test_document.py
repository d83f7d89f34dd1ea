"""`/admin` against its own OpenAPI document, by schemathesis: whatever it allows is answered without a fault and in its shapes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import FailureGroup, not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance

from tests.api.conftest import Api

EXAMPLES = 5  # of each call
CHECKS = [not_a_server_error, content_type_conformance, response_schema_conformance]
NEEDS_A_SUPERVISOR = "/admin/reload"


def send(api: Api, case: schemathesis.Case) -> httpx.Response:
    """What a case asks, with an admin key."""
    told = case.as_transport_kwargs(base_url="http://gateway")
    headers = {str(name): str(value) for name, value in told["headers"].items()}
    content = {"json": told["json"]} if "json" in told else {"content": told["data"]} if told.get("data") else {}
    return api.call(told["method"], told["url"], params=told.get("params"), headers=headers, **content)


@pytest.fixture(scope="module")
def schema(api: Api) -> Any:
    return schemathesis.openapi.from_dict(api.document)


def test_what_the_document_allows_is_answered_in_its_shapes(api: Api, schema: Any) -> None:
    operations = [found.ok() for found in schema.get_all_operations()]
    chosen = [one for one in operations if one.path.startswith("/admin") and one.path != NEEDS_A_SUPERVISOR]
    assert len(chosen) >= 50
    for operation in chosen:

        @settings(max_examples=EXAMPLES, phases=[Phase.generate], database=None, derandomize=True, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy())
        def answered(case: schemathesis.Case) -> None:
            case.validate_response(send(api, case), checks=CHECKS)

        answered()


def test_the_checks_see_a_wrong_answer(schema: Any) -> None:
    case = schema["/admin/teams"]["GET"].Case()
    for status, body in ((500, {"error": {"message": "m", "type": "t"}}), (200, {"data": [{"id": 1}]}), (400, {"detail": "m"})):
        answer = httpx.Response(status, json=body, request=httpx.Request("GET", "http://gateway/admin/teams"))
        answer.elapsed = timedelta(seconds=1)
        with pytest.raises(FailureGroup):
            case.validate_response(answer, checks=CHECKS)
