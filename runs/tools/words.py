"""Words of tool names and descriptions: splitting, light stemming and trigrams for search. Pure."""

import re

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_a-zA-Z]+")
_STOP = frozenset(
    ("a", "an", "and", "are", "as", "at", "be", "by", "for", "from", "in", "into", "is", "it", "its", "of")
) | {"on", "or", "that", "the", "this", "to", "with"}


def split_words(text: str) -> list[str]:
    """`createHTTPCharge_v2` → create, http, charge, v, 2: lower-case, in order, repeats kept."""
    return [word.lower() for word in _WORD.findall(text)]


def stem(word: str) -> str:
    """The word without a plural or verb ending: light, so that only forms of one word meet."""
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 5 and word.endswith("ing"):
        return _bare(word[:-3])
    if len(word) > 4 and word.endswith("ed") and not word.endswith("eed"):
        return _bare(word[:-2])
    if len(word) > 4 and word.endswith(("ses", "xes", "zes", "ches", "shes")):
        return _bare(word[:-2])
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return _bare(word[:-1])
    return _bare(word)


def _bare(word: str) -> str:
    """Without a final e, a doubled last letter once: create/created/creating, list/listing, stop/stopped."""
    if len(word) > 3 and word.endswith("e"):
        word = word[:-1]
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz":
        word = word[:-1]
    return word


def terms(text: str) -> list[str]:
    """Stems of the words that tell something."""
    return [stem(word) for word in split_words(text) if word not in _STOP]


def trigrams(word: str) -> set[str]:
    """Runs of three letters, with the ends marked; what two spellings of one word share most of."""
    marked = f"^{word}$"
    return {marked[i : i + 3] for i in range(len(marked) - 2)}
