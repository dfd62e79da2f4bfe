"""Show a dataset or a hidden-state store: what it is of, and its rows with their supervised text."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from eagle3.dataset_manifest import FORMAT, MANIFEST, Manifest, read_manifest, store_format
from eagle3.errors import UsageError
from eagle3.extract_plan import PLAN
from eagle3.merge_config import resolve_path
from eagle3.states_manifest import StatesManifest, read_states_manifest, unfinished
from eagle3.units import counted, show_gib

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
        "--verify", action="store_true", help="read and check every byte of the store first"
    )


def run(arguments: argparse.Namespace) -> int:
    if arguments.rows < 0:
        raise UsageError(f"--rows {arguments.rows}: write 0 or more")
    store = resolve_path(arguments.directory)
    if (store / PLAN).is_file() and not (store / MANIFEST).exists():
        raise unfinished(store)
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
    dataset = kind == FORMAT
    facts = _dataset(read_manifest(store)) if dataset else _states(read_states_manifest(store))
    if arguments.verify:
        facts.append(("verified", "every byte was read just now, and is right"))
    console.print(str(store), style="bold", markup=False, highlight=False, soft_wrap=True)
    for name, value in facts:
        # Neither box nor wrapping: digests are copied.
        console.print(f"{name:<11}  {value}", markup=False, highlight=False, soft_wrap=True)
    console.print()
    _print_rows(console, islice(shown_rows(store, decoder), arguments.rows))
    for dropped in islice(shown_dropped(store), arguments.rows):
        text = f"dropped {dropped['source']}/{dropped['id']}: {dropped['dropped']}"
        console.print(text, markup=False, highlight=False)
    return 0


def _verify(store: Path, kind: str) -> None:
    if kind != FORMAT:
        from eagle3.states import StateStore

        StateStore.open(store).verify(full=True)
        return
    from eagle3.dataset import Dataset

    Dataset.open(store).verify(full=True)


def _dataset(manifest: Manifest) -> list[tuple[str, str]]:
    files = manifest.hashed_files.values()
    sources = sorted(manifest.sources.items())
    return [
        ("samples", f"{manifest.samples:,} in {counted(len(manifest.shards), 'shard')}"),
        ("tokens", _tokens(manifest.tokens, manifest.supervised)),
        ("truncated", f"{manifest.truncated:,} at {manifest.max_tokens:,} tokens"),
        ("dropped", f"{manifest.dropped:,}"),
        ("duplicates", f"{manifest.duplicates:,}"),
        ("sources", ", ".join(f"{name} {source.samples:,}" for name, source in sources)),
        ("excluded", ", ".join(manifest.excluded) or "none"),
        ("seed", str(manifest.seed)),
        ("size", _size(sum(entry.bytes for entry in files))),
        ("digest", manifest.digest),
        ("config", manifest.config_digest),
        ("target", manifest.target_digest),
    ]


def _states(manifest: StatesManifest) -> list[tuple[str, str]]:
    settings = manifest.plan.settings
    layers = ",".join(map(str, settings.layer_ids))
    norm = {"post": "after the final norm"}.get(settings.norm_state, settings.norm_state)
    limit = f", the first {settings.limit:,} rows" if settings.limit is not None else ""
    return [
        ("samples", f"{manifest.samples:,} in {counted(len(manifest.shards), 'shard')}{limit}"),
        ("tokens", _tokens(manifest.tokens, manifest.supervised)),
        (
            "layers",
            f"{layers} of {settings.num_layers} (convention {settings.layer_convention}: "
            "outputs of layers, counted from 0)",
        ),
        ("last state", f"{settings.norm_state} ({norm})"),
        ("hidden size", f"{settings.hidden_size:,}"),
        ("stored as", f"{settings.storage_dtype}, computed in {settings.compute_dtype}"),
        ("size", _size(sum(entry.bytes for entry in manifest.files.values()))),
        ("digest", manifest.digest),
        ("dataset", settings.dataset_digest),
        ("target", settings.target_digest),
    ]


def _tokens(tokens: int, supervised: int) -> str:
    return f"{tokens:,}, {supervised:,} supervised ({supervised / tokens if tokens else 0:.1%})"


def _size(count_bytes: int) -> str:
    return f"{show_gib(count_bytes)} ({count_bytes:,} bytes)"


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
