"""Features at placeholders, the loss by hand, saving and loading, and transformers' own `generate`."""

from __future__ import annotations

import warnings

import pytest
import torch
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForImageTextToText

from cosmos_reason.errors import UserError
from cosmos_reason.model.generate import Sampling, generate
from cosmos_reason.model.vlm import HybridVLM
from tests.model import twin

VIDEO, IMAGE = 5, 6


def prompt(rows: int = 2, frames: int = 2, length: int = 12) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids with `frames` placeholders a row (one token a frame here) and the frames' pixels."""
    torch.manual_seed(1)
    ids_BL = torch.randint(7, 40, (rows, length))
    ids_BL[:, 2 : 2 + frames] = VIDEO
    return ids_BL, torch.randn(rows * frames, 3, 16, 16, dtype=torch.float64)


def test_features_replace_placeholders_in_order():
    model = twin.tiny().requires_grad_(False)
    ids_BL, pixels = prompt()
    ids_BL[1, 3] = IMAGE
    features = model.encode_frames(pixels)
    assert features.shape == (4, 1, 64) and model.tokens_per_frame == 1
    embeds = model.backbone.embeddings(ids_BL)
    projected = model.projector(features)[:, 0]
    embeds[0, 2], embeds[0, 3], embeds[1, 2], embeds[1, 3] = projected
    expected = model.lm_head(torch.stack([twin.backbone(model.backbone, e) for e in embeds]))
    for inputs in ({"pixel_values": pixels}, {"vision_features": features}):
        torch.testing.assert_close(model(input_ids=ids_BL, **inputs).logits, expected)


def test_other_number_of_features_is_named():
    model = twin.tiny()
    ids_BL, pixels = prompt()
    with pytest.raises(AssertionError, match="4 placeholder ids for 3 features"):
        model(input_ids=ids_BL, pixel_values=pixels[:3])
    with pytest.raises(AssertionError, match="4 placeholder ids for 0 features"):
        model(input_ids=ids_BL)


def test_contradictory_inputs_are_refused():
    model = twin.tiny()
    ids_BL, pixels = prompt()
    with pytest.raises(UserError, match="either pixel_values or vision_features, got both"):
        model(input_ids=ids_BL, pixel_values=pixels, vision_features=pixels)
    with pytest.raises(UserError, match="either input_ids or inputs_embeds, got neither"):
        model()


def test_loss_by_hand_and_only_where_supervised():
    model = twin.tiny()
    ids_BL, pixels = prompt()
    labels_BL = torch.full_like(ids_BL, -100)
    labels_BL[0, [5, 6, 11]] = ids_BL[0, [5, 6, 11]]
    labels_BL[1, 0] = ids_BL[1, 0]  # nothing predicts the first token
    logits = model(input_ids=ids_BL, pixel_values=pixels).logits.log_softmax(-1)
    expected = -sum(logits[0, t - 1, ids_BL[0, t]] for t in (5, 6, 11))
    rows = []
    model.lm_head.register_forward_hook(lambda module, inputs, output: rows.append(inputs[0].shape))
    mean = model(input_ids=ids_BL, pixel_values=pixels, labels=labels_BL)
    assert mean.logits is None and rows == [(3, 8)]
    assert mean.loss.item() == pytest.approx(expected.item() / 3, rel=1e-5)
    shared = model(input_ids=ids_BL, pixel_values=pixels, labels=labels_BL, num_items_in_batch=30)
    assert shared.loss.item() == pytest.approx(expected.item() / 30, rel=1e-5)


def test_nothing_supervised_is_a_loss_of_zero_with_gradients():
    model = twin.tiny()
    ids_BL, pixels = prompt()
    loss = model(input_ids=ids_BL, pixel_values=pixels, labels=torch.full_like(ids_BL, -100)).loss
    loss.backward()
    assert loss.item() == 0
    assert model.lm_head.weight.grad.abs().sum() == 0


def test_loss_reaches_encoder_projector_and_decoder():
    model = twin.tiny()
    ids_BL, pixels = prompt()
    model(input_ids=ids_BL, pixel_values=pixels, labels=ids_BL).loss.backward()
    silent = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert silent == []


