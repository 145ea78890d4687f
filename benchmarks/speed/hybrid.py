"""Our hybrid decoder beside transformers' `nemotron_h`, same weights: prefill, decoding, a training step, memory.

cosmos-reason speed hybrid [--quick] [--json]. The reference configuration has 5.6M parameters, in fp32. Both sides run
in this process, alternating, each at the thread count that suits it in that phase; figures are medians of the rounds,
ratios are theirs / ours. Peak memory is that of a process of its own for each side. The share of the GEMM limit counts
the products of linear layers alone, against one large product timed in the same run. Prints one JSON line last; exit 0
only if all bars hold. Speed over length is drawn in runs/speed/hybrid.png.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, NemotronHConfig, NemotronHForCausalLM

from cosmos_reason.model import core
from cosmos_reason.model.cache import HybridCache
from cosmos_reason.model.causal_lm import HybridForCausalLM
from cosmos_reason.model.columns import Columns
from cosmos_reason.model.config import HybridConfig

SHAPE: dict[str, Any] = {
    "hybrid_override_pattern": "M-M-M*-M-M-",
    "vocab_size": 1024,
    "hidden_size": 256,
    "intermediate_size": 1024,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "ssm_state_size": 64,
    "mamba_num_heads": 8,
    "mamba_head_dim": 64,
    "n_groups": 2,
    "chunk_size": 128,
}
MIXER_8B = {
    "hybrid_override_pattern": "M",
    "vocab_size": 8,
    "hidden_size": 4096,
    "ssm_state_size": 128,
    "mamba_num_heads": 128,
    "n_groups": 8,
}
BARS = {
    "prefill_2048": 1.8,
    "prefill_8192": 2.0,
    "prefill_bf16": 3.0,
    "train": 1.5,
    "decode_1": 4.0,
    "decode_8": 3.0,
    "mixer_8b": 3.0,
    "train_memory": 0.5,
    "prefill_memory_growth": 2.2,
}
GEMM_SHARE = 0.7  # of the limit; enough in these phases, whatever the ratio
BY_GEMM = ("prefill_2048", "prefill_8192", "train")
AT_MOST = ("train_memory", "prefill_memory_growth")
Work = Callable[[], object]


def ours(dtype: torch.dtype = torch.float32, **changes: Any) -> HybridForCausalLM:
    """Ours, with fixed random weights."""
    torch.manual_seed(0)
    return HybridForCausalLM(HybridConfig(**{**SHAPE, **changes})).to(dtype).eval()


def theirs(model: HybridForCausalLM, dtype: torch.dtype = torch.float32, **changes: Any) -> NemotronHForCausalLM:
    """Theirs, with the same weights."""
    other = NemotronHForCausalLM(NemotronHConfig(**{**SHAPE, **changes})).to(dtype).eval()
    other.load_state_dict({name.replace("backbone.", "model."): value for name, value in model.state_dict().items()})
    return other


def prompt(rows: int, length: int) -> Tensor:
    """Random ids (rows, length), the same each time."""
    return torch.randint(SHAPE["vocab_size"], (rows, length), generator=torch.Generator().manual_seed(length))


def seconds(work: Work) -> float:
    """Of one run."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def compare(works: dict[str, Work], rounds: int) -> dict[str, float]:
    """Median seconds of each side, alternating, each at its own number of threads."""
    cores = torch.get_num_threads()
    threads = {}
    for side, work in works.items():
        tried = {}
        for count in {1, cores}:
            torch.set_num_threads(count)
            work()
            tried[count] = min(seconds(work) for _ in range(2))
        threads[side] = min(tried, key=tried.__getitem__)
    times: dict[str, list[float]] = {side: [] for side in works}
    for _ in range(rounds):
        for side, work in works.items():
            torch.set_num_threads(threads[side])
            times[side].append(seconds(work))
    torch.set_num_threads(cores)
    return {side: statistics.median(values) for side, values in times.items()}


def gemm_rate() -> float:
    """FLOP/s of a large product in fp32."""
    a, b = torch.randn(2048, 1024), torch.randn(1024, 2048)
    return 2 * 2048 * 1024 * 2048 / statistics.median(seconds(lambda: a @ b) for _ in range(9))


def linear_flops(model: HybridForCausalLM, tokens: int, with_head: bool) -> float:
    """Of the linear layers in one forward pass."""
    linear = {name: m.weight.numel() for name, m in model.named_modules() if isinstance(m, torch.nn.Linear)}
    head = linear.pop("lm_head")
    return 2.0 * tokens * (sum(linear.values()) + head * with_head)


