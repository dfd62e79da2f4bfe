"""Show the rows of a dataset or of a hidden-state store: tokens, supervised text, dropped rows."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from eagle3.dataset_manifest import FORMAT, Manifest, read_manifest, store_format
from eagle3.errors import UsageError
from eagle3.merge_config import resolve_path

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console

    from eagle3.show import ShownRow

NAME = "show"
ABOUT = "show the rows of a dataset or of a hidden-state store"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIR", help="a dataset, or a hidden-state store")
    parser.add_argument(
        "--json", action="store_true", help="one JSON object for each row, dropped rows last"
    )
    parser.add_argument(
        "--rows", type=int, default=5, metavar="N", help="rows to print without --json (default 5)"
    )
    parser.add_argument(
        "--tokenizer", metavar="DIR", help="where tokenizer.json is, if not in the store"
    )
    parser.add_argument(
        "--verify", action="store_true", help="read and check every byte of a dataset first"
    )


def run(arguments: argparse.Namespace) -> int:
    if arguments.rows < 0:
        raise UsageError(f"--rows {arguments.rows}: write 0 or more")
    store = resolve_path(arguments.directory)
    kind = store_format(store)
    from eagle3.show import load_decoder, shown_dropped, shown_rows

    if arguments.verify:
        _verify(store, kind)
    decoder = load_decoder(store, Path(arguments.tokenizer) if arguments.tokenizer else None)
    if arguments.json:
        for row in shown_rows(store, decoder):
            print(json.dumps(asdict(row), ensure_ascii=False))
        for dropped in shown_dropped(store):
            print(json.dumps(dropped, ensure_ascii=False))
        return 0
    from rich.console import Console

    console = Console()
    if kind == FORMAT:
        _print_manifest(console, store, read_manifest(store))
    _print_rows(console, islice(shown_rows(store, decoder), arguments.rows))
    for dropped in islice(shown_dropped(store), arguments.rows):
        text = f"dropped {dropped['source']}/{dropped['id']}: {dropped['dropped']}"
        console.print(text, markup=False, highlight=False)
    return 0


def _verify(store: Path, kind: str) -> None:
    if kind != FORMAT:
        raise UsageError(f"--verify is for datasets; {store} is a store of format {kind!r}")
    from eagle3.dataset import Dataset

    Dataset.open(store).verify(full=True)


def _print_manifest(console: Console, store: Path, manifest: Manifest) -> None:
    from rich.table import Table

    share = manifest.supervised / manifest.tokens if manifest.tokens else 0.0
    facts = (
        ("samples", f"{manifest.samples:,} in {len(manifest.shards)} shards"),
        ("tokens", f"{manifest.tokens:,}, {share:.1%} supervised"),
        ("truncated", f"{manifest.truncated:,} at {manifest.max_tokens:,} tokens"),
        ("dropped", f"{manifest.dropped:,}"),
        ("duplicates", f"{manifest.duplicates:,}"),
        ("sources", ", ".join(f"{n} {s.samples:,}" for n, s in sorted(manifest.sources.items()))),
        ("excluded", ", ".join(manifest.excluded) or "none"),
        ("seed", str(manifest.seed)),
        ("digest", manifest.digest),
        ("config", manifest.config_digest),
        ("target", manifest.target_digest),
    )
    table = Table(title=str(store), title_justify="left", show_header=False)
    table.add_column()
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(name, value)
    console.print(table)


def _print_rows(console: Console, rows: Iterable[ShownRow]) -> None:
    for row in rows:
        cut = ", truncated" if row.truncated else ""
        head = f"{row.source}/{row.id}: {row.tokens} tokens, {row.supervised} supervised{cut}"
        console.print(head, style="bold", markup=False, highlight=False)
        text = row.supervised_text
        text = text if len(text) <= 400 else text[:400] + " …"
        # Control characters of a data file must not reach the terminal.
        shown = "".join(c if c.isprintable() or c == "\n" else "�" for c in text)
        console.print(shown, markup=False, highlight=False)
