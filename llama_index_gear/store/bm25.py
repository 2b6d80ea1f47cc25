"""BM25 weights of passages, triples and questions, by Qdrant's own encoder, in bounded time."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain, repeat

from qdrant_client.http import models
from qdrant_edge import Bm25, Bm25Config

from llama_index_gear.characters import unify_spelling
from llama_index_gear.errors import ArgumentError, check_kind, check_numbers, format_value, repair_surrogates
from llama_index_gear.store.schema import to_sparse_vector
from llama_index_gear.triple import SPACELESS

_MAX_WORD = 2_000  # a million characters in words this long take Qdrant's BM25 0.2 seconds in the worst language
# What separates words: white space, and the punctuation of scripts that are written without white space.
_SEPARATORS = (
    r"\s!-/:-@\[-`{-~\u0964\u0965\u0f04-\u0f14\u104a\u104b\u1361-\u1368\u17d4-\u17d6\u2000-\u206f"
    r"\u3001-\u3004\u3008-\u3020\u3030\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65"
)
_PIECES = re.compile(rf"[^{_SEPARATORS}]{{1,{_MAX_WORD}}}")
_SPACELESS_RUN = re.compile(f"[{SPACELESS}]+")
TRIPLE_AVG_LEN = 8.0
"""Length of an average triple in words, for BM25's length normalization."""
LEAST_AVG_LEN = 60.0
"""The smallest average length of passages that is learned, in words: that of about 100 words of English."""
_ASCII_WORDS = bytes(ord(chr(code).lower()) if chr(code).isalnum() else 32 for code in range(128)).ljust(256)
"""ASCII as words are compared: letters are small, marks are spaces."""
_LONG_PIECE = 40  # characters without white space whose words are not kept in memory
_KEPT = 1 << 16
_LONG_TEXT = 20_000  # characters of a text that the engine reads at once
_COUNTING = 1e6  # as k, without length normalization: a weight is then the count of its word, but for a millionth
_TOLERANCE = 1e-4  # of weights that an engine keeps as floats of 32 bits


class WordEncoder:
    """Qdrant's own BM25, in bounded time: a word of more than 2,000 characters counts as several.

    The stemmers' work grows with the square of a word's length: a million times the letter "y" took half a minute, in
    which no other thread ran. A "word" here is text without white space and common punctuation. A text without such a
    long word gets exactly Qdrant's vector of its one spelling: decomposed letters, ligatures, full-width letters and
    soft hyphens make no other words (`unify_spelling`), nor does "ß" for "ss".

    Of scripts without spaces between words (Chinese, Japanese, Thai, …) every two neighboring letters are a word:
    Qdrant takes all that stands between two punctuation marks for one word, which no question has.

    Args:
        language: language of the texts, as Qdrant's BM25 names it.
        average_words: length of an average text, in words without stop words.

    """

    def __init__(self, language: str, average_words: float) -> None:
        self._settings = (language, average_words)
        self._bm25 = Bm25(Bm25Config(language=language, avg_len=average_words))
        self._numbers = _get_numbers(language)

    @property
    def average_words(self) -> float:
        """Length of an average text, in words without stop words."""
        return self._settings[1]

    @property
    def language(self) -> str:
        """Language of the texts, as Qdrant's BM25 names it."""
        return self._settings[0]

    def __reduce__(self) -> tuple[type[WordEncoder], tuple[str, float]]:
        """Pickle and copy the settings: Qdrant's encoder can be neither pickled nor copied."""
        return type(self), self._settings

    def embed_document(self, text: str) -> models.SparseVector:
        """Return the weights of a text that is stored."""
        return to_sparse_vector(self._bm25.embed_document(_split_words(text)))

    def embed_query(self, text: str) -> models.SparseVector:
        """Return the weights of a text that is searched for."""
        return to_sparse_vector(self._bm25.embed_query(_split_words(text)))

    def list_words(self, text: str) -> list[int]:
        """Return the numbers of the text's words, stemmed, without stop words, each as often as BM25 counts it.

        Half a character separates words. No word reaches over white space, nor over other marks of ASCII than letters
        and digits; what stands between is looked up in memory.
        """
        if not text.isascii():
            text = _split_words(repair_surrogates(text))
        pieces = (text.encode().translate(_ASCII_WORDS).decode() if text.isascii() else text).split()
        if len(text) > _LONG_PIECE and (len(text) > _LONG_TEXT or max(map(len, pieces), default=0) > _LONG_PIECE):
            return self._numbers.read(_split_words(text))
        return list(chain.from_iterable(map(self._numbers.__getitem__, pieces)))

    def split_words(self, text: str) -> set[int]:
        """Return the numbers of the text's words, as `list_words` has them."""
        return set(self.list_words(text))

    def count_words(self, text: str) -> Counter[int]:
        """Return the number of each of the text's words → how often it stands there, as `list_words` has them."""
        return Counter(self.list_words(text))

    def with_average(self, average_words: float) -> WordEncoder:
        """Return the encoder of the same language for texts of another average length."""
        return self if average_words == self.average_words else type(self)(self._settings[0], average_words)

    def fits(self, text: str, stored: models.SparseVector | None) -> bool:
        """Return True if the stored weights are this encoder's, or have other words than its own.

        Weights may differ by what an engine's floats lose.
        """
        weights, expected = _to_dict(stored), _to_dict(self.embed_document(text))
        return weights.keys() != expected.keys() or all(
            abs(weight - weights[word]) <= _TOLERANCE for word, weight in expected.items()
        )

    def has_words(self, text: str, stored: models.SparseVector) -> bool:
        """Return True if the stored weights are of this encoder's words."""
        return set(self.embed_document(text).indices) == set(stored.indices)

    def measure(self, text: str) -> int:
        """Return the length of a text in words, without stop words."""
        return len(self.list_words(text))


