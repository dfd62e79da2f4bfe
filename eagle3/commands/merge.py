"""Merge JSONL sources into one shuffled, tokenized and masked dataset.

Settings come from --config FILE (YAML), or from --target, --max-tokens, --seed and NAME=FILE.
The same inputs, settings and target give the same bytes; a finished store is left untouched.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from eagle3.errors import UsageError
from eagle3.merge_config import (
    MergeConfig,
    config_from_arguments,
    find_config,
    load_config,
    resolve_path,
)

if TYPE_CHECKING:
    from eagle3.merge import MergeResult, Progress

NAME = "merge"
ABOUT = "merge, shuffle, tokenize and mask JSONL sources into a dataset"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "sources", nargs="*", metavar="NAME=FILE", help="a source and its JSONL file"
    )
    parser.add_argument("--config", metavar="FILE", help="YAML settings, here or in the package")
    parser.add_argument("--target", metavar="DIR", help="the target model; its tokenizer is used")
    parser.add_argument(
        "--max-tokens", type=int, metavar="N", help="cut rows to the first N tokens"
    )
    parser.add_argument("--seed", type=int, metavar="S", help="seed of the shuffle")
    parser.add_argument(
        "--exclude", action="append", default=[], metavar="NAME", help="leave a source out"
    )
    parser.add_argument("--out", required=True, metavar="DIR", help="the dataset's directory")
    parser.add_argument(
        "--replace", action="store_true", help="put this merge in the place of another dataset"
    )
    parser.add_argument("--json", action="store_true", help="the result as one line of JSON")


def read_config(arguments: argparse.Namespace) -> MergeConfig:
    """The settings of a command line. Raises UsageError, or InputError for a config file."""
    if arguments.config is not None:
        others = {
            "--target": arguments.target is not None,
            "--max-tokens": arguments.max_tokens is not None,
            "--seed": arguments.seed is not None,
            "--exclude": bool(arguments.exclude),
            "NAME=FILE": bool(arguments.sources),
        }
        if given := [name for name, there in others.items() if there]:
            raise UsageError(f"--config holds all settings; leave {', '.join(given)} out")
        return load_config(find_config(arguments.config))
    needed = {
        "--target": arguments.target,
        "--max-tokens": arguments.max_tokens,
        "--seed": arguments.seed,
    }
    if missing := [name for name, value in needed.items() if value is None]:
        raise UsageError(f"{', '.join(missing)} missing; or give --config FILE")
    return config_from_arguments(
        target=arguments.target,
        max_tokens=arguments.max_tokens,
        seed=arguments.seed,
        sources=arguments.sources,
        exclude=arguments.exclude,
    )


def run(arguments: argparse.Namespace) -> int:
    config = read_config(arguments)
    out = resolve_path(arguments.out)
    # Settings are judged first: the imports below take seconds.
    from eagle3.merge import merge

    with _progress() as progress:
        result = merge(config, out, replace=arguments.replace, progress=progress)
    _print_summary(result)
    if arguments.json:
        print(json.dumps(summary(result), ensure_ascii=False))
    return 0


def summary(result: MergeResult) -> dict[str, object]:
    """What `--json` prints. Counts of rows, tokens and supervised tokens."""
    written = result.manifest.to_json()
    return {
        "outcome": result.outcome,
        "out": str(result.directory),
        "digest": result.manifest.digest,
        "config_digest": result.manifest.config_digest,
        "totals": written["totals"],
        "sources": written["sources"],
        "excluded": written["excluded"],
    }


@contextmanager
def _progress() -> Iterator[Progress | None]:
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("loading the tokenizer", total=None)

        def report(stage: str, done: int, total: int) -> None:
            bar.update(task, description=stage, completed=done, total=total)

        yield report


def _print_summary(result: MergeResult) -> None:
    from rich.console import Console
    from rich.table import Table

    manifest = result.manifest
    columns = ("samples", "tokens", "supervised", "truncated", "duplicates", "dropped")
    table = Table("source", title=str(result.directory), title_justify="left")
    for column in columns:
        table.add_column(column, justify="right")
    for name, source in sorted(manifest.sources.items()):
        values = [getattr(source, column) for column in columns[:-1]]
        dropped = sum(source.dropped.values())
        table.add_row(name, *(f"{value:,}" for value in (*values, dropped)))
    table.add_section()
    table.add_row("total", *(f"{getattr(manifest, column):,}" for column in columns))
    console = Console(stderr=True)
    console.print(table)
    reasons: dict[str, int] = {}
    for source in manifest.sources.values():
        for reason, count in source.dropped.items():
            reasons[reason] = reasons.get(reason, 0) + count
    for reason, count in sorted(reasons.items()):
        console.print(f"dropped {count:,}: {reason}", markup=False, highlight=False)
    if manifest.excluded:
        console.print(f"excluded: {', '.join(manifest.excluded)}", markup=False, highlight=False)
    said = {
        "written": "written and verified",
        "unchanged": "nothing to do: this dataset is there already, and is whole",
        "repaired": "the dataset was damaged; written again and verified",
    }
    console.print(said[result.outcome], highlight=False)
