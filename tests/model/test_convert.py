"""`nemotron_h` folders to our model and back: bit for bit, tied or not, within one model's memory, and the command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from cosmos_reason.errors import DataError, UserError
from cosmos_reason.model import convert
from cosmos_reason.model.causal_lm import HybridForCausalLM
from cosmos_reason.model.config import HybridConfig
from cosmos_reason.model.convert import load, load_ours, save, save_ours
from cosmos_reason.model.folders import CONFIG, INDEX, SINGLE
from tests.model import twin

ROOT = Path(__file__).parent.parent.parent
HEAD, TABLE = "lm_head.weight", "backbone.embeddings.weight"
DELICATE = ("A_log", "D", "dt_bias")


def text_model(**changes) -> HybridForCausalLM:
    torch.manual_seed(0)
    return twin.stirred(HybridForCausalLM(twin.text_config(**changes))).eval()


def assert_same_tensors(got: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> None:
    assert got.keys() == wanted.keys()
    for name, value in wanted.items():
        assert got[name].dtype == value.dtype and torch.equal(got[name], value), name


def mixed(model: HybridForCausalLM) -> HybridForCausalLM:
    """bf16 with A_log, D and dt_bias in fp32, as checkpoints of training are."""
    model.bfloat16()
    for name, parameter in model.named_parameters():
        if name.endswith(DELICATE):
            parameter.data = parameter.data.float() + 1e-4
    return model


@pytest.mark.parametrize("shard_bytes", [700, 10**9])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("kind", ["F64", "F32", "F16", "BF16", "mixed"])
def test_saved_and_loaded_is_bit_for_bit(tmp_path, kind, tied, shard_bytes):
    model = text_model(tie_word_embeddings=tied)
    model = mixed(model) if kind == "mixed" else model.to(convert.FLOATS[kind])
    save(model, tmp_path / "out", max_shard_bytes=shard_bytes)
    assert (tmp_path / "out" / INDEX).exists() == (shard_bytes == 700)
    loaded = load(tmp_path / "out")
    assert_same_tensors(loaded.state_dict(), model.state_dict())
    wanted = model.config.to_dict() | {"dtype": str(model.dtype).removeprefix("torch.")}
    assert loaded.config.to_dict() | {"dtype": wanted["dtype"]} == wanted
    assert loaded.config.dtype == loaded.backbone.embeddings.weight.dtype
    assert (loaded.lm_head.weight is loaded.backbone.embeddings.weight) == tied


def test_loaded_model_is_ready(tmp_path):
    save(text_model(), tmp_path / "out")
    loaded = load(tmp_path / "out")
    assert not loaded.training and all(p.requires_grad and p.is_leaf for p in loaded.parameters())
    marked = {name for name, p in loaded.named_parameters() if getattr(p, "_no_weight_decay", False)}
    assert marked == {name for name, _ in loaded.named_parameters() if name.endswith(DELICATE)} != set()
    before = {name: value.clone() for name, value in loaded.state_dict().items()}
    loaded.init_weights()
    assert_same_tensors(loaded.state_dict(), before)
    assert loaded.generation_config.eos_token_id == 2


def test_a_loaded_model_does_not_hang_on_its_files(tmp_path):
    model = text_model()
    save(model, tmp_path / "out")
    loaded = load(tmp_path / "out")
    path = tmp_path / "out" / SINGLE
    path.write_bytes(b"\0" * path.stat().st_size)
    assert_same_tensors(loaded.state_dict(), model.state_dict())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_dtype_casts_all_but_the_delicate(tmp_path, dtype):
    model = mixed(text_model())
    save(model, tmp_path / "out")
    for name, value in load(tmp_path / "out", dtype).state_dict().items():
        wanted = torch.float32 if dtype == torch.bfloat16 and name.endswith(DELICATE) else dtype
        assert value.dtype == wanted and torch.equal(value, model.state_dict()[name].to(wanted))
    with pytest.raises(UserError, match=r"dtype: wanted one of torch.float64, .* got torch.int8"):
        load(tmp_path / "out", torch.int8)


def test_matrices_of_several_types_need_a_dtype(tmp_path):
    model = text_model()
    model.lm_head.bfloat16()
    save(model, tmp_path / "out")
    with pytest.raises(UserError, match="matrices are stored as BF16 and F32; give one dtype"):
        load(tmp_path / "out")
    assert load(tmp_path / "out", torch.float32).dtype == torch.float32


def test_of_a_video_model_the_language_part_is_saved(tmp_path):
    video = twin.tiny().float()
    save(video, tmp_path / "out")
    loaded = load(tmp_path / "out")
    part = {name: v for name, v in video.state_dict().items() if name.startswith(("backbone.", "lm_head."))}
    assert_same_tensors(loaded.state_dict(), part)
    assert json.loads((tmp_path / "out" / "generation_config.json").read_text())["suppress_tokens"] == [5, 6]
    video.save_pretrained(tmp_path / "ours")
    assert_same_tensors(load_ours(tmp_path / "ours").state_dict(), part)


def test_a_slice_of_a_larger_tensor_is_saved_alone(tmp_path):
    model = text_model()
    larger = torch.randn(12, 16)
    model.backbone.layers[1].mixer.up_proj.weight = torch.nn.Parameter(larger[:, 4:12])
    model.backbone.layers[1].norm.weight = torch.nn.Parameter(larger[0, :8])
    save(model, tmp_path / "out")
    assert (tmp_path / "out" / SINGLE).stat().st_size < 20_000
    assert_same_tensors(load(tmp_path / "out").state_dict(), model.state_dict())


@pytest.mark.parametrize("fault", [{"max_shard_bytes": 0}, {}])
def test_what_cannot_be_saved(tmp_path, fault):
    with torch.device("meta" if not fault else "cpu"):
        model = HybridForCausalLM(twin.text_config())
    with pytest.raises(UserError, match="max_shard_bytes: wanted 1 or more" if fault else "on the meta device"):
        save(model, tmp_path / "out", **fault)
    assert list(tmp_path.iterdir()) == []


# ---- tied heads


def test_tied_head_through_save_pretrained(tmp_path):
    model = text_model(tie_word_embeddings=True)
    assert model.lm_head.weight is model.backbone.embeddings.weight
    model.save_pretrained(tmp_path)
    assert HEAD not in load_file(tmp_path / SINGLE)
    for kind in (HybridForCausalLM, AutoModelForCausalLM):
        loaded = kind.from_pretrained(tmp_path)
        assert loaded.config.tie_word_embeddings and loaded.lm_head.weight is loaded.backbone.embeddings.weight
        assert_same_tensors(loaded.state_dict(), model.state_dict())
    assert_same_tensors(load_ours(tmp_path).state_dict(), model.state_dict())


def test_tied_head_reads_with_the_table_and_learns_with_it(tmp_path):
    model = text_model(tie_word_embeddings=True)
    save_ours(model, tmp_path / "out")
    loaded = HybridForCausalLM.from_pretrained(tmp_path / "out")
    ids_BL = torch.randint(3, 40, (2, 9))
    with torch.no_grad():
        hidden_LD = twin.backbone(loaded.backbone, loaded.backbone.embeddings(ids_BL)[0])
        expected = (hidden_LD @ loaded.backbone.embeddings.weight.double().T).float()
        torch.testing.assert_close(loaded(ids_BL).logits[0], expected, atol=1e-4, rtol=1e-5)
    loaded(ids_BL, labels=ids_BL).loss.backward()
    torch.optim.SGD(loaded.parameters(), lr=0.1).step()
    assert loaded.lm_head.weight is loaded.backbone.embeddings.weight
    assert not torch.equal(loaded.lm_head.weight, model.lm_head.weight)


def test_tied_folder_with_and_without_a_head(tmp_path):
    model = text_model(tie_word_embeddings=True)
    save(model, tmp_path / "out")
    tensors = load_file(tmp_path / "out" / SINGLE)
    assert torch.equal(tensors[HEAD], tensors[TABLE])  # written for readers that do not tie
    convert.folders.write_tensors(tmp_path / "out", {n: t for n, t in tensors.items() if n != HEAD}, 10**9)
    assert_same_tensors(load(tmp_path / "out").state_dict(), model.state_dict())
    convert.folders.write_tensors(tmp_path / "out", tensors | {HEAD: tensors[HEAD] + 1}, 10**9)
    with pytest.raises(DataError, match=f"tie_word_embeddings is true, but {HEAD} differs from {TABLE}"):
        load(tmp_path / "out")


# ---- memory

PEAK = """
import sys
from cosmos_reason.model.convert import load
def kilobytes(name):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name + ":"))
open("/proc/self/clear_refs", "w").write("5")  # forget the peak so far
before = kilobytes("VmRSS")
model = load(sys.argv[1])
print((kilobytes("VmHWM") - before) * 1024 / sum(p.nbytes for p in model.parameters()))
"""


def python(*arguments: object) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, env=env)


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="needs Linux's /proc")
def test_loading_takes_one_model_and_one_file(tmp_path):
    config = HybridConfig(hidden_size=512, intermediate_size=4096, hybrid_override_pattern="M" + "-" * 10)
    save(HybridForCausalLM(config), tmp_path / "out", max_shard_bytes=20_000_000)
    assert sum(path.stat().st_size for path in (tmp_path / "out").glob("*.safetensors")) > 170_000_000
    assert 0.9 < float(python("-c", PEAK, tmp_path / "out").stdout) < 1.25  # a file is a tenth of this model


# ---- the command


def run(monkeypatch, capsys, *arguments: object) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["convert", *map(str, arguments)])
    with pytest.raises(SystemExit) as left:
        convert.main()
    shown = capsys.readouterr()
    return int(left.value.code or 0), shown.out, shown.err


def test_nano_goes_out_and_comes_back_with_its_tokenizer(tmp_path, monkeypatch, capsys):
    code, out, err = run(monkeypatch, capsys, "to-nemotron", "nano", tmp_path / "theirs")
    assert (code, err) == (0, "") and out == f"{tmp_path}/theirs: 10 layers, 2,119,024 parameters, torch.bfloat16\n"
    code, out, err = run(monkeypatch, capsys, "from-nemotron", tmp_path / "theirs", tmp_path / "ours")
    assert (code, err) == (0, "") and "10 layers" in out
    nano = convert.source_folder("nano")
    stored = {n: t for n, t in load_file(nano / SINGLE).items() if not n.startswith(("vision.", "projector."))}
    for folder in ("theirs", "ours"):
        assert_same_tensors(load_file(tmp_path / folder / SINGLE), stored)
        for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
            assert (tmp_path / folder / name).read_bytes() == (nano / name).read_bytes()
    text = json.loads((nano / CONFIG).read_text())["text_config"]
    again = json.loads((tmp_path / "ours" / CONFIG).read_text())
    assert {name: again[name] for name in text if name != "dtype"} == {n: v for n, v in text.items() if n != "dtype"}
    ids = AutoTokenizer.from_pretrained(nano)("a red ball hits the box").input_ids
    assert AutoTokenizer.from_pretrained(tmp_path / "theirs")("a red ball hits the box").input_ids == ids


def test_command_takes_a_folder_and_shards_and_casts(tmp_path, monkeypatch, capsys):
    text_model().save_pretrained(tmp_path / "a")
    run(monkeypatch, capsys, "to-nemotron", tmp_path / "a", tmp_path / "b", "--max-shard-bytes", 2000)
    assert (tmp_path / "b" / INDEX).is_file()
    run(monkeypatch, capsys, "from-nemotron", tmp_path / "b", tmp_path / "c", "--dtype", "bfloat16")
    assert HybridForCausalLM.from_pretrained(tmp_path / "c").dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["to-nemotron", "mega", "new"], "no model 'mega': wanted nano, nano-base or a folder that training wrote"),
        (["to-nemotron", "broken", "full"], "full: exists and is not an empty folder"),
        (["to-nemotron", "full", "new"], "full: no config.json; give the folder of a model"),
        (["to-nemotron", "theirs", "new"], "wanted a model of type cosmos_reason_hybrid_text or cosmos_reason_hybrid,"),
        (["to-nemotron", "broken", "new"], "broken/config.json: not a configuration of ours"),
        (["to-nemotron", "nano", "new", "--max-shard-bytes", "0"], "max_shard_bytes: wanted 1 or more, got 0"),
        (["from-nemotron", "nowhere", "new"], "no folder 'nowhere'"),
        (["from-nemotron", "cut", "full"], "full: exists and is not an empty folder"),
        (
            ["from-nemotron", "theirs", "new", "--dtype", "int8"],
            "--dtype: wanted one of float64, float32, float16, bfl",
        ),
        (["from-nemotron", "cut", "new"], "cut/model.safetensors: not a whole safetensors file"),
    ],
)
def test_command_says_in_one_sentence_what_is_wrong(tmp_path, monkeypatch, capsys, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    for name in ("full", "broken"):
        Path(name).mkdir()
    Path("full/notes.txt").write_text("mine")
    Path("broken/config.json").write_text('{"model_type": "cosmos_reason_hybrid", "text_config": 3}')
    for name in ("theirs", "cut"):
        save(text_model(), name)
    os.truncate(Path("cut") / SINGLE, 3000)
    code, out, err = run(monkeypatch, capsys, *arguments)
    assert code == 2 and out == ""
    assert err.startswith("convert: ") and sentence in err and err.count("\n") == 1
    assert not Path("new").exists() and sorted(os.listdir()) == ["broken", "cut", "full", "theirs"]


def test_module_as_a_command():
    wrong = python("-m", "cosmos_reason.model.convert", "to-nemotron", "mega", "out/never")
    assert wrong.returncode == 2 and "Traceback" not in wrong.stderr and wrong.stderr.count("\n") == 1


@pytest.mark.parametrize("verb", ["to-nemotron", "from-nemotron"])
def test_help_shows_examples(verb, monkeypatch, capsys):
    code, out, _ = run(monkeypatch, capsys, "--help")
    assert code == 0 and verb in out
    code, out, _ = run(monkeypatch, capsys, verb, "--help")
    assert code == 0 and out.count(f"python -m cosmos_reason.model.convert {verb} ") == 2