class _WordNumbers(dict[str, Sequence[int]]):
    """Text without white space → the numbers of its words, each as often as it stands there.

    It reads what it lacks. It keeps at most 65,536 texts, some 10 MB: most words of passages are the same ones.
    """

    def __init__(self, language: str) -> None:
        super().__init__()
        self._counter = Bm25(Bm25Config(language=language, avg_len=1.0, k=_COUNTING, b=0.0))  # a weight is a count

    def __missing__(self, piece: str) -> Sequence[int]:
        if len(self) >= _KEPT:
            self.clear()
        numbers = self[piece] = tuple(self.read(piece))  # the garbage collector looks at lists again and again
        return numbers

    def read(self, text: str) -> list[int]:
        """Return the numbers of a text's words, in any order, each as often as it stands there."""
        vector = self._counter.embed_document(text)
        indices, values = vector.indices, vector.values
        if values == [1.0]:  # nearly all texts without white space
            return indices
        counts = (round(weight * _COUNTING / (_COUNTING + 1 - weight)) for weight in values)
        return list(chain.from_iterable(map(repeat, indices, counts)))


@lru_cache(maxsize=16)
def _get_numbers(language: str) -> _WordNumbers:
    """Return the numbers of a language's words that are in memory, the same for all encoders."""
    return _WordNumbers(language)


def _to_dict(vector: models.SparseVector | None) -> dict[int, float]:
    return {} if vector is None else dict(zip(vector.indices, vector.values, strict=True))


def _split_words(text: str) -> str:
    """Return the text's one spelling with its overlong words split, and text without spaces as pairs of letters.

    It changes no short text of ASCII, and `list_words` doesn't ask it about these: a rule that does must hold
    there too.
    """
    text = unify_spelling(text)
    if "ß" in text or "ẞ" in text:  # as entity keys have it: "STRASSE" is "Straße"
        text = text.replace("ß", "ss").replace("ẞ", "SS")
    if not text.isascii() and _SPACELESS_RUN.search(text):
        text = _SPACELESS_RUN.sub(_pair_letters, text)
    return _split_long_words(text)


def _pair_letters(run: re.Match[str]) -> str:
    letters = run[0]
    return " ".join(["", *(letters[place : place + 2] for place in range(max(1, len(letters) - 1))), ""])


def _split_long_words(text: str) -> str:
    """Return the text with its overlong words split."""
    if len(text) <= _MAX_WORD or max(map(len, text.split()), default=0) <= _MAX_WORD:
        return text  # nearly all texts; Chinese, say, separates words by other marks, which the pattern below knows
    return " ".join(_PIECES.findall(text))


def learn_average(lengths: Sequence[int]) -> float:
    """Return the average of texts' lengths in words: to the nearest ten, and 60 or more."""
    return max(LEAST_AVG_LEN, float(round(sum(lengths) / max(1, len(lengths)), -1)))


def make_encoder(language: str, average_words: float) -> WordEncoder:
    """Make Qdrant's own BM25, for words of any length.

    Raises:
        ArgumentError: BM25 does not know the language, or the length is not above 0.

    """
    check_kind(str, hint="write 'english', say", language=language)
    check_numbers("above 0", lambda number: number > 0, bm25_avg_len=average_words)
    try:
        return WordEncoder(language, average_words)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"BM25 cannot be set up for language={format_value(language)}: {error}") from error
