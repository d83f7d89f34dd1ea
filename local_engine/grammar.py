"""What an answer must be, as the tokens that may come next: by JSON schema, regular expression or lark grammar. llguidance does the work.

A mask is computed on a thread of its own while the step that needs it is still in the model. Knows no request and no logits.
"""

from __future__ import annotations

from collections import OrderedDict
from concurrent.futures import Executor, Future, ThreadPoolExecutor

import torch
from llguidance import LLMatcher, LLTokenizer

from local_engine.errors import BadRequest
from local_engine.wire import MAX_GRAMMAR_BYTES, Grammar

KEPT = 64  # grammars that stay compiled; a schema comes again and again
MASK_THREADS = 1
WHITESPACE = r" ?"  # between JSON's marks: a weak model that may write any goes on writing it
WORD_BITS = 32


class Grammars:
    """The grammars of one tokenizer. tokenizer: its tokenizer.json. Made when first needed: it walks the whole vocabulary."""

    def __init__(self, tokenizer: str, vocab: int, eos_ids: frozenset[int]) -> None:
        self._tokenizer = LLTokenizer(tokenizer, n_vocab=vocab, eos_token=sorted(eos_ids))
        self._vocab = vocab
        self._eos_ids = sorted(eos_ids)
        self._executor = ThreadPoolExecutor(MASK_THREADS, "engine-mask")
        self._compiled: OrderedDict[Grammar, LLMatcher] = OrderedDict()

    def matcher(self, wanted: Grammar) -> Matcher:
        """At its beginning. Up to a second for a huge grammar. Raises BadRequest naming the client's field."""
        found = self._compiled.pop(wanted, None) or self._compile(wanted)
        self._compiled[wanted] = found
        if len(self._compiled) > KEPT:
            self._compiled.popitem(last=False)
        return Matcher(found.deep_copy(), self._vocab, self._eos_ids, self._executor)

    def _compile(self, wanted: Grammar) -> LLMatcher:
        if len(wanted.source) > MAX_GRAMMAR_BYTES:
            raise BadRequest(f"{wanted.param}: a grammar may have {MAX_GRAMMAR_BYTES} bytes, not {len(wanted.source)}", param=wanted.param)
        try:
            matcher = LLMatcher(self._tokenizer, _grammar(wanted), log_level=0)
        except ValueError as error:
            raise BadRequest(f"{wanted.param} cannot be used: {error}", param=wanted.param) from None
        if matcher.is_error():
            raise BadRequest(f"{wanted.param} cannot be used: {matcher.get_error()}", param=wanted.param)
        return matcher


class Matcher:
    """One answer on its way through a grammar. only_end: nothing but its end may follow; valid after `forbidden`."""

    def __init__(self, matcher: LLMatcher, vocab: int, eos_ids: list[int], executor: Executor) -> None:
        self._matcher = matcher
        self._vocab = vocab
        self._eos_ids = eos_ids
        self._executor = executor
        self._words = torch.zeros(-(-vocab // WORD_BITS), dtype=torch.int32)
        self.only_end = False
        self.error = ""
        self._next: Future[torch.Tensor] = executor.submit(self._compute)

    def forbidden(self) -> torch.Tensor:
        """[vocab] true for each token that may not come next."""
        return self._next.result()

    def take(self, token: int) -> bool:
        """Go on by a token that was allowed; False when nothing may follow it, or at a grammar too hard to go on with (`error`)."""
        self._next.result()
        if not self._matcher.consume_token(token):
            self.error = self._matcher.get_error()
            return False
        if self._matcher.is_stopped():
            self.error = self._matcher.get_error()
            return False
        self._next = self._executor.submit(self._compute)
        return True

    def _compute(self) -> torch.Tensor:
        self._matcher.unsafe_compute_mask_ptr(self._words.data_ptr(), self._words.nbytes)
        bits = (self._words[:, None] >> torch.arange(WORD_BITS, dtype=torch.int32)) & 1
        forbidden = bits.flatten()[: self._vocab] == 0
        ends = forbidden[self._eos_ids].clone()
        forbidden[self._eos_ids] = True
        self.only_end = bool(forbidden.all())
        forbidden[self._eos_ids] = False if self.only_end else ends
        return forbidden


def _grammar(wanted: Grammar) -> str:
    if wanted.kind == "json_schema":
        return LLMatcher.grammar_from_json_schema(wanted.source, overrides={"whitespace_pattern": WHITESPACE})
    if wanted.kind == "regex":
        return LLMatcher.grammar_from_regex(wanted.source)
    if wanted.kind == "lark":
        return LLMatcher.grammar_from_lark(wanted.source)
    raise BadRequest(f"{wanted.param}: a grammar of kind {wanted.kind!r} is not known", param=wanted.param)
