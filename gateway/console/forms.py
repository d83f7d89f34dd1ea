"""What a form of the console sent, and what is wrong with it by field, for the page that shows the form again. Knows no page."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gateway.console.shell import Asked
from gateway.errors import GatewayError

FIELD_MAX = 2000  # characters of a field that are looked at


async def sent(request: Asked, *, exact: Collection[str] = ()) -> dict[str, str]:
    """The fields of a form without blanks around them. exact: names of those that are taken as they were typed, such as passwords."""
    fields = {name: str(value)[:FIELD_MAX] for name, value in (await request.form()).items()}
    return {name: value if name in exact else value.strip() for name, value in fields.items()}


def wrong(error: GatewayError | None, fields: Mapping[str, str] = {}) -> dict[str, str]:
    """Field -> sentence; "" for what belongs to none. fields: what the form calls the parameters that it names otherwise."""
    if error is None:
        return {}
    param = (error.param or "").partition("[")[0]
    field = fields.get(param, param)
    return {field: error.message.removeprefix(f"{field}: ")}
