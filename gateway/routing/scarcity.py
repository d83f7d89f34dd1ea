"""What is a token of an engine of one's own worth to the requests that it turns away? Ranked as a price beside that of the request.

An engine that is full sends requests to dearer backends. Whoever can go elsewhere for little is to leave it to those for whom that costs
more: a relaxed request goes to a slow and cheap backend. Learnt from the requests placed:

    scarcity := scarcity + (worth - scarcity) / MEMORY    worth: 0 where it is in time, else (paid elsewhere - its own cost) / its tokens
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gateway.routing.decision import Decision, charged, late, taken

MEMORY = 64  # requests


class Scarce(Protocol):
    """scarcity: nano-USD per million tokens."""

    scarcity: int


def learn(decision: Decision, places: Sequence[tuple[int, Scarce]]) -> None:
    """A request was placed. places: where engines of one's own stand among its candidates."""
    candidates, order = decision.candidates, decision.order
    if not order or decision.explored:
        return
    first = candidates[order[0]]
    if first.cost is None or first.reason:
        return
    for place, state in places:
        c = candidates[place]
        if c.reason or c.cost is None:
            continue
        worth = 0
        if late(decision, c):
            paid = first.cost + charged(decision, first)
            if c.cost >= paid:
                continue
            worth = (paid - c.cost) * 1_000_000 // max(1, taken(decision, c))
        if worth or state.scarcity:
            state.scarcity += (worth - state.scarcity) // MEMORY