def prefill(model: torch.nn.Module, length: int) -> Work:
    """A prompt into a fresh cache, and the logits of its last token."""
    ids = prompt(1, length)

    def work() -> None:
        with torch.inference_mode():
            model(input_ids=ids, use_cache=True, logits_to_keep=1)

    return work


def our_steps(model: HybridForCausalLM, rows: int, context: int, steps: int) -> Work:
    """Greedy tokens after a context, from a cache with room for all rounds."""
    cache = HybridCache(model.text_config, rows, context + 4096)
    with torch.inference_mode():
        first = model(input_ids=prompt(rows, context), cache=cache, logits_to_keep=1).logits.argmax(-1)

    def work() -> None:
        token = first
        with torch.inference_mode():
            for _ in range(steps):
                token = model(input_ids=token, cache=cache, logits_to_keep=1).logits.argmax(-1)

    return work


def their_steps(model: NemotronHForCausalLM, rows: int, context: int, steps: int) -> Work:
    """The same by their forward passes, without the overhead of their `generate`."""
    cache = DynamicCache(config=model.config)
    with torch.inference_mode():
        out = model(input_ids=prompt(rows, context), past_key_values=cache, use_cache=True, logits_to_keep=1)
        first = out.logits.argmax(-1)

    def work() -> None:
        token = first
        with torch.inference_mode():
            for _ in range(steps):
                token = model(input_ids=token, past_key_values=cache, use_cache=True).logits.argmax(-1)

    return work


def train_step(model: torch.nn.Module) -> Work:
    """Loss and gradients of 8 rows of 256 tokens."""
    ids = prompt(8, 256)

    def work() -> None:
        model.train()
        model(input_ids=ids, labels=ids).loss.backward()
        model.zero_grad()
        model.eval()

    return work


def mixers_8b() -> dict[str, Work]:
    """A Mamba-2 layer of the 8B size between its projections, where the two differ, and with them; 1,024 tokens."""
    model = ours(**MIXER_8B)
    other = theirs(model, **MIXER_8B)
    mine, their = model.backbone.layers[0].mixer, other.model.layers[0].mixer
    x_BLD = torch.randn(1, 1024, 4096)
    projected = mine.in_proj(x_BLD).detach()
    inputs = core.Inputs(projected, None, None, None, None)
    their_projections = torch.nn.Identity(), torch.nn.Identity()

    def between(bare: Any) -> Work:
        def work() -> None:
            with torch.inference_mode():
                bare()

        return work

    def their_core() -> None:
        kept = their.in_proj, their.out_proj
        their.in_proj, their.out_proj = their_projections
        their(projected)
        their.in_proj, their.out_proj = kept

    return {
        "ours": between(lambda: core.forward(mine.sizes(), mine.weights(), inputs, None)),
        "theirs": between(their_core),
        "ours, whole": between(lambda: mine(x_BLD, Columns(), None)),
        "theirs, whole": between(lambda: their(x_BLD)),
    }


def peak_mb(side: str, phase: str) -> float:
    """Most memory that a phase takes on top of what the process had, in a process of its own."""
    command = [sys.executable, __file__, "--memory", side, phase]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout.strip().splitlines()[-1])


def measure_memory(side: str, phase: str) -> None:
    """In the process of its own: run once, print the growth of the high-water mark in MB."""
    model: torch.nn.Module = ours()
    if side == "theirs":
        model = theirs(ours())
    work = train_step(model) if phase == "train" else prefill(model, int(phase))
    prefill(model, 64)()  # loads what is loaded once
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts anew
    before = _status_kb("VmRSS")
    work()
    print((_status_kb("VmHWM") - before) / 1024)


def _status_kb(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1])


def phases(model: HybridForCausalLM, other: NemotronHForCausalLM, quick: bool) -> dict[str, dict[str, Work]]:
    """By name of the figure, each side's work; made when asked for, so that prompts are not held."""
    steps = 16
    both: dict[str, dict[str, Work]] = {}
    for length in (512, 2048) if quick else (512, 2048, 8192):
        both[f"prefill_{length}"] = {"ours": prefill(model, length), "theirs": prefill(other, length)}
    for rows in (1, 8):
        for context in (256,) if quick else (256, 8192):
            name = f"decode_{rows}" if context == 256 else f"decode_{rows}_after_{context}"
            both[name] = {
                "ours": our_steps(model, rows, context, steps),
                "theirs": their_steps(other, rows, context, steps),
            }
    both["train"] = {"ours": train_step(model), "theirs": train_step(other)}
    return both


def tokens_of(name: str) -> int:
    """Tokens that one run of a phase takes or makes."""
    kind, first = name.split("_")[0], name.split("_")[1] if "_" in name else ""
    return {"prefill": int(first or 0), "decode": 16 * int(first or 0), "train": 2048}[kind]


