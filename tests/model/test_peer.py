"""transformers' `nemotron_h` as a peer: the same weights give the same logits, and where it errs we equal the twin.

Measured with transformers 5.24.0 and its PyTorch code (no CUDA kernels). A test that shows a fault over there fails
once it is repaired: then drop it. B batch, L tokens, V vocabulary.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, NemotronHConfig, NemotronHForCausalLM

from cosmos_reason.errors import UserError
from cosmos_reason.model import convert
from cosmos_reason.model.cache import HybridCache
from cosmos_reason.model.causal_lm import HybridForCausalLM
from tests.model import twin

NO_CLAMP = 1e-20  # a time_step_min that clamps nothing over there
PATTERNS = ["M-M*-", "M-M-M*-M-", "*M", "M---MM*-"]


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.no_grad():
        yield


def pair(tmp_path: Path, dt_bias: float | None = None, **changes) -> tuple[NemotronHForCausalLM, HybridForCausalLM]:
    """Theirs with random weights, written by `save_pretrained`, and ours read from that folder, both in fp32."""
    torch.manual_seed(0)
    shape = convert.config_to_nemotron(twin.text_config())
    config = NemotronHConfig(**{**shape, "time_step_min": NO_CLAMP, **changes})
    theirs = twin.stirred(NemotronHForCausalLM(config).float()).eval()
    if dt_bias is not None:
        for name, parameter in theirs.named_parameters():
            if name.endswith("dt_bias"):
                parameter.fill_(dt_bias)
    theirs.save_pretrained(tmp_path / "theirs")
    return theirs, convert.load(tmp_path / "theirs")


def tokens(rows: int = 1, length: int = 21) -> Tensor:
    torch.manual_seed(1)
    return torch.randint(3, 40, (rows, length))


def truth(ours: HybridForCausalLM, ids_L: Tensor) -> Tensor:
    """Logits (L, V) of one sequence by the twin: token by token, in fp64."""
    ours = ours.double()
    return twin.backbone(ours.backbone, ours.backbone.embeddings(ids_L)) @ ours.lm_head.weight.T


def error(got_LV: Tensor, truth_LV: Tensor) -> float:
    """Largest deviation, as a share of the largest logit."""
    return float((got_LV.double() - truth_LV).abs().max() / truth_LV.abs().max())


def in_pieces(model: HybridForCausalLM | NemotronHForCausalLM, ids_BL: Tensor, lengths: list[int]) -> Tensor:
    """Logits of a prompt that goes into the cache piece by piece."""
    cache, parts = None, []
    for piece_BL in ids_BL.split(lengths, dim=1):
        out = model(piece_BL, cache=cache, use_cache=True)
        cache = out.cache
        parts.append(out.logits)
    return torch.cat(parts, dim=1)


# ---- the same weights, the same logits


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("length", [1, 8, 21])
def test_prefill(tmp_path, pattern, length):
    layers = NemotronHConfig(hybrid_override_pattern=pattern).layers_block_type
    theirs, ours = pair(tmp_path, layers_block_type=layers, hybrid_override_pattern=None)
    ids_BL = tokens(3, length)
    assert error(theirs(ids_BL).logits, ours(ids_BL).logits.double()) < 1e-5


@pytest.mark.parametrize(
    "changes", [{"n_groups": 1}, {"n_groups": 4}, {"conv_kernel": 2}, {"chunk_size": 3}, {"num_key_value_heads": 1}]
)
def test_prefill_of_other_shapes(tmp_path, changes):
    theirs, ours = pair(tmp_path, **changes)
    assert error(theirs(tokens(2)).logits, ours(tokens(2)).logits.double()) < 1e-5


def test_convolution_without_bias(tmp_path):
    theirs, ours = pair(tmp_path, use_conv_bias=False)
    assert error(theirs(tokens(2)).logits, ours(tokens(2)).logits.double()) < 1e-5


def test_left_padded_batch(tmp_path):
    theirs, ours = pair(tmp_path)
    ids_BL = tokens(3)
    mask_BL = (torch.arange(21)[None] >= torch.tensor([[0], [5], [18]])).long()
    got, wanted = (model(ids_BL, attention_mask=mask_BL).logits[mask_BL.bool()] for model in (theirs, ours))
    assert error(got, wanted.double()) < 1e-5
    for row in range(3):
        alone = ours(ids_BL[row : row + 1, mask_BL[row].bool()]).logits[0]
        assert error(ours(ids_BL, attention_mask=mask_BL).logits[row][mask_BL[row].bool()], alone.double()) < 1e-5


def test_step_by_step(tmp_path):
    theirs, ours = pair(tmp_path)
    ids_BL = tokens(2)
    steps = [6] + [1] * 15
    assert error(in_pieces(theirs, ids_BL, steps), in_pieces(ours, ids_BL, steps).double()) < 1e-5


def test_greedy_tokens_of_a_left_padded_batch(tmp_path):
    theirs, ours = pair(tmp_path, eos_token_id=None)
    ids_BL, mask_BL = tokens(2, 9), torch.ones(2, 9, dtype=torch.long)
    ids_BL[1, :4], mask_BL[1, :4] = 0, 0
    settings = {"attention_mask": mask_BL, "max_new_tokens": 20, "do_sample": False}
    expected = theirs.generate(ids_BL, **settings)[:, 9:]
    assert len(set(expected.flatten().tolist())) > 5  # no row that says one word for ever
    assert torch.equal(ours.generate(ids_BL, **settings)[:, 9:], expected)
    cache = HybridCache(ours.config, 2, 29)
    inputs, drawn = {"input_ids": ids_BL, "attention_mask": mask_BL}, []
    for _ in range(20):
        drawn.append(ours(**inputs, cache=cache, logits_to_keep=1).logits[:, -1].argmax(-1))
        inputs = {"input_ids": drawn[-1][:, None]}
    assert torch.equal(torch.stack(drawn, dim=1), expected)


def test_ours_is_read_over_there(tmp_path):
    ours = twin.stirred(HybridForCausalLM(twin.text_config())).eval()
    convert.save(ours, tmp_path / "out", max_shard_bytes=3000)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert type(theirs) is NemotronHForCausalLM and theirs.config.time_step_min == NO_CLAMP
    assert error(theirs(tokens(2)).logits, ours(tokens(2)).logits.double()) < 1e-5
    theirs.save_pretrained(tmp_path / "again")
    again = convert.load(tmp_path / "again")
    assert again.config.time_step_min == ours.config.time_step_min == 0.001
    assert all(torch.equal(again.state_dict()[name], value) for name, value in ours.state_dict().items())


def test_nano_is_read_over_there(tmp_path):
    """Prompts over the tokens of text; placeholders of frames stand for nothing there."""
    nano = convert.load_ours(convert.source_folder("nano"))
    convert.save(nano, tmp_path / "out")
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32)
    nano = nano.float()
    torch.manual_seed(0)
    ids_BL = torch.randint(7, nano.config.vocab_size, (2, 150))
    assert error(theirs(ids_BL).logits, nano(ids_BL).logits.double()) < 1e-5
    assert error(theirs(ids_BL[:1, :9]).logits[0], truth(nano, ids_BL[0, :9])) < 1e-5
    nano = nano.float()
    settings = {"max_new_tokens": 12, "do_sample": False, "eos_token_id": None, "suppress_tokens": None}
    assert torch.equal(theirs.generate(ids_BL, **settings), nano.generate(ids_BL, **settings))


# ---- their faults, and ours against the twin


@pytest.mark.parametrize(("dt_bias", "at_least"), [(-8.0, 1e-3), (-12.0, 1e-3)])
def test_time_step_is_the_same_in_prefill_and_in_steps(tmp_path, dt_bias, at_least):
    """Theirs clamps it to time_step_min, which is about initialisation, in prefill and not in steps."""
    theirs, ours = pair(tmp_path, dt_bias=dt_bias, time_step_min=0.001)
    ids_BL, steps = tokens(), [1] * 21
    their_prefill, their_steps = theirs(ids_BL).logits[0], in_pieces(theirs, ids_BL, [2] + [1] * 19)[0]
    expected = truth(ours, ids_BL[0])
    assert error(their_prefill, expected) > at_least
    assert error(their_steps[2:], their_prefill[2:].double()) > at_least
    assert error(ours(ids_BL).logits[0], expected) < 1e-9
    assert error(in_pieces(ours, ids_BL, steps)[0], expected) < 1e-9


def test_pieces_of_one_token_are_like_others(tmp_path):
    theirs, ours = pair(tmp_path, dt_bias=-8.0, time_step_min=0.001)
    ids_BL = tokens()
    whole = theirs(ids_BL).logits.double()
    assert error(in_pieces(theirs, ids_BL, [2, 1, 1, 17]), whole) > 1e-4
    assert error(in_pieces(theirs, ids_BL, [2, 2, 17]), whole) < 1e-5
    expected = truth(ours, ids_BL[0])
    for lengths in ([2, 1, 1, 17], [2, 2, 17], [1, 20], [20, 1]):
        assert error(in_pieces(ours, ids_BL, lengths)[0], expected) < 1e-9


def test_time_step_limit_is_read(tmp_path):
    theirs, ours = pair(tmp_path, time_step_limit=[0.5, 0.6])
    assert ours.config.time_step_limit == (0.5, 0.6)
    ids_BL = tokens()
    their_logits = theirs(ids_BL).logits[0]
    expected = truth(ours, ids_BL[0])
    assert error(their_logits, expected) > 1e-2
    assert error(ours(ids_BL).logits[0], expected) < 1e-9
    assert error(in_pieces(ours, ids_BL, [5] + [1] * 16)[0], expected) < 1e-9
    ours.config.time_step_limit = (0.0, float("inf"))  # theirs behaves as if there were none
    assert error(their_logits, truth(ours, ids_BL[0])) < 1e-5


def test_right_padded_prompt_with_a_cache(tmp_path):
    """Theirs keeps a convolution window of padding, and a state that went on over it."""
    theirs, ours = pair(tmp_path)
    ids_BL, more_BL = tokens(2, 12), torch.randint(3, 40, (2, 1))
    mask_BL = (torch.arange(12)[None] < torch.tensor([[12], [6]])).long()
    cache = theirs(ids_BL, attention_mask=mask_BL, use_cache=True).cache
    longer_BL = torch.cat([mask_BL, torch.ones(2, 1, dtype=torch.long)], dim=1)
    their_next = theirs(more_BL, attention_mask=longer_BL, cache=cache, use_cache=True).logits[:, 0]
    expected = [truth(ours, torch.cat([ids_BL[row, :n], more_BL[row]])) for row, n in enumerate((12, 6))]
    assert error(their_next[0], expected[0][-1]) < 1e-5 and error(their_next[1], expected[1][-1]) > 1e-2
    our_cache = HybridCache(ours.config, 2, 13, torch.float64)
    first = ours(ids_BL, attention_mask=mask_BL, cache=our_cache).logits
    then = ours(more_BL, attention_mask=longer_BL, cache=our_cache).logits[:, 0]
    for row, n in enumerate((12, 6)):
        assert error(first[row, :n], expected[row][:-1]) < 1e-9
        assert error(then[row], expected[row][-1]) < 1e-9


def test_packed_rows(tmp_path):
    """Theirs lets the second document see the first, unless it refuses; ours takes the number of each."""
    theirs, ours = pair(tmp_path)
    ids_BL = tokens()
    positions = torch.cat([torch.arange(9), torch.arange(12)])[None]
    borders = torch.tensor([0, 9, 21], dtype=torch.int32)
    documents_BL = torch.cat([torch.zeros(9), torch.ones(12)])[None].int()
    restarted = theirs(ids_BL, position_ids=positions).logits[0]
    collated = theirs(ids_BL, position_ids=positions, cu_seq_lens_q=borders, cu_seq_lens_k=borders).logits[0]
    for named in ({"seq_idx": documents_BL}, {"cu_seqlens": borders}):
        with pytest.raises(ValueError):
            theirs(ids_BL, position_ids=positions, **named)
    expected = [truth(ours, ids_BL[0, :9]), truth(ours, ids_BL[0, 9:])]
    for their_logits in (restarted, collated):
        assert error(their_logits[9:], expected[1]) > 1e-2
    got = ours(ids_BL, seq_idx=documents_BL).logits[0]
    assert error(got[:9], expected[0]) < 1e-9 and error(got[9:], expected[1]) < 1e-9


def test_double_precision_is_kept(tmp_path):
    """Their scan and norms drop to fp32, so that gradients cannot be checked."""
    theirs, ours = pair(tmp_path)
    ids_BL = tokens()
    their_logits = theirs.double()(ids_BL).logits[0]
    expected = truth(ours, ids_BL[0])
    assert error(their_logits, expected) > 1e-9
    assert error(ours(ids_BL).logits[0], expected) < 1e-12


def test_a_model_needs_no_attention_layer(tmp_path):
    """Theirs asks an attention layer how long its cache is."""
    theirs, ours = pair(tmp_path, layers_block_type=["linear_attention", "mlp"], num_hidden_layers=2)
    with pytest.raises(ValueError, match="can only be called on Attention layers"):
        theirs(tokens())
    expected = truth(ours, tokens()[0])
    assert error(theirs(tokens(), use_cache=False).logits[0], expected) < 1e-5
    assert error(in_pieces(ours, tokens(), [6] + [1] * 15)[0], expected) < 1e-9


@pytest.mark.parametrize("symbol", ["X", "|", "/"])
def test_unknown_layers_are_explained(symbol):
    fields = convert.config_to_nemotron(twin.text_config())
    fields |= {"layers_block_type": None, "hybrid_override_pattern": f"M-{symbol}M*-", "num_hidden_layers": None}
    with pytest.raises(KeyError) as bare:
        NemotronHConfig(**fields)
    assert str(bare.value) == repr(symbol)
    with pytest.raises(UserError, match="hybrid_override_pattern: wanted a string over M") as explained:
        convert.config_from_nemotron(fields)
    assert f"got {symbol} in" in str(explained.value)


@pytest.mark.parametrize("name", ["attention_bias", "mamba_proj_bias"])
def test_ignored_biases_are_refused(name):
    fields = convert.config_to_nemotron(twin.text_config()) | {name: True}
    model = NemotronHForCausalLM(NemotronHConfig(**fields, dtype="float32"))
    assert not [n for n, _ in model.named_parameters() if n.endswith("proj.bias")]
    with pytest.raises(UserError, match=f"{name}: wanted False, got True"):
        convert.config_from_nemotron(fields)


def test_bias_with_left_padding_is_refused(tmp_path):
    """Over there the bias enters the convolution's window of a padded row; here such a model is not read."""
    torch.manual_seed(0)
    fields = convert.config_to_nemotron(twin.text_config()) | {"use_bias": True, "time_step_min": NO_CLAMP}
    theirs = twin.stirred(NemotronHForCausalLM(NemotronHConfig(**fields))).eval()
    ids_BL, mask_BL = tokens(1, 12), (torch.arange(12) >= 5).long()[None]
    alone = theirs(ids_BL[:, 5:]).logits[0].double()
    assert error(theirs(ids_BL, attention_mask=mask_BL).logits[0, 5:], alone) > 1e-2
    theirs.save_pretrained(tmp_path)
    with pytest.raises(UserError, match="use_bias: wanted False, got True"):
        convert.load(tmp_path)


