"""The only place where a conversation becomes ids and a loss mask: Sample + Frames -> Prompt -> Tokens.

One turn, the pictures of a video between its vision tokens, the loss mask below (1 is learned):

    <|im_start|> user \\n <|vision_start|> 0.00s pad pad 0.25s pad pad <|vision_end|> question … <|im_end|> \\n
    0            0    0  0                0     0   0   0     0   0   0              0          0          0
    <|im_start|> assistant \\n <think> … </answer> <|im_end|> \\n
    0            0         0  1       1 1         1          0

What a user or a model wrote never becomes a control token: it is encoded as plain text. Nothing is added that is not
drawn here (no start token, one end token a turn) and no turn is rewritten, so the ids of prompt and header are a prefix
of the ids that are trained on. For training on what a model sampled, append its ids to the prompt's: text that was
decoded may be encoded otherwise. The mask is by position, so it holds when pad and end share an id.

L tokens, T frames, N placeholders.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cosmos_reason.errors import UserError
from cosmos_reason.text.answer import gold_completion, instruction
from cosmos_reason.text.tokenizer import IMAGE_PAD, TURN_END, TURN_START, VIDEO_PAD, VISION_END, VISION_START
from cosmos_reason.types import Frames, Message, Part, Prompt, Sample, Tokens, VisionSlots

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

SYSTEM = "Answer the question about the video."


class _Piece(NamedTuple):
    """A stretch of the sequence: plain text, or one control token several times."""

    text: str = ""
    control: str = ""
    times: int = 1
    learned: bool = False
    medium: int = -1  # into Prompt.media for placeholders


def prompt_for(sample: Sample, frames: Frames | None, with_answer: bool = False, system: str = SYSTEM) -> Prompt:
    """The standard conversation about one sample.

    Args:
        sample: what is asked.
        frames: the sample's pictures, before the question; None leaves them out (a later turn about the same video).
        with_answer: append the gold completion as the assistant's turn, for training.
        system: text of the system turn; empty leaves the turn out.
    """
    question = Part("text", instruction(sample))
    messages = [Message("user", (question,) if frames is None else (_shown(frames), question))]
    if system:
        messages.insert(0, Message("system", (Part("text", system),)))
    if with_answer:
        messages.append(Message("assistant", (Part("text", gold_completion(sample)),)))
    return Prompt(tuple(messages), () if frames is None else (frames,))


def _shown(frames: Frames) -> Part:
    """The prompt's first medium: an image if it is a single picture without a rate, else a video."""
    return Part("image" if len(frames.pixels_THWC) == 1 and frames.source_fps == 0.0 else "video")


def render(
    prompt: Prompt,
    tokenizer: PreTrainedTokenizerFast,
    tokens_per_frame: int,
    add_generation_prompt: bool = False,
    timestamps: bool = True,
) -> Tokens:
    """Ids, loss mask and the places of vision features of a conversation.

    Args:
        prompt: an optional system turn, then user and assistant in turn; pictures in user turns only.
        tokenizer: one with the control tokens of `tokenizer.py`.
        tokens_per_frame: placeholders a frame, as many as the model makes features of one.
        add_generation_prompt: end with the header of the assistant's turn, for generating.
        timestamps: write each video frame's time in front of it, such as "0.25s" ("0.254s" where frames are dense).

    Raises:
        UserError: turns out of order, a picture that is missing or never shown, a tokenizer without the control tokens.
    """
    _check_turns(prompt, add_generation_prompt)
    _check_media(prompt)
    pieces: list[_Piece] = []
    for message in prompt.messages:
        pieces += _turn(message, prompt.media, tokens_per_frame, timestamps)
    if add_generation_prompt:
        pieces += _header("assistant")
    tokens = _tokens(pieces, tokenizer)
    for slots in tokens.slots:
        features = len(prompt.media[slots.medium].pixels_THWC) * tokens_per_frame
        assert len(slots.positions_N) == features, f"{len(slots.positions_N)} placeholders for {features} features"
    return tokens


def annotated(
    frames: Frames, notes: Sequence[str], after: str, tokenizer: PreTrainedTokenizerFast, tokens_per_frame: int
) -> Tokens:
    """A video for dense supervision: each frame is followed by its note, the video by `after`; only these are learned.

    Args:
        frames: T of them, each shown after its time as in a conversation.
        notes: T texts, empty for none.
        after: text after the video, empty for none.
    """
    pieces = [_Piece(control=VISION_START)]
    for label, note in zip(_labels(frames.times_s_T), notes, strict=True):
        pieces += [_Piece(text=label), _Piece(control=VIDEO_PAD, times=tokens_per_frame, medium=0)]
        pieces += [_Piece(text=note, learned=True)] if note else []
    pieces.append(_Piece(control=VISION_END))
    pieces += [_Piece(text=after, learned=True)] if after else []
    return _tokens(pieces, tokenizer)


def statements(parts: Sequence[tuple[str, bool]], tokenizer: PreTrainedTokenizerFast) -> Tokens:
    """Plain text of which some stretches, the pairs with True, are learned."""
    return _tokens([_Piece(text=text, learned=learned) for text, learned in parts], tokenizer)


