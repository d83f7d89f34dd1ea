"""Reasoning that only those who wrote it can read, on its way through a language that has one text for it: a signature, or data.

A sealed text names what it may go back as, so that it goes there, whatever surface the client used between two turns, and to nobody
else. Knows no language.
"""

from __future__ import annotations

_MARK = "tollway:"


def seal(kind: str, text: str) -> str:
    """kind: a language, or what another language's reasoning is called in this one."""
    return f"{_MARK}{kind}:{text}"


def unseal(text: str | None, kind: str) -> str | None:
    """What was sealed as `kind`; None for anything else."""
    mark = f"{_MARK}{kind}:"
    return text[len(mark) :] if text is not None and text.startswith(mark) else None


def is_sealed(text: str | None) -> bool:
    return text is not None and text.startswith(_MARK)
