"""Even answers: samples -> fewer samples, in which no answer is likelier than another.

Object names (a colour and a shape) are drawn by chance and tell nothing, so that they count as one text; so do colours.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from cosmos_reason.simulate.bodies import COLOURS, SHAPES
from cosmos_reason.types import LETTERS, Sample

_NAME = re.compile(rf"\b(?:{'|'.join(COLOURS)})(?: (?:{'|'.join(SHAPES)}))?\b")
_GUESSABLE = ("binary", "choice")


def balance(samples: Sequence[Sample], seed: int) -> list[Sample]:
    """Within each family's template: as many yes as no; and of a choice, each option text equally often right among
    the questions that offer the same texts about clips cut alike, and each letter equally often right among those with
    as many options.

    What is in surplus is dropped, drawn from `seed`; a set of options of which one is never right goes whole. Letters
    are evened by moving the right option. Kinds without a finite guess, and choices with several right options, are
    kept as they are, and the order stays.
    """
    rng = np.random.default_rng(seed)
    groups: dict[tuple[str, ...], dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    result = {i: s for i, s in enumerate(samples) if s.kind not in _GUESSABLE or not isinstance(s.answer, str)}
    for i, sample in enumerate(samples):
        if i not in result:
            groups[_question_of(sample)][_right_text(sample)].append(i)
    by_size: dict[tuple[str, str, int], list[int]] = defaultdict(list)
    for key in sorted(groups):
        for i in _even(groups[key], set(_texts(samples[groups[key][min(groups[key])][0]])), rng):
            by_size[samples[i].family, samples[i].template, len(samples[i].options)].append(i)
    for (_, _, options), members in sorted(by_size.items()):
        result.update(_even_letters(samples, members, options, rng) if options else {i: samples[i] for i in members})
    return [result[i] for i in sorted(result)]


def _question_of(sample: Sample) -> tuple[str, ...]:
    """What makes questions comparable: family, template, the texts of their options, and where the clip is cut.

    The length of what is shown must not tell the answer.
    """
    return (sample.family, sample.template, str(sample.video.end_s), *_texts(sample))


def _texts(sample: Sample) -> tuple[str, ...]:
    """The possible answers, names blanked, sorted."""
    return ("no", "yes") if sample.kind == "binary" else tuple(sorted(_NAME.sub("X", o) for o in sample.options))


def _right_text(sample: Sample) -> str:
    """The right answer's text, names blanked."""
    if sample.kind == "binary":
        return str(sample.answer)
    return _NAME.sub("X", sample.options[LETTERS.index(str(sample.answer))])


def _even(by_text: Mapping[str, list[int]], texts: set[str], rng: np.random.Generator) -> list[int]:
    """As many samples of each text; none when a text is never right."""
    least = min((len(by_text.get(text, [])) for text in texts), default=0)
    kept = [rng.permutation(by_text[text])[:least] for text in sorted(texts) if least]
    return sorted(int(i) for part in kept for i in part)


def _even_letters(
    samples: Sequence[Sample], members: list[int], options: int, rng: np.random.Generator
) -> dict[int, Sample]:
    """Move right options so that each letter comes equally often; the remainder of the division is dropped.

    Whole rounds of texts have to stay whole, so that the remainder is dropped only where one text makes up the group.
    """
    whole = len(members) // options * options
    if len({_right_text(samples[i]) for i in members}) > 1:
        whole = len(members)
    order = [int(i) for i in rng.permutation(members)][:whole]
    return {i: _moved(samples[i], place % options) for place, i in enumerate(order)}


def _moved(sample: Sample, to: int) -> Sample:
    """The sample with its right option swapped into place `to`."""
    options = list(sample.options)
    at = LETTERS.index(str(sample.answer))
    options[at], options[to] = options[to], options[at]
    return replace(sample, options=tuple(options), answer=LETTERS[to])