def measure(quick: bool) -> dict[str, Any]:
    """All figures."""
    rounds = 3 if quick else 7
    model = ours()
    other = theirs(model)
    limit = gemm_rate()
    figures: dict[str, Any] = {"gemm_gflops": round(limit / 1e9), "gemm_share": {}, "tokens_a_second": {}}
    for name, works in phases(model, other, quick).items():
        took = compare(works, rounds)
        report(figures, name, took, tokens_of(name))
        if name.startswith(("prefill", "train")):
            flops = linear_flops(model, tokens_of(name), name == "train") * (3 if name == "train" else 1)
            figures["gemm_share"][name] = {side: round(flops / limit / time_s, 2) for side, time_s in took.items()}
    half, other_half = ours(torch.bfloat16), theirs(model, torch.bfloat16)
    took = compare({"ours": prefill(half, 2048), "theirs": prefill(other_half, 2048)}, rounds)
    report(figures, "prefill_bf16", took, 2048)
    took = compare(mixers_8b(), max(rounds - 2, 2))
    report(figures, "mixer_8b", took, 1024)
    figures["layer_8b_with_projections"] = round(took["theirs, whole"] / took["ours, whole"], 2)
    return figures


def report(figures: dict[str, Any], name: str, took: dict[str, float], tokens: int) -> None:
    """Into the figures and onto the screen."""
    figures[name] = round(took["theirs"] / took["ours"], 2)
    speeds = {side: round(tokens / time_s) for side, time_s in took.items()}
    figures["tokens_a_second"][name] = speeds
    print(f"{name:22} {figures[name]:6.2f} ×   {speeds} tokens/s", flush=True)


def memory(quick: bool) -> dict[str, Any]:
    """Peak memory in MB, and how ours grows when the prompt is twice as long."""
    lengths = ("2048", "4096") if quick else ("2048", "16384", "32768", "65536")
    figures: dict[str, Any] = {side: {"train": peak_mb(side, "train")} for side in ("ours", "theirs")}
    for length in lengths:
        figures["ours"][length] = peak_mb("ours", length)
    figures["theirs"]["2048"] = peak_mb("theirs", "2048")
    rounded = {side: {phase: round(mb, 1) for phase, mb in row.items()} for side, row in figures.items()}
    print(f"peak memory, MB        {rounded}", flush=True)
    return {
        "peak_mb": rounded,
        "train_memory": round(figures["ours"]["train"] / figures["theirs"]["train"], 2),
        "prefill_memory_growth": round(figures["ours"][lengths[-1]] / figures["ours"][lengths[-2]], 2),
    }


def plot(path: Path, rounds: int) -> None:
    """Prefill over length, tokens a second of both."""
    from matplotlib import pyplot

    model = ours()
    other = theirs(model)
    lengths = [128, 512, 2048, 8192]
    rows = [compare({"ours": prefill(model, n), "theirs": prefill(other, n)}, rounds) for n in lengths]
    figure, axes = pyplot.subplots(figsize=(6, 3.5))
    for side, label in (("ours", "cosmos_reason"), ("theirs", "transformers")):
        axes.plot(lengths, [n / row[side] for n, row in zip(lengths, rows, strict=True)], marker="o", label=label)
    axes.set(xscale="log", xlabel="prompt, tokens", ylabel="tokens / s", ylim=(0, None), title="prefill, fp32, 2 cores")
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120, bbox_inches="tight")
    print(f"picture: {path}")


def missed(figures: dict[str, Any]) -> list[str]:
    """Bars that do not hold; a figure that a quick run leaves out is not among them."""
    out = []
    for name, bar in BARS.items():
        if name not in figures:
            continue
        holds = figures[name] <= bar if name in AT_MOST else figures[name] >= bar
        if name in BY_GEMM:
            holds = holds or figures["gemm_share"][name]["ours"] >= GEMM_SHARE
        out += [] if holds else [name]
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="shorter prompts, fewer rounds, no picture")
    parser.add_argument("--json", action="store_true", help="accepted for symmetry: the last line is always JSON")
    parser.add_argument("--out", type=Path, default=Path("runs/speed"))
    parser.add_argument("--memory", nargs=2, metavar=("SIDE", "PHASE"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.memory:
        measure_memory(*args.memory)
        return 0
    figures = {**measure(args.quick), **memory(args.quick)}
    if not args.quick:
        plot(args.out / "hybrid.png", 3)
    figures["missed"] = missed(figures)
    bars = {**BARS, "gemm_share": GEMM_SHARE}
    print(json.dumps({"ok": not figures["missed"], "figures": figures, "bars": bars}))
    return 0 if not figures["missed"] else 1


if __name__ == "__main__":
    sys.exit(main())
