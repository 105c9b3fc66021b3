"""Search over the tools of a site: BM25 over weighted fields, with prefixes and small typing errors.

An index is built once per catalog and never changed; a search's work is bounded whatever it asks.
"""

import heapq
import math
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher

from runs.domain.effects import EffectClass
from runs.tools.base import ToolSpec
from runs.tools.bounds import (
    MAX_EXPANSIONS,
    MAX_INDEXED_CHARS,
    MAX_NEAR_CANDIDATES,
    MAX_QUERY_CHARS,
    MAX_QUERY_WORDS,
    MAX_SEARCH_LIMIT,
)
from runs.tools.words import split_words, stem, terms, trigrams

_NAME, _SOURCE, _PATH, _ARGUMENT, _DESCRIPTION = 6.0, 2.0, 2.0, 1.5, 1.0
"""Weight of a word by the field it stands in: what a tool is called says most."""
_PREFIX, _TYPO = 0.6, 0.4
"""What a word counts that only begins with, or only resembles, the word searched."""
_SAME_TRIGRAMS = 0.45
"""Share of common trigrams (Dice) from which a word counts as a misspelling: one wrong letter in six."""
_K1, _B = 1.2, 0.5
"""BM25: saturation and length correction, the latter low since long descriptions are no fault of a tool."""
_EXACT, _ALL_NAME = 1e6, 1e3
"""Added for the exact address or name, and where the name consists of the words searched."""


@dataclass(frozen=True, slots=True)
class SearchHit:
    address: str
    description: str
    score: float
    effect: EffectClass


@dataclass(frozen=True, slots=True)
class _Postings:
    tools: "array[int]"
    weights: "array[float]"
    # Quoted: before Python 3.12 arrays cannot be subscripted at run time.


