"""What can be read off a prompt's text in a fraction of a millisecond: hashed word sequences and the shape of the question.

Standard library only, the same for training and for serving. Knows no label and no model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import log1p, sqrt
from zlib import crc32

from msgspec import Struct

MOST_CHARS = 6000  # of a prompt; of a longer one its beginning and its end are read
GRAM_BITS = 18
WORD_BITS = 16

_TOKEN = re.compile(rb"[a-z\x80-\xff]+|[0-9]+|[^\sa-z0-9\x80-\xff]")
_OPTION = re.compile(r"\n\(?[A-Ja-j][.)]\s")
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
_NUMERIC = re.compile(r"[-+$\s]*\d[\d\s.,/%$^+-]*\w{0,8}\s*")
_SENTENCE = re.compile(r"[.!?](?:\s+|$)")
_CAPITAL = re.compile(r"\b[A-Z][a-z]+")
_UPPER = re.compile(r"[A-Z]")
_DIGIT = re.compile(r"\d")
_VOWEL = re.compile(r"[aeiou]")

_CLASSES = (
    b"the",
    b"he she his her hers him they their them i my me you your we our",
    b"twice double triple thrice half third quarter times each every per percent ratio average fraction dozen fifth",
    b"more less fewer than most least older younger remaining left rest total altogether if then after before except all",
    b"day days week weeks month months year years hour hours minute minutes second seconds",
    b"one two three four five six seven eight nine ten twelve twenty hundred thousand million",
    b"not except never false incorrect least no none",
    b"if that which who whom whose",
    b"court plaintiff defendant statute contract police jury law legal",
    b"how many much",
)
_CLASS_OF = {word: number for number, words in enumerate(_CLASSES) for word in words.split()}
_MARKS = ("/", "(", '"', ",", "$", "%", "\n", "_")
RARITY = 5  # numbers at the end of a shape, see Reading.rarity
OPTIONS = 13  # place in a shape of how many answers there are to choose from
SHAPE = 35 + len(_CLASSES) + len(_MARKS)  # numbers of Reading.shape


class Reading(Struct, gc=False):
    """grams: hashes of its words, pairs and triples. words: hashes of its words in order. shape: SHAPE plain numbers."""

    grams: set[int]
    words: list[int]
    shape: list[float]

    def rarity(self, levels: bytes | Mapping[int, int]) -> list[float]:
        """How usual its words are. levels: of every word's hash 0 (never seen) to 15 (in nearly every prompt)."""
        found = [levels[word] for word in self.words] or [0]
        count = len(found)
        mean = sum(found) / count
        spread = sqrt(max(0.0, sum([level * level for level in found]) / count - mean * mean))
        ranked = sorted(found)
        rare = sum([level <= 2 for level in found])
        return [mean, spread, rare / count, ranked[count // 4], found.count(0) / count]


def read(text: str) -> Reading:
    """A prompt's hashes and shape."""
    if len(text) > MOST_CHARS:
        text = text[: MOST_CHARS // 2] + "\n" + text[-MOST_CHARS // 2 :]
    text = text.strip().removesuffix("\nAnswer:")
    tokens = _TOKEN.findall(text.lower().encode("utf-8", "replace"))
    grams: set[int] = set()
    words: list[int] = []
    counts = [0] * len(_CLASSES)
    gram_mask, word_mask = (1 << GRAM_BITS) - 1, (1 << WORD_BITS) - 1
    one = two = 0
    for token in tokens:
        if token in _CLASS_OF:
            counts[_CLASS_OF[token]] += 1
        name = token if token[0] > 57 or token[0] < 48 else b"#%d" % min(len(token), 4)
        three = crc32(name, two)  # of this word and the two before it
        two = crc32(name, one)
        one = crc32(name)
        words.append(one & word_mask)
        grams.add(one & gram_mask)
        grams.add(two & gram_mask)
        grams.add(three & gram_mask)
        one, two = crc32(b" ", one), crc32(b" ", two)
    stem, *options = _OPTION.split(text)
    total = max(1, len(tokens))
    shape = [*_sizes(stem, tokens), *_options(stem, options), *_numbers(stem), *_sentences(stem, total)]
    shape += [count / total for count in counts]
    shape += [log1p(stem.count(mark)) for mark in _MARKS]
    return Reading(grams, words, shape)


def _sizes(stem: str, tokens: list[bytes]) -> list[float]:
    size = max(1, len(stem))
    words = [token for token in tokens if token[0] > 57]
    count = max(1, len(words))
    lengths = [len(word) for word in words]
    capitals = len(_CAPITAL.findall(stem))
    return [
        log1p(len(stem)),
        log1p(len(tokens)),
        sum(lengths) / count,
        sum([length > 9 for length in lengths]) / count,
        len(set(words)) / count,
        float(len(set(stem))),
        capitals / count,
        log1p(capitals),
        len(_UPPER.findall(stem)) / size,
        len(_DIGIT.findall(stem)) / size,
        len(_VOWEL.findall(stem)) / size,
        log1p(sum(map(stem.count, "+-*=^<>\\"))),
        (len(stem.encode("utf-8", "replace")) - len(stem)) / size,
    ]


def _options(stem: str, options: list[str]) -> list[float]:
    """Of a question with answers to choose from; zeros elsewhere."""
    if not options:
        return [0.0] * 10
    options = options[:6]
    lengths = [len(option) for option in options]
    mean = sum(lengths) / len(lengths)
    spread = sqrt(sum([(length - mean) ** 2 for length in lengths]) / len(lengths))
    bags = [set(option.lower().split()) for option in options]
    pairs = [len(a & b) / max(1, len(a | b)) for place, a in enumerate(bags) for b in bags[:place]]
    asked = set(stem.lower().split())
    return [
        float(len(options)),
        log1p(max(lengths)),
        log1p(min(lengths)),
        log1p(sum(lengths)),
        log1p(spread),
        log1p(lengths[0]),
        log1p(lengths[-1]),
        float(sum([_NUMERIC.fullmatch(option) is not None for option in options])),
        sum(pairs) / max(1, len(pairs)),
        sum([len(bag & asked) / max(1, len(bag)) for bag in bags]) / len(bags),
    ]


def _numbers(stem: str) -> list[float]:
    """How many numbers it holds, and how large."""
    found = [min(1e12, float(number.replace(",", ""))) for number in _NUMBER.findall(stem)]
    sizes = [log1p(number) for number in found]
    count = len(found)
    return [
        log1p(count),
        log1p(len(set(found))),
        max(sizes, default=0.0),
        sum(sizes),
        sum(sizes) / max(1, count),
        float(sum([number <= 12 for number in found])),
        float(sum([number != int(number) for number in found])),
    ]


def _sentences(stem: str, tokens: int) -> list[float]:
    parts = [part for part in _SENTENCE.split(stem) if part]
    last = parts[-1] if parts else ""
    return [
        log1p(len(parts)),
        tokens / max(1, len(parts)),
        log1p(len(last)),
        float(len(_DIGIT.findall(last))),
        float(stem.rstrip().endswith("?")),
    ]
