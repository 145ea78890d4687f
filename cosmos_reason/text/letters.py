"""Reads choices and yes/no: plain final text -> an offered letter, several of them, "yes" or "no", or None.

Evidence in falling rank, for a letter: the whole text is an option's text · the last answer statement ("the answer is
B", "Answer: B", a box) · a line that is only a letter, the last one · lines that begin with one and the same letter ·
the last line is an option's text · one single letter is named in passing ("option C", "(C)", "so C"). Two letters of
equal rank are no answer. Never random, never a capital out of a word; "a" and "I" before a word are words, except a
capital A before a word that cannot follow the article ("the answer is A and …"). What is denied ("A is wrong", "the
answer cannot be A") is taken away first, so that what is concluded after it counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from cosmos_reason.text.statements import BECAUSE, FILLER, affirmed, clause, lines, plain, stated
from cosmos_reason.types import LETTERS

_LETTER = re.compile(r"(?P<open>[(\[{<]?)\s*(?P<letter>[A-Za-z])(?:\s*(?P<close>[)\]}>]))?(?P<rest>.*)", re.DOTALL)
_INSIDE_WORD = re.compile(r"[\w']|[-+&]\w|\+|\.\w")
_STOP = re.compile(r"\s*(?:$|[.,;:!?()\]}\n=-])")
_REASON = re.compile(rf"{BECAUSE}|\s+(?:is|was)\b", re.IGNORECASE)
_SECOND = re.compile(
    r"\s*(?:(?:,\s*)?\b(?:and|or)\b|[/&])\s*[(\[]?[A-Z]\b(?!')|\s*[,;]\s*[(\[]?[A-Z][)\]]?(?:\s*$|\s*[.,;)\n]|\s+(?:and|or)\b)"
)
_QUOTED = re.compile(r"(?<!\w)'([A-Za-z])'(?!\w)")
_ARTICLE = re.compile(r"^(?:an?|the)\s+")
# What follows the letter A but not the English article.
_AFTER_A = re.compile(
    r"\s+(?:and|but|so|then|when|where|which|if|it|its|the|this|these|that|they|he|she|we|in|on|at|by|from|to|with|after"
    r"|before|until|not|has|does|would|should|although|though|based|according)(?![\w-])",
    re.IGNORECASE,
)
_DENIED = (
    r"(?:\s+(?:is|are|was|were|seems?|looks?)\s+(?:(?:\w+ly|also|to\s+be|the|an?)\s+){0,3}?"
    r"(?:not|never|wrong|incorrect|false|impossible|unlikely|implausible|invalid|excluded|eliminated|ruled\s+out)\b"
    r"|\s+(?:(?:is|are|was|were|does|do|did|ca|could|wo|would|must|should)n't|cannot|contradicts)\b"
    r"|\s+(?:can|could|does|do|did|will|would|must|should)\s+not\b"
    r"|\s+(?:can|must|should)\s+be\s+(?:excluded|eliminated|rejected|discarded|ruled\s+out)\b)"
)
_IS_DENIED = re.compile(_DENIED, re.IGNORECASE)
_ONE = r"(?:(?:the\s+)?(?:answer|option|choice|letter)s?\s+)?[(\[]?(?-i:[A-HJ-Z])[)\]]?"
_ELIMINATED = re.compile(
    r"(?:^[ \t#>•-]*|(?<=[.;,:!?]\s)|(?<=\band\s)|(?<=\bbut\s)|(?<=\bso\s))"
    rf"{_ONE}(?:(?:\s*[,/&]\s*|,?\s+(?:and|or|nor)\s+){_ONE}){{0,8}}{_DENIED}{clause('')}",
    re.IGNORECASE | re.MULTILINE,
)
_RUN = re.compile(r"[A-Z]{2,}\b")
_NAMED = re.compile(
    r"(?<!not )(?<!n't )(?:"
    r"\b(?:option|choice|choose|pick|select|go with)\s+\(?(?P<named>[A-Za-z])(?:\)|(?![\w'\-)]))"
    r"|\((?P<bracketed>[A-Z])\)"
    r"|\b(?:it is|it's|(?<!\bas )(?<!\bso )(?<!\bnor )(?<!\bneither )is|so|thus|hence|therefore"
    r"|(?:must|has to|can only) be|leav(?:es|ing)(?: only)?)[\s,:]+(?P<concluded>[A-Z])(?![\w'\-)]))"
    rf"(?!{_DENIED})",
    re.IGNORECASE,
)
_LIST = re.compile(r"[(\[{]*[A-Z][)\]}.]*(?:(?:\s|[,;/&]|\band\b)+[(\[{]*[A-Z]\b[)\]}.]*)*", re.IGNORECASE)
_YES_NO = re.compile(
    r"(?P<word>yes|no)\b(?:(?<=yes)(?!['-])"
    rf"|(?=\s*(?:$|[.,;:!?)\]}}\n-])|{BECAUSE}|\s+(?:it|the|there|this|that|they|he|she)\b))",
    re.IGNORECASE,
)


def comparable(text: str) -> str:
    """Option and reply are compared in this form, both sides alike; the option itself is never rewritten."""
    return re.sub(r"\s+", " ", plain(text)).casefold().strip(" .,;:!?'")


def read_letter(text: str, options: Sequence[str]) -> str | None:
    """The one offered letter that the text states. Example: ``read_letter("(b) left", ("up", "left"))`` is "B"."""
    if (whole := _option_letter(text, options)) is not None:
        return whole
    text = _QUOTED.sub(r"\1", plain(text))
    offered = LETTERS[: len(options)]
    for segment in stated(affirmed(text, in_words=True)):
        segment = re.sub(rf"^[\s#>•-]*{FILLER}", "", segment, flags=re.IGNORECASE)
        if (letter := _leading_option(segment, options)) is not None:
            return letter
        letter = _leading_letter(segment, before_word=True)
        if letter is not None:  # a statement decides, even one that names no offered letter or several
            return letter if letter and letter in offered else None
    return _unmarked_letter(_not_denied(text), options, offered)


def _not_denied(text: str) -> str:
    """The plain text without clauses that rule letters out; what follows such a clause begins a line."""
    return affirmed(_ELIMINATED.sub("\n", text))


def _unmarked_letter(text: str, options: Sequence[str], offered: str) -> str | None:
    """The lower ranks of evidence, for a text without a readable answer statement."""
    starts = [letter for line in lines(text) if (letter := _leading_letter(line, before_word=False)) is not None]
    alone = [line.strip(" ()[]{}.,:;!").upper() for line in lines(text)]
    alone = [letter for letter in alone if len(letter) == 1 and letter in offered]
    if alone:
        return alone[-1]
    if starts:
        return _only(starts, offered)
    written = lines(text)
    if written and (letter := _option_letter(written[-1], options)) is not None:
        return letter
    return _only(_named(text, offered), offered)


def _only(letters: Iterable[str], offered: str) -> str | None:
    """The letter, if they are all one and it is offered."""
    distinct = set(letters)
    letter = distinct.pop() if len(distinct) == 1 else ""
    return letter if letter and letter in offered else None


def _option_letter(text: str, options: Sequence[str]) -> str | None:
    """The letter of the one option whose text this is, exactly, else in comparable form, else up to an article.

    The option's own letter may stand before it ("B blue box"). An option of one character is reached by letter only.
    """
    form = comparable(text)
    for i, option in enumerate(options):
        if form == comparable(f"{LETTERS[i]} {option}"):
            return LETTERS[i]
    long = [i for i, option in enumerate(options) if len(option.strip()) > 1]
    for alike in (
        [i for i in long if text.strip() == options[i].strip()],
        [i for i in long if form == comparable(options[i])],
        [i for i in long if _ARTICLE.sub("", form) == _ARTICLE.sub("", comparable(options[i]))],
    ):
        if alike:
            return LETTERS[alike[0]] if len(alike) == 1 else None
    return None


def _leading_option(segment: str, options: Sequence[str]) -> str | None:
    """The option with whose text the first line begins, up to a stop or a reason; the longest one."""
    line = re.sub(r"\s+", " ", segment.strip().split("\n", 1)[0]).casefold().lstrip(" '")
    for option in sorted(options, key=len, reverse=True):
        form = _ARTICLE.sub("", comparable(option))
        end = rf"'?(?:\s*$|\s*[.,;!?}}]|{BECAUSE})"
        if len(form) > 1 and (found := re.match(rf"(?:(?:an?|the) )?{re.escape(form)}(?={end})", line)):
            return _option_letter(found[0], options)
    return None


def _leading_letter(segment: str, before_word: bool) -> str | None:
    """The letter that stands alone at the start; "" if several do; None if the segment starts with something else.

    `before_word`: a plain word may follow the letter ("the answer is B as …"), except after "I" and the article "a".
    """
    run = _RUN.match(segment)
    if run and set(run[0]) <= set(LETTERS):
        return ""
    match = _LETTER.match(segment)
    if match is None:
        return None
    letter, rest = match["letter"], match["rest"]
    bracketed = bool(match["open"] and match["close"])
    closed = bracketed or bool(match["close"])
    if _IS_DENIED.match(rest):
        return None
    if not closed and _INSIDE_WORD.match(segment[match.end("letter") :]):
        return None
    if _SECOND.match(rest):
        return ""
    if closed or (_STOP.match(rest) and not (letter in "iI" and rest.lstrip().startswith(","))):
        return letter.upper()
    if letter in "iI":
        return letter.upper() if re.match(r"\s+(?:because|since)\b", rest) else None
    worded = letter not in "aA" or (letter == "A" and _AFTER_A.match(rest) is not None)
    return letter.upper() if _REASON.match(rest) or (before_word and worded) else None


def _named(text: str, offered: str) -> list[str]:
    """Letters named in passing and not denied; capitals only, unless a word like "option" stands before."""
    found = []
    for match in _NAMED.finditer(text):
        letter = match["named"] or match["bracketed"] or match["concluded"]
        ends = match["bracketed"] is not None or _STOP.match(text, match.end()) is not None
        accepted = ends or letter not in "aiI" if match["named"] else ends and letter.isupper()
        if accepted and letter.upper() in offered:
            found.append(letter.upper())
    return found


def read_letters(text: str, options: Sequence[str]) -> tuple[str, ...] | None:
    """All letters that the text states, sorted. Example: ``read_letters("A and C", options)`` is ("A", "C")."""
    offered = LETTERS[: len(options)]
    text = plain(text)
    whole, kept = affirmed(text, in_words=True), _not_denied(text)
    for segment in dict.fromkeys([*stated(whole), whole, kept]):
        segment = re.sub(rf"^[\s#>•-]*{FILLER}", "", segment, flags=re.IGNORECASE).strip(" .\n")
        run = _RUN.fullmatch(segment)
        if run or _LIST.fullmatch(segment):
            names = re.findall(r"[A-Z]", segment.upper()) if run else re.findall(r"\b[A-Z]\b", segment.upper())
            return _sorted_letters(names, offered)
        pieces = [piece for piece in re.split(r"[;\n]|,\s", "\n".join(lines(segment))) if piece.strip()]
        texts = [_option_letter(piece, options) for piece in pieces]
        if texts and all(texts):
            return _sorted_letters([letter for letter in texts if letter], offered)
    starts = [letter for line in lines(kept) if (letter := _leading_letter(line, before_word=False)) is not None]
    return _sorted_letters(starts or _named(kept, offered), offered)


def _sorted_letters(names: Sequence[str], offered: str) -> tuple[str, ...] | None:
    """Sorted and without repeats; None when there is none or one is not offered."""
    letters = tuple(sorted(set(names)))
    return letters if letters and all(letter and letter in offered for letter in letters) else None


def read_yes_no(text: str) -> str | None:
    """The last statement of yes or no, a line that is only that, the first word, or the only one standing alone.

    "No" before another word ("no contact", "no doubt") is not an answer.
    """
    text = affirmed(plain(text))
    text = re.sub(r"\b(?:yes|no)\s*(?:/|or)\s*(?:yes|no)\b", "", text, flags=re.IGNORECASE)
    for segment in stated(text):
        match = re.match(rf"\s*{FILLER}[(\[]?", segment, re.IGNORECASE)
        if stated_word := _YES_NO.match(segment, match.end() if match else 0):
            return stated_word["word"].lower()
    written = lines(text)
    alone = [word for line in written if (word := line.strip(" ()[]{}.,:;!").lower()) in ("yes", "no")]
    if alone:
        return alone[-1]
    if written and (first := _YES_NO.match(written[0])):
        return first["word"].lower()
    said = {match["word"].lower() for match in re.finditer(rf"\b{_YES_NO.pattern}", text, re.IGNORECASE)}
    return said.pop() if len(said) == 1 else None
