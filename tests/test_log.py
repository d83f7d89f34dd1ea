"""The sink of the log: whole lines, and no secret in them."""

from __future__ import annotations

import io

import msgspec

from gateway.log import LOG_FIELDS, Line, Sink, redact
from providers.signers import conceal


def test_the_access_line_has_the_fields_that_are_named() -> None:
    assert {field.name for field in msgspec.structs.fields(Line)} == set(LOG_FIELDS)


def test_a_key_leaves_its_public_part_alone() -> None:
    text = redact('{"authorization": "Bearer tw-AAAABBBBCCCC-0123456789abcdefghijABCDEFGHIJ0123456789abc"}')
    assert text == '{"authorization": "Bearer tw-AAAABBBBCCCC-***"}'


def test_a_credential_of_a_provider_is_masked_wherever_it_stands() -> None:
    conceal("sk-telemetry-test-0123456789")
    assert redact("Traceback: header sk-telemetry-test-0123456789 refused") == "Traceback: header *** refused"


def test_the_sink_writes_whole_lines_when_told_or_full() -> None:
    stream = io.StringIO()
    sink = Sink(stream)
    sink.write("one\n")
    assert stream.getvalue() == ""
    sink.flush()
    assert stream.getvalue() == "one\n"
    sink.write("x" * (Sink.MAX_BUFFER + 1))
    assert len(stream.getvalue()) == 4 + Sink.MAX_BUFFER + 1
