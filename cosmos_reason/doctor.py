"""`cosmos-reason doctor`: look at this machine -> a report of what is there, what works, what will be used.

versions, decoders, devices, renderers, shipped model -> faults, each a sentence with its remedy. `ok` means no faults.
Whatever may crash a process (a renderer without its system library) is tried in a process of its own.
"""

from __future__ import annotations

import importlib
import json as jsonlib
import os
import platform
import re
import subprocess
import sys
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

from cosmos_reason import __version__
from cosmos_reason.simulate import renderer
from cosmos_reason.video.readers import reader_order

CORE = ("torch", "torchvision", "transformers", "accelerate", "safetensors", "tokenizers", "numpy", "pillow")
OPTIONAL = ("mujoco", "metaworld", "deepspeed", "tensorboard", "mamba-ssm", "causal-conv1d", "vllm", "ray", "gradio")
DECODERS = {"decord": "decord", "pyav": "av", "torchcodec": "torchcodec"}
RENDERERS = ("osmesa", "egl", "glfw")
RENDER_LIMIT_S = 60.0
MODELS = ("nano", "nano-base")

RENDER_TRIAL = """
import mujoco, numpy
model = mujoco.MjModel.from_xml_string(
    '<mujoco><worldbody><light pos="0 0 3"/><geom type="sphere" size="1" rgba="1 0 0 1"/>'
    '<camera name="c" pos="0 -4 0" xyaxes="1 0 0 0 0 1"/></worldbody></mujoco>')
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
renderer = mujoco.Renderer(model, 32, 32)
renderer.update_scene(data, "c")
red = renderer.render()[16, 16].astype(int)
assert red[0] > 2 * red[1] + 20, f"a red ball came out as {red}"
"""


@dataclass(frozen=True)
class Examination:
    """What was found. Versions and states are strings; "" means not installed."""

    version: str
    python: str
    system: str
    cores: int
    memory_gb: float
    packages: dict[str, str]
    decoders: dict[str, str]
    devices: dict[str, str]
    renderers: dict[str, str]  # "works" or why not
    used: dict[str, str]
    faults: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether the main job can be done here."""
        return not self.faults


def main(*, json: bool = False) -> int:
    """Examine and print, as a page or as one JSON line with `ok`; the exit code is 0 without faults, else 1."""
    found = examine()
    if json:
        print(jsonlib.dumps({"ok": found.ok, "figures": asdict(found), "bars": {"faults": 0}}))
    else:
        print(page(found))
    return 0 if found.ok else 1


def examine() -> Examination:
    """Run every trial; about ten seconds, most of them for importing torch and starting renderers."""
    packages = {name: version(name) for name in (*CORE, *OPTIONAL)}
    decoders = {name: importable(module) for name, module in DECODERS.items()}
    devices = find_devices()
    renderers = {name: try_renderer(name) for name in RENDERERS} if packages["mujoco"] else {}
    used = choose(decoders)
    return Examination(
        version=__version__,
        python=platform.python_version(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        cores=os.cpu_count() or 1,
        memory_gb=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        packages=packages,
        decoders=decoders,
        devices=devices,
        renderers=renderers,
        used=used,
        faults=find_faults(packages, decoders, renderers, renderer.CHOSEN[0], missing_models()),
    )


def missing_models() -> list[str]:
    """Shipped models that are not in the package."""
    assets = Path(__file__).parent / "assets"
    return [name for name in MODELS if not (assets / name / "config.json").is_file()]


def version(distribution: str) -> str:
    """The installed version, or ""."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def importable(module: str) -> str:
    """The version of a decoder that can really be imported, "broken: why" for one that cannot, "" for none."""
    installed = version(module)
    if not installed:
        return ""
    try:
        importlib.import_module(module)
    except (ImportError, OSError, RuntimeError) as fault:  # a missing shared library shows in any of these ways
        return f"broken: {str(fault).strip().splitlines()[0] if str(fault).strip() else type(fault).__name__}"
    return installed


def find_devices() -> dict[str, str]:
    """What torch can compute on, e.g. {"cpu": "2 threads, AVX2"}."""
    try:
        import torch
    except (ImportError, OSError) as fault:
        return {"cpu": f"torch cannot be imported: {fault}"}
    devices = {"cpu": f"{torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}"}
    for i in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        card = torch.cuda.get_device_properties(i)
        devices[f"cuda:{i}"] = f"{card.name}, {card.total_memory / 2**30:.0f} GiB"
    return devices


def try_renderer(name: str) -> str:
    """Draw a red ball with MuJoCo through one GL back end; "works", or the error it met."""
    environment = {**os.environ, "MUJOCO_GL": name}
    environment.pop("PYOPENGL_PLATFORM", None)
    try:
        trial = subprocess.run(
            [sys.executable, "-c", RENDER_TRIAL],
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=RENDER_LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        return f"no picture within {RENDER_LIMIT_S:.0f} s"
    if trial.returncode == 0:
        return "works"
    said = trial.stderr.strip().splitlines() or [f"ended with code {trial.returncode}"]
    return next((line for line in said if re.match(r"[\w.]*Error\b", line)), said[-1])  # later ones come of cleaning up


def choose(decoders: dict[str, str]) -> dict[str, str]:
    """What the library takes of all that. Answers and training run on the processor as yet, whatever else there is."""
    sound = [name for name in reader_order() if decoders.get(name) and not decoders[name].startswith("broken")]
    return {
        "decoders": ", then ".join(sound) or "none",
        "device": "cpu",
        "renderer": f"{renderer.CHOSEN[0]} ({renderer.CHOSEN[1]})",
    }


def find_faults(
    packages: dict[str, str], decoders: dict[str, str], renderers: dict[str, str], drawing: str, missing: list[str]
) -> tuple[str, ...]:
    """Everything that stands in the way, each with what to do about it."""
    faults = [f"{name} is not installed; run: pip install cosmos-reason" for name in CORE if not packages[name]]
    faults += [f"{name} is {state}" for name, state in decoders.items() if state.startswith("broken")]
    if not any(state and not state.startswith("broken") for state in decoders.values()):
        faults.append("no video decoder works; run: pip install decord av")
    if renderers and renderers.get(drawing) != "works":
        faults.append(
            f"MuJoCo would draw by {drawing}, which does not work; run as root: apt-get install libosmesa6, or set "
            "MUJOCO_GL to one that works"
        )
    faults += [f"the shipped model {name} is missing from the package; install it again" for name in missing]
    return tuple(faults)


def page(found: Examination) -> str:
    """The report for a person."""
    lines = [
        f"cosmos-reason {found.version} on Python {found.python}, {found.system}",
        f"{found.cores} cores, {found.memory_gb} GiB of memory",
    ]
    for title in ("packages", "decoders", "devices", "renderers", "used"):
        lines.append(f"\n{title}")
        lines += [f"  {name:14} {state or '-'}" for name, state in getattr(found, title).items()]
    lines += ["", *(f"fault: {fault}" for fault in found.faults)] if found.faults else ["", "no faults found"]
    return "\n".join(lines)
