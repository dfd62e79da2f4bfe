"""Extract the target's hidden states of a dataset into a hidden-state store.

Run the same command again to continue an interrupted extraction: finished shards are kept, the
unfinished one is redone, and the finished store is the same bytes. A complete store is left as it
is. A store of other settings is refused.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from eagle3.aux_layers import parse_layer_ids
from eagle3.forecast import SHARD_TOKENS
from eagle3.merge_config import resolve_path
from eagle3.units import count_up_to, counted, show_duration, show_gib

if TYPE_CHECKING:
    from eagle3.extract import ExtractResult
    from eagle3.extract_progress import ProgressState

NAME = "extract"
ABOUT = "extract the target's hidden states of a dataset"

BATCH_SIZE = 1
_LINE_SECONDS = 10.0


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", required=True, metavar="DIR", help="the target model")
    parser.add_argument("--data", required=True, metavar="DIR", help="the merged dataset")
    parser.add_argument("--out", required=True, metavar="DIR", help="the hidden-state store")
    parser.add_argument(
        "--backend",
        default="transformers",
        choices=("transformers",),
        help="what runs the target (default transformers, on the CPU)",
    )
    parser.add_argument(
        "--layers",
        metavar="I,J,K",
        help="aux layers by their outputs, counted from 0 (default 1, N//2-1, N-4)",
    )
    parser.add_argument(
        "--batch-size",
        type=count_up_to(65_536),
        default=BATCH_SIZE,
        metavar="N",
        help=f"rows of one forward (default {BATCH_SIZE}: exact, and the fastest on a CPU)",
    )
    parser.add_argument(
        "--shard-tokens",
        type=count_up_to(10**9),
        default=SHARD_TOKENS,
        metavar="N",
        help=f"tokens of a shard, which a crash costs at most (default {SHARD_TOKENS:,})",
    )
    parser.add_argument(
        "--dtype",
        default="float32",
        choices=("float32", "bfloat16"),
        help="compute in (default float32); stored is bfloat16",
    )
    parser.add_argument(
        "--limit", type=count_up_to(10**12), metavar="N", help="only the first N rows"
    )
    parser.add_argument(
        "--threads",
        type=count_up_to(1024),
        metavar="N",
        help="threads of torch, which change last bits (default: of the store, else torch's)",
    )
    parser.add_argument(
        "--checksums",
        default="full",
        choices=("full", "recorded"),
        help="of finished shards: read every byte (default), or compare size, mtime and inode",
    )
    parser.add_argument("--json", action="store_true", help="the result as one line of JSON")


def run(arguments: argparse.Namespace) -> int:
    layer_ids = parse_layer_ids(arguments.layers) if arguments.layers is not None else None
    target, data, out = map(resolve_path, (arguments.target, arguments.data, arguments.out))
    # Threads that spin while they wait cost torch four fifths of its speed on a busy machine
    # (60 instead of 300 tokens/s, measured on two cores); read when torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    # The bar that transformers shows for a GGUF would run through ours; read by tqdm likewise.
    os.environ.setdefault("TQDM_DISABLE", "1")
    with _terminable():
        # Takes seconds: after the arguments are judged, and so that SIGTERM is answered.
        from eagle3.extract import ExtractRequest, extract

        request = ExtractRequest(
            target=target,
            data=data,
            out=out,
            backend=arguments.backend,
            layer_ids=layer_ids,
            batch_size=arguments.batch_size,
            shard_tokens=arguments.shard_tokens,
            compute_dtype=arguments.dtype,
            limit=arguments.limit,
            threads=arguments.threads,
            trust_recorded=arguments.checksums == "recorded",
        )
        with _progress() as progress:
            result = extract(request, progress)
    _print_summary(result)
    if arguments.json:
        print(json.dumps(summary(result)))
    return 0


def summary(result: ExtractResult) -> dict[str, object]:
    """What `--json` prints. `tokens_extracted`, `seconds` and `rate` are of this run alone."""
    return {
        "outcome": result.outcome,
        "out": str(result.directory),
        "digest": result.manifest.digest,
        "plan_digest": result.manifest.plan.digest,
        "totals": result.manifest.to_json()["totals"],
        "layer_ids": list(result.manifest.plan.settings.layer_ids),
        "kept_shards": result.kept_shards,
        "tokens_extracted": result.tokens,
        "seconds": round(result.seconds, 3),
        "rate": round(result.tokens / result.seconds, 1) if result.seconds else None,
    }


class _Terminated(SystemExit):
    """Raised where SIGTERM found the program: inside a forward too, which may take a minute."""

    def __init__(self) -> None:
        super().__init__(128 + signal.SIGTERM)


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends the command with 143 at once; the store is what a crash leaves, and cleaner."""

    def stop(number: int, frame: Any) -> None:
        raise _Terminated

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except _Terminated:
        print("eagle3 extract: stopped; the same command continues", file=sys.stderr, flush=True)
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def _text(state: ProgressState) -> str:
    rate = f"{state.rate:,.0f} tokens/s" if state.rate is not None else "loading the target"
    left = f", {show_duration(state.eta_s)} left" if state.eta_s is not None else ""
    return (
        f"{state.samples:,}/{state.total_samples:,} samples, "
        f"{state.tokens:,}/{state.total_tokens:,} tokens, {rate}{left}"
    )


@contextmanager
def _progress() -> Iterator[Callable[[ProgressState], None]]:
    """A bar on a terminal; else a line on standard error, at most every ten seconds."""
    if not sys.stderr.isatty():
        yield _lines()
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading the dataset", total=None)

        def report(state: ProgressState) -> None:
            bar.update(
                task, description=_text(state), completed=state.tokens, total=state.total_tokens
            )

        yield report


def _lines() -> Callable[[ProgressState], None]:
    last = float("-inf")

    def report(state: ProgressState) -> None:
        nonlocal last
        if state.state == "running" and time.monotonic() - last >= _LINE_SECONDS:
            last = time.monotonic()
            print(_text(state), file=sys.stderr, flush=True)

    return report


def _kept(shards: int) -> str:
    return f"{counted(shards, 'finished shard')} {'was' if shards == 1 else 'were'}"


def _print_summary(result: ExtractResult) -> None:
    manifest = result.manifest
    said = {
        "written": "written and verified",
        "resumed": f"continued and verified; {_kept(result.kept_shards)} kept",
        "unchanged": "nothing to do: this store is complete already, and is whole",
    }[result.outcome]
    settings = manifest.plan.settings
    lines = [
        f"{result.directory}: {said}",
        f"samples  {manifest.samples:,} in {counted(len(manifest.shards), 'shard')}",
        f"tokens   {manifest.tokens:,}, {manifest.supervised:,} supervised",
        f"size     {show_gib(manifest.bytes)}",
        f"layers   {','.join(map(str, settings.layer_ids))} of {settings.num_layers} "
        f"(outputs, from 0), and the last after the norm",
    ]
    if result.seconds and result.tokens:
        rate = result.tokens / result.seconds
        lines.append(f"rate     {rate:,.0f} tokens/s, {show_duration(result.seconds)}")
    print("\n".join(lines), file=sys.stderr)
