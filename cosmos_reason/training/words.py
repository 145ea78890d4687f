"""Words for pictures: the projector's output becomes the sum of the decoder's embeddings of what stands in its place.

After this the decoder finds the red ball in the frames as it finds "red ball" in the text, by looking for like tokens,
and does not have to discover from answers which feature goes with which word. The embedding table stays as it is drawn;
encoder and projector learn to write in it. A place without an object becomes the placeholder's embedding.

P places, T frames, S tokens a frame, W words, V vocabulary, D width.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from cosmos_reason.errors import UserError
from cosmos_reason.training.notes import course
from cosmos_reason.types import ObjectTrack, Timeline

WORDS = 10  # token ids a place at most
_LEAST = 0.05  # a share of a place that an object must cover to give it its words


def word_loss(projected_PD: Tensor, ids_PW: Tensor, table_VD: Tensor, empty_id: int) -> tuple[Tensor, float]:
    """Squared error to the sum of embeddings, objects and empty places weighing the same; share of words found.

    ids_PW: −1 where there is no word. A word is found when its embedding is among the n nearest (by dot product) of a
    place with n words.
    """
    named_PW = ids_PW >= 0
    filled_P = named_PW.any(1)
    target_PD = (table_VD[ids_PW.clamp(min=0)] * named_PW[..., None]).sum(1)
    target_PD[~filled_P] = table_VD[empty_id]
    error_P = (projected_PD.float() - target_PD).square().mean(1)
    parts = [error_P[at].sum() / at.sum().clamp(min=1) for at in (filled_P, ~filled_P)]
    return parts[0] + parts[1], found_share(projected_PD[filled_P].detach().float(), ids_PW[filled_P], table_VD)


def found_share(projected_PD: Tensor, ids_PW: Tensor, table_VD: Tensor) -> float:
    """Share of the places' different words that are among as many nearest embeddings; 0 without any."""
    wanted_PV = torch.zeros(len(ids_PW), len(table_VD) + 1, device=ids_PW.device)  # one more column, for no word
    wanted_PV.scatter_(1, ids_PW.where(ids_PW >= 0, len(table_VD)), 1.0)
    wanted_PV = wanted_PV[:, :-1]
    counts_P1 = wanted_PV.sum(1, keepdim=True)
    nearest_PW = (projected_PD @ table_VD.T).topk(ids_PW.shape[1], dim=1).indices
    allowed_PW = torch.arange(ids_PW.shape[1], device=ids_PW.device) < counts_P1
    return float((wanted_PV.gather(1, nearest_PW) * allowed_PW).sum() / counts_P1.sum().clamp(min=1))


def places_of(
    timeline: Timeline, times_s_T: np.ndarray, tokenizer: PreTrainedTokenizerFast, tokens: int,
    known: dict[str, list[int]],
) -> np.ndarray:  # fmt: skip
    """(T, S, W) ids: name, place and motion of what covers most of each cell of the grid, objects first, −1 for none.

    `known` keeps the ids of what was written before.
    """
    side = int(tokens**0.5)
    assert side * side == tokens, f"{tokens} tokens a frame are no square grid"
    at_T = timeline.nearest(times_s_T)
    ids = np.full((len(at_T), tokens, WORDS), -1, dtype=np.int32)
    covered = np.zeros((len(at_T), side, side))  # above 1 where an object stands
    for track in timeline.objects:
        seen, first = course(track, at_T), track.role == "object"  # before what it stands on: a ramp, a table
        for t, share in enumerate(_shares(track, at_T, side)):
            wins = (share > _LEAST) & (share + first > covered[t])
            if seen.places[t] and wins.any():
                covered[t][wins] = share[wins] + first
                ids[t][wins.flatten()] = _ids(seen.at(t), tokenizer, known)
    return ids


def _ids(text: str, tokenizer: PreTrainedTokenizerFast, known: dict[str, list[int]]) -> np.ndarray:
    if text not in known:
        known[text] = tokenizer(text, add_special_tokens=False)["input_ids"]
        if len(known[text]) > WORDS:
            raise UserError(
                f"words: {text!r} is {len(known[text])} tokens, more than {WORDS}; train a larger vocabulary"
            )
    words = np.full(WORDS, -1, dtype=np.int32)
    words[: len(known[text])] = known[text]
    return words


def _shares(track: ObjectTrack, at_T: np.ndarray, side: int) -> np.ndarray:
    """(T, side, side): how much of each cell the object's box covers."""
    edges = np.linspace(0, 1000, side + 1)
    x1, y1, x2, y2 = track.box_T4[at_T, :, None].swapaxes(0, 1)
    across = np.clip(np.minimum(edges[1:], x2) - np.maximum(edges[:-1], x1), 0, None)
    down = np.clip(np.minimum(edges[1:], y2) - np.maximum(edges[:-1], y1), 0, None)
    return down[:, :, None] * across[:, None, :] * (side / 1000) ** 2