class SearchIndex:
    """The words of a set of tools. `search` and `near` are pure, fast and safe from any thread."""

    def __init__(self, tools: Iterable[ToolSpec]) -> None:
        self._tools = sorted(tools, key=lambda spec: spec.address)
        self._by_address = {spec.address: i for i, spec in enumerate(self._tools)}
        self._lengths: list[float] = []
        self._name_terms: list[frozenset[str]] = []
        self._postings: dict[str, _Postings] = {}
        name_words: set[str] = set()
        for number, spec in enumerate(self._tools):
            weights = _weigh(spec)
            self._lengths.append(sum(weights.values()))
            self._name_terms.append(frozenset(terms(spec.name)))
            name_words.update(self._name_terms[-1], terms(spec.source))
            for term, weight in weights.items():
                postings = self._postings.setdefault(term, _Postings(array("l"), array("d")))
                postings.tools.append(number)
                postings.weights.append(weight)
        self._mean_length = (sum(self._lengths) / len(self._lengths)) if self._lengths else 1.0
        self._vocabulary = sorted(self._postings)
        self._spellings = _index_trigrams(name_words)
        self._address_grams = _index_trigrams(self._by_address)

    def search(
        self,
        query: str,
        *,
        source: str | None = None,
        limit: int = 20,
        offset: int = 0,
        visible: Callable[[ToolSpec], bool] | None = None,
    ) -> tuple[int, list[SearchHit]]:
        """How many tools match, and one page of them, best first; ties by address.

        An empty query lists all. `visible` decides which tools exist for the caller (blocked ones do not).
        """
        query = query[:MAX_QUERY_CHARS].strip()
        scores = self._score(query) if query else dict.fromkeys(range(len(self._tools)), 0.0)
        found = [
            (-score, number)
            for number, score in scores.items()
            if (source is None or self._tools[number].source == source)
            and (visible is None or visible(self._tools[number]))
        ]
        limit, offset = max(0, min(limit, MAX_SEARCH_LIMIT)), max(0, offset)
        # Tools are numbered by address, so the pairs sort by score and then by address.
        page = heapq.nsmallest(offset + limit, found)[offset:]
        return len(found), [self._hit(number, -score) for score, number in page]

    def near(self, address: str, n: int = 3, *, visible: Callable[[ToolSpec], bool] | None = None) -> list[str]:
        """Up to `n` addresses that resemble a mistyped one, the most similar first."""
        address = address[:MAX_QUERY_CHARS]
        shared = Counter(candidate for gram in trigrams(address) for candidate in self._address_grams.get(gram, ()))
        for words in self._words(address):
            for number in self._postings[words].tools[:MAX_NEAR_CANDIDATES]:
                shared[self._tools[number].address] += 1
        ranked = heapq.nsmallest(MAX_NEAR_CANDIDATES, shared.items(), key=lambda pair: (-pair[1], pair[0]))
        scored = [
            (SequenceMatcher(None, address, candidate).ratio(), candidate)
            for candidate, _ in ranked
            if visible is None or visible(self._tools[self._by_address[candidate]])
        ]
        scored.sort(key=lambda pair: (-pair[0], pair[1]))
        return [candidate for ratio, candidate in scored[:n] if ratio >= 0.5]

    def _hit(self, number: int, score: float) -> SearchHit:
        spec = self._tools[number]
        return SearchHit(spec.address, spec.description, round(score, 4), spec.effect)

    def _score(self, query: str) -> dict[int, float]:
        """Every tool that shares something with the query; walks at most words times expansions postings."""
        words = list(dict.fromkeys(terms(query) or [stem(word) for word in split_words(query)]))[:MAX_QUERY_WORDS]
        scores: dict[int, float] = {}
        matched: Counter[int] = Counter()
        for word in words:
            best: dict[int, float] = {}
            for term, factor in self._expand(word):
                for number, score in self._bm25(term):
                    best[number] = max(best.get(number, 0.0), factor * score)
            for number, score in best.items():
                scores[number] = scores.get(number, 0.0) + score
                matched[number] += 1
        wanted = frozenset(words)
        for number in scores:
            # A tool that answers every word beats one that says a single rare word often.
            scores[number] *= (matched[number] / len(words)) ** 2
            if wanted == self._name_terms[number]:
                scores[number] += _ALL_NAME
        self._raise_exact(query, scores)
        return scores

    def _raise_exact(self, query: str, scores: dict[int, float]) -> None:
        number = self._by_address.get(query)
        if number is not None:
            scores[number] = scores.get(number, 0.0) + 2 * _EXACT
        for candidate in scores:
            if self._tools[candidate].name == query:
                scores[candidate] += _EXACT

    def _bm25(self, term: str) -> Iterator[tuple[int, float]]:
        postings = self._postings[term]
        n = len(postings.tools)
        idf = math.log(1 + (len(self._tools) - n + 0.5) / (n + 0.5))
        for number, weight in zip(postings.tools, postings.weights, strict=True):
            length = 1 - _B + _B * self._lengths[number] / self._mean_length
            yield number, idf * weight * (_K1 + 1) / (weight + _K1 * length)

    def _words(self, text: str) -> Iterator[str]:
        return (term for term in terms(text)[:MAX_QUERY_WORDS] if term in self._postings)

    def _expand(self, word: str) -> list[tuple[str, float]]:
        """Indexed words that stand for the searched one: itself, longer ones, or else misspelt ones."""
        expansions = [(word, 1.0)] if word in self._postings else []
        if len(word) >= 2:
            start = bisect_left(self._vocabulary, word)
            for term in self._vocabulary[start : start + MAX_EXPANSIONS]:
                if term != word and term.startswith(word):
                    expansions.append((term, _PREFIX))
        return expansions or self._misspelt(word)

    def _misspelt(self, word: str) -> list[tuple[str, float]]:
        if len(word) < 4:
            return []
        grams = trigrams(word)
        shared = Counter(term for gram in grams for term in self._spellings.get(gram, ()))
        close = [
            (2 * count / (len(grams) + len(trigrams(term))), term)
            for term, count in heapq.nsmallest(MAX_NEAR_CANDIDATES, shared.items(), key=lambda p: (-p[1], p[0]))
        ]
        return [
            (term, _TYPO * share)
            for share, term in sorted(close, reverse=True)[:MAX_EXPANSIONS]
            if share >= _SAME_TRIGRAMS or _transposed(word, term)
        ]


def _transposed(word: str, term: str) -> bool:
    """Two neighbours swapped (`chagre`): the commonest slip, and the one that costs the most trigrams."""
    if len(word) != len(term):
        return False
    differing = [i for i, (a, b) in enumerate(zip(word, term, strict=True)) if a != b]
    return (
        len(differing) == 2
        and differing[1] == differing[0] + 1
        and word[differing[0]] == term[differing[1]]
        and word[differing[1]] == term[differing[0]]
    )


def _weigh(spec: ToolSpec) -> Counter[str]:
    """Each word of a tool with its weight, every field's share summed."""
    weights: Counter[str] = Counter()
    fields = (
        (_NAME, spec.name),
        (_SOURCE, spec.source),
        (_PATH, str(spec.binding.get("path", ""))),
        (_DESCRIPTION, spec.description[:MAX_INDEXED_CHARS]),
        (_ARGUMENT, " ".join(spec.input_schema.get("properties", {}))[:MAX_INDEXED_CHARS]),
    )
    for weight, text in fields:
        for term in terms(text):
            weights[term] += weight  # type: ignore[assignment]
    return weights


def _index_trigrams(words: Iterable[str]) -> dict[str, list[str]]:
    index: dict[str, list[str]] = {}
    for word in sorted(words):
        for gram in trigrams(word):
            index.setdefault(gram, []).append(word)
    return index
