"""How long a large runbook takes to validate and to plan, and whether that grows in proportion.

    python -m tests.benchmarks.big_plan [--sizes 250 500 1000] [--repeat 3]

A chain of steps, each with one `requires`, a command and one `ensures`, on a host that pyinfra
only simulates (no delay); and the same chain with ten transient steps in it. Whole processes are measured, `runbook validate` and `runbook plan`,
sizes by turns. `slope` is how the time beyond the smallest size grows: seconds for each further
step between one size and the next, so equal slopes are linear growth. Results:
tests/benchmarks/results/big_plan.json.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.benchmarks.contenders import PROJECT, runbook_text
from tests.benchmarks.measuring import (
    RESULTS,
    compiled,
    machine,
    median,
    timed,
    versions,
    write_result,
)

# Seconds of validate and plan together, for the largest size.
TARGET = 5.0
# How many transient steps a chain has.
SHAPES = {"plain": 0, "transient": 10}
# The last slope may be this many times the first; quadratic growth would be twice.
LINEAR = 1.5
_INVENTORY = """\
from itertools import pairwise
from pathlib import Path

from runbooks.engine.adapter.fake import fake_data

machines = [("@fake/near", fake_data(Path(__file__).with_name("answers.yaml"), "near"))]
"""
# `work` is there, nothing in it is; see the scripts of the path fact.
_ANSWERS = """\
near:
  path /bench/work/: "is\\tabsent"
  path /bench/work: "is\\tpresent\\nstat\\t41ed\\t4096\\t755\\t0\\t0\\troot\\troot"
  command touch: ""
"""


def commands(name: str) -> dict[str, list[str]]:
    """The two command lines, by what they do."""
    runbook = str(Path(sys.executable).parent / "runbook")
    words = [f"{name}.yaml", "--inventory", "hosts.py"]
    return {part: [runbook, part, *words] for part in ("validate", "plan")}


def measure(shape: str, size: int, folder: Path) -> dict[str, Any]:
    """One validate and one plan, checked: all steps are valid, all would run."""
    run: dict[str, Any] = {"shape": shape, "steps": size}
    for part, argv in commands(f"{shape}-{size}").items():
        log = folder / "log"
        env = compiled(folder / "byte-code") | {"RUNBOOK_RUNS": str(folder / "runs")}
        one = timed(argv, folder, env, log)
        said = log.read_text(errors="replace")
        wanted = f"{size} steps" if part == "validate" else f"1 to run, {size - 1} may run"
        if one["exit"] != 0 or wanted not in said:
            raise SystemExit(f"{part} of {size} steps: exit {one['exit']}\n{said[-2000:]}")
        run[part] = one
    return run


def summary(runs: list[dict[str, Any]], sizes: list[int]) -> dict[str, Any]:
    """Of one shape: medians by size, slopes between sizes, and whether the targets are met."""
    medians: dict[str, dict[str, float]] = {}
    for size in sizes:
        own = [run for run in runs if run["steps"] == size]
        row = {
            f"{part}_{key}": median([run[part][key] for run in own])
            for part in ("validate", "plan")
            for key in ("seconds", "cpu")
        }
        both = [run["validate"]["seconds"] + run["plan"]["seconds"] for run in own]
        cpu = [run["validate"]["cpu"] + run["plan"]["cpu"] for run in own]
        medians[str(size)] = row | {
            "both_seconds": median(both),
            "both_cpu": median(cpu),
            "least_cpu": round(min(cpu), 3),
        }
    slopes = []
    for small, large in pairwise(sizes):
        # The least is what the work itself takes; more is what other programs disturbed.
        grown = medians[str(large)]["least_cpu"] - medians[str(small)]["least_cpu"]
        slopes.append(round(1000 * grown / (large - small), 3))
    return {
        "medians": medians,
        "slope_ms_per_step": slopes,
        "met": medians[str(sizes[-1])]["both_seconds"] < TARGET,
        "linear": len(slopes) < 2 or slopes[-1] <= LINEAR * slopes[0],
    }


def table(shapes: dict[str, dict[str, Any]]) -> str:
    """The result as text."""
    lines = [f"{'':10}{'steps':>6}{'validate s':>12}{'plan s':>9}{'both s':>9}{'both CPU s':>12}"]
    for shape, found in shapes.items():
        for size, row in found["medians"].items():
            lines.append(
                f"{shape:10}{size:>6}{row['validate_seconds']:12.2f}{row['plan_seconds']:9.2f}"
                f"{row['both_seconds']:9.2f}{row['both_cpu']:12.2f}"
            )
        met = "met" if found["met"] else "NOT met"
        slopes = ", ".join(f"{slope:.2f}" for slope in found["slope_ms_per_step"])
        word = "linear" if found["linear"] else "NOT linear"
        lines.append(f"  under {TARGET:g} s: {met}; CPU ms a further step: {slopes}: {word}")
    return "\n".join(lines)


def prepare(sizes: list[int], folder: Path) -> None:
    """The runbooks, the simulated host and its answers."""
    (folder / "hosts.py").write_text(_INVENTORY)
    (folder / "answers.yaml").write_text(_ANSWERS)
    for shape, count in SHAPES.items():
        for size in sizes:
            every = size // count if count else 0
            text = runbook_text(size, "/bench/work", "near", transient=every)
            (folder / f"{shape}-{size}.yaml").write_text(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[250, 500, 1000])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of big_plan.json")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    arguments = parser.parse_args()
    sizes = sorted(arguments.sizes)
    before = machine()
    folder = Path(tempfile.mkdtemp(prefix="eagle3-bench-"))
    try:
        prepare(sizes, folder)
        measure(arguments.shapes[0], sizes[0], folder)  # compiles
        runs = [
            measure(shape, size, folder)
            for _ in range(arguments.repeat)
            for shape in arguments.shapes
            for size in sizes
        ]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    shapes = {
        shape: summary([run for run in runs if run["shape"] == shape], sizes)
        for shape in arguments.shapes
    }
    result = {
        "what": "validate and plan a chain of steps on one simulated host, whole processes",
        "when": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "machine": before | {"load_after": machine()["load"]},
        "versions": versions("pyinfra", "pyyaml", "rich", "eagle3-runbooks"),
        "argv": {
            part: shlex.join(argv).replace(str(PROJECT), ".")
            for part, argv in commands("SHAPE-SIZE").items()
        },
        "target_seconds": TARGET,
        "shapes": shapes,
        "runs": runs,
    }
    print(table(shapes))
    print(f"\n{write_result('big_plan', result, arguments.results)}")
    return 0 if all(found["met"] and found["linear"] for found in shapes.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