def test_right_padding_and_its_ids_do_not_change_the_loss():
    model = twin.tiny()
    ids_BL, pixels = prompt()
    expected = model(input_ids=ids_BL, pixel_values=pixels, labels=ids_BL).loss
    padded = torch.cat([ids_BL, torch.randint(7, 40, (2, 5))], dim=1)
    mask = torch.cat([torch.ones(2, 12), torch.zeros(2, 5)], dim=1)
    labels = torch.cat([ids_BL, torch.full((2, 5), -100)], dim=1)
    got = model(input_ids=padded, attention_mask=mask, pixel_values=pixels, labels=labels).loss
    torch.testing.assert_close(got, expected)


def test_logits_to_keep():
    model = twin.tiny()
    ids_BL, pixels = prompt()
    every = model(input_ids=ids_BL, pixel_values=pixels).logits
    torch.testing.assert_close(model(input_ids=ids_BL, pixel_values=pixels, logits_to_keep=2).logits, every[:, -2:])


def test_saved_and_loaded_is_equal(tmp_path):
    model = twin.tiny().float()
    model.save_pretrained(tmp_path)
    for auto in (AutoModel, AutoModelForCausalLM, AutoModelForImageTextToText, HybridVLM):
        loaded = auto.from_pretrained(tmp_path)
        assert type(loaded) is HybridVLM
        assert loaded.state_dict().keys() == model.state_dict().keys()
        assert all(torch.equal(loaded.state_dict()[name], value) for name, value in model.state_dict().items())
    loaded.init_weights()  # a second initialisation leaves what was loaded alone
    assert all(torch.equal(loaded.state_dict()[name], value) for name, value in model.state_dict().items())
    assert AutoConfig.from_pretrained(tmp_path).text_config.hybrid_override_pattern == "M-M*-"


def test_the_first_query_head_of_a_group_starts_as_its_key_head():
    model = HybridVLM(twin.tiny().config)
    model.reset_language(40)
    check_first_heads(model)
    check_first_heads(HybridVLM(twin.tiny().config))


def check_first_heads(model):
    mixers = [layer.mixer for layer in model.backbone.layers if hasattr(layer.mixer, "q_proj")]
    assert mixers
    for mixer in mixers:
        keys = mixer.k_proj.weight.unflatten(0, (-1, mixer.head_dim))
        queries = mixer.q_proj.weight.unflatten(0, (len(keys), -1, mixer.head_dim))
        assert torch.equal(queries[:, 0], keys) and not torch.equal(queries[:, -1], keys)


def test_sensitive_parameters_stay_fp32_in_a_bf16_model(tmp_path):
    twin.tiny().float().save_pretrained(tmp_path)
    loaded = HybridVLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
    kinds = {name.split(".")[-1]: p.dtype for name, p in loaded.named_parameters() if ".mixer." in name}
    wide = {name for name, kind in kinds.items() if kind == torch.float32}
    assert wide == {"A_log", "D", "dt_bias"}
    assert {p.dtype for name, p in loaded.named_parameters() if name.split(".")[-1] not in wide} == {torch.bfloat16}
    ids_BL, pixels = prompt()
    assert torch.isfinite(loaded(input_ids=ids_BL, pixel_values=pixels.float(), labels=ids_BL).loss)
    rows = generate(loaded, ids_BL, None, loaded.encode_frames(pixels), Sampling(max_new_tokens=3))
    assert [len(row.ids_L) for row in rows] == [3, 3]


def test_fresh_weights_start_sensibly():
    torch.manual_seed(0)
    model = HybridVLM(twin.tiny().config)
    mixer = model.backbone.layers[0].mixer
    dt = torch.nn.functional.softplus(mixer.dt_bias)
    assert ((dt >= 1e-3 * 0.99) & (dt <= 0.1 * 1.01)).all()
    assert ((mixer.A_log.exp() >= 1) & (mixer.A_log.exp() <= 16)).all()
    assert (mixer.D == 1).all() and (mixer.norm.weight == 1).all()
    assert (model.vision.blocks[0].scale1 == 0.1).all()
    # the projections into the residual start smaller by √5 layers
    layers = len(model.config.text_config.hybrid_override_pattern)
    assert mixer.in_proj.weight.std().item() == pytest.approx(mixer.in_proj.in_features**-0.5, rel=0.2)
    assert mixer.out_proj.weight.std().item() == pytest.approx((12 * layers) ** -0.5, rel=0.3)
    ids_BL, pixels = prompt()
    loss = model(input_ids=ids_BL, pixel_values=pixels.float(), labels=ids_BL).loss
    # the logits start with variance 1, which costs half a nat more than even odds
    assert loss.item() == pytest.approx(torch.tensor(40.0).log().item() + 0.5, abs=0.3)