def test_other_number_of_layers_is_refused():
    fields = convert.config_to_nemotron(twin.text_config()) | {"num_hidden_layers": 9}
    assert NemotronHConfig(**fields).num_hidden_layers == 5
    with pytest.raises(UserError, match="num_hidden_layers: wanted 5"):
        convert.config_from_nemotron(fields)


def test_time_step_of_zero_is_explained():
    fields = convert.config_to_nemotron(twin.text_config()) | {"time_step_min": 0.0}
    with pytest.raises(ValueError, match=r"math domain error|expected a positive input"):
        NemotronHForCausalLM(NemotronHConfig(**fields))
    with pytest.raises(UserError, match="time_step_min: wanted a number above 0"):
        convert.config_from_nemotron(fields)


def test_tied_head_is_tied_and_written(tmp_path):
    """Theirs never ties: without a stored head it draws one. So ours is stored, and read back as tied."""
    torch.manual_seed(0)
    ours = twin.stirred(HybridForCausalLM(twin.text_config(tie_word_embeddings=True))).eval()
    convert.save(ours, tmp_path / "out")
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert theirs.config.tie_word_embeddings and theirs.lm_head.weight is not theirs.model.embeddings.weight
    assert error(theirs(tokens()).logits, ours(tokens()).logits.double()) < 1e-5
    theirs.save_pretrained(tmp_path / "again")
    again = convert.load(tmp_path / "again")
    assert again.lm_head.weight is again.backbone.embeddings.weight
    assert error(again(tokens()).logits[0], truth(ours, tokens()[0])) < 1e-5


def test_half_precision_keeps_its_state_in_fp32(tmp_path):
    theirs, _ = pair(tmp_path)
    theirs.bfloat16().save_pretrained(tmp_path / "half")
    ours = convert.load(tmp_path / "half")
    assert ours.dtype == torch.bfloat16
    cache = HybridCache(ours.config, 1, 21, torch.bfloat16)
    got = ours(tokens(), cache=cache).logits[0]
    assert sorted(str(state.dtype) for state in vars(cache.layers[0]).values()) == ["torch.bfloat16", "torch.float32"]
    their_logits = theirs(tokens()).logits[0]
    expected = truth(ours, tokens()[0])
    assert error(got, expected) < 0.1 and error(their_logits, expected) < 0.1
