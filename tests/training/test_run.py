"""Schedules, data order, parameter groups and checkpoints of a run."""

import json

import pytest
import torch
from accelerate import Accelerator
from torch import nn

from cosmos_reason.errors import UserError
from cosmos_reason.training.run import (
    Recipe,
    adamw,
    checkpoints,
    cosine,
    forget_after,
    order,
    resume,
    same_run,
    save_checkpoint,
)


def test_cosine_by_hand():
    assert cosine(0, 110, 1.0, 10) == pytest.approx(0.1)
    assert cosine(9, 110, 1.0, 10) == pytest.approx(1.0)
    assert cosine(60, 110, 1.0, 10) == pytest.approx(0.1 + 0.9 * 0.5)  # halfway down
    assert cosine(110, 110, 1.0, 10) == pytest.approx(0.1)


def test_order_is_a_permutation_an_epoch_and_resumes_anywhere():
    whole = [n for n, _ in zip(order(7, 3), range(21), strict=False)]
    assert [sorted(whole[i : i + 7]) for i in (0, 7, 14)] == [list(range(7))] * 3
    assert whole[:7] != whole[7:14]
    for start in (0, 5, 7, 13):
        assert [n for n, _ in zip(order(7, 3, start), range(21 - start), strict=False)] == whole[start:]


def test_state_space_scalars_take_no_decay():
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.A_log = nn.Parameter(torch.zeros(4))
            self.in_proj = nn.Linear(3, 4)
            self.conv1d = nn.Conv1d(4, 4, 4, groups=4)
            self.frozen = nn.Parameter(torch.zeros(2, 2), requires_grad=False)

    layer = Layer()
    decay, plain = adamw(layer, 1e-3, 0.1).param_groups
    assert [p.shape for p in decay["params"]] == [layer.in_proj.weight.shape]
    assert len(plain["params"]) == 4 and plain["weight_decay"] == 0.0


def test_checkpoints_are_ordered_by_number(tmp_path):
    for name in ("step_500", "step_2500", "step_30.partial", "junk"):
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
    assert [p.name for p in checkpoints(tmp_path)] == ["step_500", "step_2500"]


def test_a_resumed_run_equals_the_uninterrupted_one(tmp_path):
    def train(folder, first_stop, steps):
        torch.manual_seed(0)
        accelerator = Accelerator(cpu=True)
        model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 1))
        model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=0.1))
        losses = []
        for step in range(resume(accelerator, folder), steps):
            loss = model(torch.full((4, 3), float(step))).square().mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(float(loss.detach()))
            if step + 1 == first_stop:
                save_checkpoint(accelerator, folder, step + 1)
                break
        return losses

    whole = train(tmp_path / "whole", None, 6)
    first = train(tmp_path / "parts", 3, 6)
    assert first + train(tmp_path / "parts", None, 6) == whole  # dropout included


def test_old_checkpoints_go_only_after_the_new_one_is_there(tmp_path):
    accelerator = Accelerator(cpu=True)
    accelerator.prepare(nn.Linear(1, 1))
    for step in (1, 2, 3):
        save_checkpoint(accelerator, tmp_path, step, keep=2)
    assert [p.name for p in checkpoints(tmp_path)] == ["step_2", "step_3"]


def test_metrics_after_the_checkpoint_are_forgotten(tmp_path):
    rows = [json.dumps({"step": s, "loss": 1.0}) for s in (10, 20, 30)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(rows) + '\n{"step": 4')
    forget_after(tmp_path, 20)
    assert [json.loads(line)["step"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()] == [10, 20]


def test_another_run_in_the_same_folder_is_refused(tmp_path):
    recipe = Recipe(train_sets=("a",), out=tmp_path, cache="c", steps=10)
    same_run(tmp_path, recipe, ["clip 1", "clip 2"])
    same_run(tmp_path, recipe, ["clip 3"])  # nothing was trained yet: nothing to protect
    (tmp_path / "checkpoints" / "step_5").mkdir(parents=True)
    same_run(tmp_path, recipe.model_copy(update={"steps": 20, "save_every": 3}), ["clip 3"])
    with pytest.raises(UserError, match=r"holds a run with other data; give another `out`"):
        same_run(tmp_path, recipe, ["clip 4"])
    with pytest.raises(UserError, match=r"holds a run with other lr, seed;"):
        same_run(tmp_path, recipe.model_copy(update={"lr": 0.1, "seed": 2}), ["clip 3"])
    assert json.loads((tmp_path / "run.json").read_text())["lr"] == recipe.lr