def test_reset_language_keeps_the_encoder():
    torch.manual_seed(0)
    model = twin.tiny().float()
    ids_BL, pixels = prompt()
    before = model.encode_frames(pixels)
    old = model.backbone.layers[0].mixer.in_proj.weight.clone()
    model.reset_language(50, video_token_id=7, eos_token_id=3)
    assert torch.equal(model.encode_frames(pixels), before)
    assert not torch.equal(model.backbone.layers[0].mixer.in_proj.weight, old)
    assert model.config.text_config.vocab_size == 50 and model.config.video_token_id == 7
    assert model.generation_config.suppress_tokens == [7, 6] and model.generation_config.eos_token_id == 3
    ids_BL[ids_BL == 7] = 49
    ids_BL[ids_BL == VIDEO] = 7
    assert model(input_ids=ids_BL, pixel_values=pixels).logits.shape == (2, 12, 50)
    with pytest.raises(UserError, match="no id is called video_id"):
        model.reset_language(50, video_id=7)


def test_checkpointing_gives_the_same_gradients():
    ids_BL, pixels = prompt()
    gradients = []
    for enabled in (False, True):
        model = twin.tiny().train()
        if enabled:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)  # transformers renames the method
                model.gradient_checkpointing_enable()
            assert model.backbone.gradient_checkpointing
        model(input_ids=ids_BL, pixel_values=pixels, labels=ids_BL).loss.backward()
        gradients.append({name: p.grad for name, p in model.named_parameters()})
    torch.testing.assert_close(gradients[1], gradients[0], atol=1e-9, rtol=1e-9)


def hf_generate(model: HybridVLM, **inputs) -> list[list[int]]:
    settings = {"max_new_tokens": 6, "do_sample": False, **inputs}
    length = inputs["input_ids"].shape[1]
    return model.generate(**settings)[:, length:].tolist()


@pytest.mark.parametrize("pattern", ["M-M*-", "M-", "*-"])
def test_transformers_generate_equals_the_engine(pattern):
    model = twin.tiny(hybrid_override_pattern=pattern, eos_token_id=None).requires_grad_(False)
    ids_BL, pixels = prompt()
    mask_BL = torch.ones_like(ids_BL)
    ids_BL[1, :2], mask_BL[1, :2] = 0, 0
    inputs = {"input_ids": ids_BL, "attention_mask": mask_BL, "pixel_values": pixels}
    engine = generate(model, ids_BL, mask_BL, model.encode_frames(pixels), Sampling(max_new_tokens=6))
    expected = [row.ids_L.tolist() for row in engine]
    assert hf_generate(model, **inputs) == expected
    assert hf_generate(model, **inputs, use_cache=False) == expected


def test_beams_with_and_without_cache_agree():
    """Two rows, so that each row's frames must follow its own beams."""
    model = twin.tiny(eos_token_id=None).requires_grad_(False)
    ids_BL, pixels = prompt()
    mask_BL = torch.ones_like(ids_BL)
    inputs = {"input_ids": ids_BL, "attention_mask": mask_BL, "pixel_values": pixels, "num_beams": 3}
    assert hf_generate(model, **inputs) == hf_generate(model, **inputs, use_cache=False)
    alone = [
        hf_generate(model, input_ids=ids_BL[i : i + 1], pixel_values=pixels[2 * i : 2 * i + 2], num_beams=3)[0]
        for i in range(2)
    ]
    assert hf_generate(model, **inputs) == alone


def test_other_caches_are_refused():
    ids_BL, pixels = prompt()
    with pytest.raises(UserError, match="only the hybrid cache fits"):
        hf_generate(twin.tiny(), input_ids=ids_BL, pixel_values=pixels, cache_implementation="static")
