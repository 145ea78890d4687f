"""The command line, one function a verb: arguments -> the function in the library that does the work -> exit code.

Exit codes: 0 done, 1 failed (a bar does not hold, or a bug, with its traceback), 2 the input is wrong (one sentence).
Nothing heavy is imported until a verb runs, so that `--help` answers at once.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from cosmos_reason import __version__
from cosmos_reason.errors import DataError, UserError

AskKind = Literal["binary", "choice", "text", "number", "interval", "point", "box"]
FIRST_TRAINING_SEED = 0

app = typer.Typer(
    name="cosmos-reason",
    help="Watch a video, think in words, answer: physical-AI video reasoning from data to a measured model.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


def main() -> None:
    """The console script: a fault of the caller or of a file is one sentence on stderr and exit code 2."""
    try:
        app()
    except (UserError, DataError) as fault:
        print(f"cosmos-reason: {fault}", file=sys.stderr)
        sys.exit(2)


def split_options(options: Sequence[str]) -> tuple[str, ...]:
    """``--options "left|right"`` and ``--options left --options right`` are the same two answers."""
    if len(options) == 1:
        return tuple(part.strip() for part in options[0].split("|"))
    return tuple(options)


def _show_version(asked: bool) -> None:
    if asked:
        print(f"cosmos-reason {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    pass


@app.command()
def ask(
    video: Annotated[str, typer.Argument(help="A video file.")],
    question: Annotated[str, typer.Argument(help="What you want to know about it.")],
    options: Annotated[
        list[str] | None, typer.Option(help='Answers to choose from: repeat it, or write "left|right".')
    ] = None,
    kind: Annotated[AskKind | None, typer.Option(help="How to answer; told from the question if not given.")] = None,
    model: Annotated[str, typer.Option(help="nano or nano-base (shipped), or a folder that training wrote.")] = "nano",
    fps: Annotated[float | None, typer.Option(help="Frames a second to look at.")] = None,
    max_frames: Annotated[int | None, typer.Option(help="Frames to look at, at most.")] = None,
    start: Annotated[float | None, typer.Option(help="Look from here on, seconds.")] = None,
    end: Annotated[float | None, typer.Option(help="Look up to here, seconds.")] = None,
    timestamps: Annotated[bool, typer.Option("--timestamps", help="Burn the time below each frame.")] = False,
    strip: Annotated[Path | None, typer.Option(help="Save the frames that were seen as one PNG.")] = None,
    max_tokens: Annotated[int, typer.Option(help="Longest reasoning and answer, in tokens.")] = 160,
    temperature: Annotated[float, typer.Option(help="0 takes the likeliest word each time.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Of the draw, with a temperature above 0.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Ask a question about a video.

    The reasoning is shown as it is made, then the answer.

    \b
    Examples:
      cosmos-reason ask clip.mp4 "Does the red ball hit the blue box?"
      cosmos-reason ask clip.mp4 "Which way does it move?" --options "left|right"
      cosmos-reason ask clip.mp4 "What happens?" --start 2 --end 5 --fps 4 --strip seen.png
      cosmos-reason ask clip.mp4 "Does the tower fall?" --json
    """
    from cosmos_reason import ask as asking

    asking.main(
        asking.AskRequest(
            video=video,
            question=question,
            options=split_options(options or ()),
            kind=kind,
            model=model,
            fps=fps,
            max_frames=max_frames,
            start_s=start,
            end_s=end,
            timestamps=timestamps,
            strip=strip,
            max_tokens=max_tokens,
            temperature=temperature,
            seed=seed,
            json=json,
        )
    )


@app.command()
def simulate(
    folder: Annotated[Path, typer.Argument(help="Where the set goes; clips that are complete are kept.")],
    families: Annotated[
        list[str] | None, typer.Option(help="Scene families, repeatable; all physics families if not given.")
    ] = None,
    clips: Annotated[int, typer.Option(min=1, help="Clips of each family.")] = 20,
    first_seed: Annotated[
        int, typer.Option(min=0, max=900_000_000, help="Seed of the first clip; greater ones are for testing.")
    ] = FIRST_TRAINING_SEED,
    workers: Annotated[int, typer.Option(min=1, help="Processes that render.")] = 2,
) -> None:
    """Write simulated clips with known truth.

    A set holds videos, their state over time and questions with answers.

    \b
    Examples:
      cosmos-reason simulate runs/set --clips 50
      cosmos-reason simulate runs/set --families tower --families ramp --first-seed 1000
    """
    from rich.console import Console
    from rich.progress import Progress

    from cosmos_reason.simulate.dataset import write_set
    from cosmos_reason.simulate.registry import FAMILIES

    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task("simulating", total=None)
        written = write_set(
            folder,
            tuple(families or FAMILIES),
            clips,
            first_seed,
            workers,
            lambda done, total: bar.update(task, completed=done, total=total),
        )
    print(f"simulated set: {written}")


@app.command()
def sft(
    recipe: Annotated[str, typer.Argument(help="A YAML recipe, e.g. train/sft_nano.yaml.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value, on top of the recipe.")] = None,
) -> None:
    """Fine-tune a model by a recipe.

    A run that was stopped goes on where it was.

    \b
    Examples:
      cosmos-reason sft train/sft_small.yaml train_sets=[runs/set] out=runs/sft
      cosmos-reason sft train/sft_small.yaml steps=50 lr=0.001
      accelerate launch -m cosmos_reason sft train/sft_small.yaml
    """
    from cosmos_reason.training import sft as tuning

    print(f"model: {tuning.main(recipe, tuple(overrides or ()))}")


@app.command()
def claims(
    name: Annotated[str | None, typer.Argument(help="Which claim; without a name they are listed.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer measurements, wider intervals.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Only the final JSON line on standard output.")] = False,
) -> None:
    """Measure again what is claimed.

    The last line is JSON; exit 0 only if every bar holds.

    \b
    Examples:
      cosmos-reason claims
      cosmos-reason claims nano --quick
      cosmos-reason claims nano --json
    """
    from cosmos_reason import claims as measuring

    raise typer.Exit(measuring.main(name, json=json, quick=quick))


@app.command()
def speed(
    name: Annotated[str | None, typer.Argument(help="Which comparison; without a name they are listed.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer repetitions.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Only the final JSON line on standard output.")] = False,
) -> None:
    """Measure speed against stated bars.

    The last line is JSON; exit 0 only if every bar holds.

    \b
    Example:
      cosmos-reason speed
    """
    from cosmos_reason import claims as measuring

    raise typer.Exit(measuring.main(name, json=json, quick=quick, folder="speed"))


@app.command()
def quickstart(
    out: Annotated[Path, typer.Option(help="Folder of the report and everything behind it.")] = Path("runs/quickstart"),
) -> None:
    """See all of it in ten minutes.

    Asks, simulates, trains, measures before and after, and writes report.html.

    \b
    Example:
      cosmos-reason quickstart --out runs/quickstart
    """
    from cosmos_reason import quickstart as tour

    raise typer.Exit(0 if tour.main(out) else 1)


@app.command()
def doctor(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Examine this machine.

    What is installed, what works and what will be used.

    \b
    Examples:
      cosmos-reason doctor
      cosmos-reason doctor --json
    """
    from cosmos_reason import doctor as examining

    raise typer.Exit(examining.main(json=json))