def _tokens(pieces: list[_Piece], tokenizer: PreTrainedTokenizerFast) -> Tokens:
    ids_of_pieces = _encode(pieces, tokenizer)
    lengths = [len(ids) for ids in ids_of_pieces]
    ids_L = np.array([i for ids in ids_of_pieces for i in ids], dtype=np.int64)
    mask_L = np.repeat([piece.learned for piece in pieces], lengths)
    return Tokens(ids_L, mask_L, _slots(pieces, np.cumsum([0, *lengths])))


def _check_turns(prompt: Prompt, add_generation_prompt: bool) -> None:
    """UserError unless the roles are [system] user assistant user …, ending where the next step can begin."""
    roles = [message.role for message in prompt.messages]
    turns = roles[1:] if roles[:1] == ["system"] else roles
    expected = ["user", "assistant"] * len(turns)
    if not turns or turns != expected[: len(turns)]:
        got = ", ".join(roles) or "none"
        raise UserError(f"turns must be user, assistant, user … after an optional system turn, got {got}")
    if add_generation_prompt and turns[-1] != "user":
        raise UserError("an answer can only follow a user turn, but the last one is the assistant's; drop it")


def _check_media(prompt: Prompt) -> None:
    """UserError unless every picture part has its medium, and every medium is shown, once and by the user."""
    shown = []
    for message in prompt.messages:
        for part in message.content:
            if part.kind == "text":
                continue
            if message.role != "user":
                raise UserError(f"a {part.kind} stands in a {message.role} turn; pictures belong to user turns")
            if not 0 <= part.index < len(prompt.media):
                raise UserError(f"{part.kind} {part.index} is shown, but the prompt holds {len(prompt.media)} media")
            frames = prompt.media[part.index]
            if part.kind == "image" and len(frames.pixels_THWC) != 1:
                raise UserError(f"image {part.index} has {len(frames.pixels_THWC)} frames; show it as a video")
            assert len(frames.times_s_T) == len(frames.pixels_THWC), f"medium {part.index}: not one time a frame"
            shown.append(part.index)
    if sorted(shown) != list(range(len(prompt.media))):
        raise UserError(
            f"every video and image must be shown once: the prompt holds {len(prompt.media)}, "
            f"its turns show {', '.join(map(str, shown)) or 'none'}"
        )


def _header(role: str) -> list[_Piece]:
    return [_Piece(control=TURN_START), _Piece(text=f"{role}\n")]


def _turn(message: Message, media: tuple[Frames, ...], tokens_per_frame: int, timestamps: bool) -> list[_Piece]:
    """One turn as pieces. Neighbouring texts are one piece, so that they are encoded as one."""
    learned = message.role == "assistant"
    pieces = _header(message.role)
    text = ""
    for part in message.content:
        if part.kind == "text":
            text += part.text
            continue
        pieces += [_Piece(text=text)] if text else []
        text = ""
        pieces += _pictures(part, media[part.index], tokens_per_frame, timestamps and part.kind == "video")
    pieces += [_Piece(text=text, learned=learned)] if text else []
    return [*pieces, _Piece(control=TURN_END, learned=learned), _Piece(text="\n")]


def _pictures(part: Part, frames: Frames, tokens_per_frame: int, timestamps: bool) -> list[_Piece]:
    """Placeholders of one medium between its vision tokens, each frame after its time."""
    pieces = [_Piece(control=VISION_START)]
    pad = VIDEO_PAD if part.kind == "video" else IMAGE_PAD
    for label in _labels(frames.times_s_T):
        pieces += [_Piece(text=label)] if timestamps else []
        pieces.append(_Piece(control=pad, times=tokens_per_frame, medium=part.index))
    return [*pieces, _Piece(control=VISION_END)]


def _labels(times_s_T: np.ndarray) -> list[str]:
    """Each frame's time such as "0.25s"; with thousandths where hundredths give two times of the clip one label."""
    labels = [f"{time_s:.2f}s" for time_s in times_s_T]
    if len(set(labels)) == len(set(times_s_T.tolist())):  # a repeated frame repeats its time and may share its label
        return labels
    return [f"{time_s:.3f}s" for time_s in times_s_T]


def _encode(pieces: list[_Piece], tokenizer: PreTrainedTokenizerFast) -> list[list[int]]:
    """Ids of each piece; text is encoded without control tokens, all texts in one call."""
    vocabulary = tokenizer.get_added_vocab()
    missing = {piece.control for piece in pieces if piece.control} - vocabulary.keys()
    if missing:
        raise UserError(f"the tokenizer has no {', '.join(sorted(missing))}; give one that this package trained")
    texts = [piece.text for piece in pieces if not piece.control]
    encoded = iter(tokenizer(texts, add_special_tokens=False, split_special_tokens=True)["input_ids"])
    return [[vocabulary[piece.control]] * piece.times if piece.control else next(encoded) for piece in pieces]


def _slots(pieces: list[_Piece], starts: np.ndarray) -> tuple[VisionSlots, ...]:
    """Positions of the placeholders of each medium, in the order of the sequence."""
    positions: dict[int, list[np.ndarray]] = {}
    for piece, start in zip(pieces, starts[:-1], strict=True):
        if piece.medium >= 0:
            positions.setdefault(piece.medium, []).append(np.arange(start, start + piece.times))
    return tuple(VisionSlots(medium, np.concatenate(places)) for medium, places in positions.items())
