"""Extract the target's hidden states of a dataset, resumably and reproducibly.

The same dataset, target and settings give the same bytes of the whole store (verified.json and
progress.json aside), however often the extraction was killed and begun again: see
`extract_plan` for what decides the bits and `states_manifest` for what is in the directory.
"""

from __future__ import annotations

import errno
import itertools
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers

from eagle3 import __version__
from eagle3.aux_layers import CONVENTION, check_layer_ids, default_layer_ids
from eagle3.dataset import Dataset, Row
from eagle3.errors import Place, StoreError, UsageError
from eagle3.extract_plan import (
    PLAN,
    Plan,
    Settings,
    batch_ranges,
    plan_shards,
    read_plan,
)
from eagle3.extract_progress import ExtractProgress, ProgressState
from eagle3.extract_store import Kept, finish_store, prepare_store
from eagle3.states_manifest import (
    LOCK,
    PROGRESS,
    Sample,
    ShardRecord,
    StatesManifest,
    verified_entry,
)
from eagle3.states_writer import ShardFile
from eagle3.store_lock import store_lock
from eagle3.target import Target
from eagle3.target_forward import TargetForward
from eagle3.tokenizers import load_tokenizer, template_digest, tokenizer_digest

__all__ = ["BACKENDS", "COMPUTE_DTYPES", "ExtractRequest", "ExtractResult", "extract"]

# Raised when this program changes in a way that changes bits of a store.
EXTRACTOR = 1
BACKENDS = ("transformers",)
COMPUTE_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class ExtractRequest:
    """What to extract. None means: the default of `layer_ids` for the target; all rows; the
    `threads` of the plan that is there, or else torch's own number."""

    target: Path
    data: Path
    out: Path
    backend: str
    layer_ids: tuple[int, ...] | None
    batch_size: int
    shard_tokens: int
    compute_dtype: str
    limit: int | None
    threads: int | None
    trust_recorded: bool


@dataclass(frozen=True)
class ExtractResult:
    """`outcome`: `written`, `resumed` or `unchanged` (complete before). Counts are of this run."""

    outcome: str
    manifest: StatesManifest
    directory: Path
    kept_shards: int
    tokens: int
    seconds: float


def extract(
    request: ExtractRequest, report: Callable[[ProgressState], None] | None = None
) -> ExtractResult:
    """Write the store of `request`, continue it, or find it complete.

    Shards that are whole are kept: size and sha256 as in their sidecars, every byte read (with
    `trust_recorded`, only where size, mtime or inode changed since they were last read). Raises
    UsageError, TargetError, and StoreError: another plan's store, a second extractor, a damaged
    dataset or one made for another target, a disk without space, NaN or infinite states. After
    any error but the first of these the store can be continued.
    """
    out = request.out.resolve()
    try:
        _check_request(request)
        target = Target.open(request.target)
        dataset = _open_dataset(request, target)
        plan = _plan(request, target, dataset, out)
        out.mkdir(parents=True, exist_ok=True)
        with store_lock(out / LOCK):
            kept = prepare_store(out, plan, request.data, trust_recorded=request.trust_recorded)
            return _run(request, target, dataset, plan, out, kept, report)
    except OSError as error:
        raise _disk_error(error, out) from error


def _check_request(request: ExtractRequest) -> None:
    if request.backend not in BACKENDS:
        raise UsageError(f"backend {request.backend!r} is unknown; known: {', '.join(BACKENDS)}")
    if request.compute_dtype not in COMPUTE_DTYPES:
        raise UsageError(
            f"dtype {request.compute_dtype!r} is unknown; known: {', '.join(COMPUTE_DTYPES)}"
        )
    for name, value in (
        ("batch size", request.batch_size),
        ("shard tokens", request.shard_tokens),
        ("limit", request.limit),
        ("threads", request.threads),
    ):
        if value is not None and value < 1:
            raise UsageError(f"{name} {value}: write 1 or more")


def _open_dataset(request: ExtractRequest, target: Target) -> Dataset:
    """The dataset, whole and made for this very target. Raises StoreError."""
    dataset = Dataset.open(request.data)
    try:
        dataset.verify(full=False)
    except StoreError:
        dataset.verify(full=True)
    tokenizer = load_tokenizer(target.directory)
    manifest = dataset.manifest
    pairs = (
        ("target", manifest.target_digest, target.digest),
        ("tokenizer", manifest.tokenizer_digest, tokenizer_digest(tokenizer)),
        ("chat template", manifest.template_digest, template_digest(tokenizer)),
    )
    if other := [
        f"{name} {theirs} there, {ours} in {target.directory}"
        for name, theirs, ours in pairs
        if theirs != ours
    ]:
        raise StoreError(
            f"the dataset was made for another target: {'; '.join(other)}",
            place=Place(request.data),
            hint="merge it again for this target, or name the target it was made for",
        )
    return dataset


def _plan(request: ExtractRequest, target: Target, dataset: Dataset, out: Path) -> Plan:
    ids = request.layer_ids or default_layer_ids(target.num_layers)
    lengths = _lengths(dataset, target, request.limit)
    threads = request.threads
    if threads is None and (out / PLAN).exists():
        # A host with another number of free cores may go on where this one stopped.
        threads = read_plan(out).settings.threads
    settings = Settings(
        extractor=EXTRACTOR,
        backend=request.backend,
        device="cpu",
        cpu=torch.backends.cpu.get_cpu_capability(),
        torch=torch.__version__,
        transformers=transformers.__version__,
        threads=threads or torch.get_num_threads(),
        dataset_digest=dataset.manifest.digest,
        target_digest=target.digest,
        tokenizer_digest=dataset.manifest.tokenizer_digest,
        template_digest=dataset.manifest.template_digest,
        hidden_size=target.hidden_size,
        num_layers=target.num_layers,
        layer_ids=check_layer_ids(ids, target.num_layers),
        layer_convention=CONVENTION,
        norm_state="post",
        compute_dtype=request.compute_dtype,
        storage_dtype="bfloat16",
        batch_size=request.batch_size,
        shard_tokens=request.shard_tokens,
        limit=request.limit,
        samples=len(lengths),
        tokens=sum(lengths),
    )
    return Plan(settings, plan_shards(lengths, request.shard_tokens), __version__)


def _lengths(dataset: Dataset, target: Target, limit: int | None) -> list[int]:
    """Tokens of each row to extract; StoreError at a row that the target cannot take."""
    lengths: list[int] = []
    for row in itertools.islice(dataset.rows(), limit):
        place = Place(dataset.directory, item=f"sample {row.source}/{row.id}")
        count = len(row.input_ids)
        if count != len(row.loss_mask) or not count:
            raise StoreError(
                f"has {count} tokens and a loss mask of {len(row.loss_mask)}", place=place
            )
        if target.max_positions is not None and count > target.max_positions:
            raise StoreError(
                f"has {count:,} tokens; the target takes {target.max_positions:,}",
                place=place,
                hint="merge with a smaller --max-tokens",
            )
        low, high = int(row.input_ids.min()), int(row.input_ids.max())
        if low < 0 or high >= target.vocab_size:
            raise StoreError(
                f"has token id {low if low < 0 else high}; the target's are 0 to "
                f"{target.vocab_size - 1:,}",
                place=place,
            )
        lengths.append(count)
    if not lengths:
        raise StoreError("holds no row", place=Place(dataset.directory))
    return lengths


def _run(
    request: ExtractRequest,
    target: Target,
    dataset: Dataset,
    plan: Plan,
    out: Path,
    kept: Kept,
    report: Callable[[ProgressState], None] | None,
) -> ExtractResult:
    if kept.complete is not None:
        return ExtractResult("unchanged", kept.complete, out, len(plan.shards), 0, 0.0)
    settings = plan.settings
    progress = ExtractProgress(
        out / PROGRESS,
        tokens=sum(record.tokens for record in kept.records.values()),
        samples=sum(record.rows for record in kept.records.values()),
        total_tokens=settings.tokens,
        total_samples=settings.samples,
        report=report,
    )
    records = dict(kept.records)
    if len(records) < len(plan.shards):
        progress.write("running")
        with _threads(settings.threads):
            model = target.load_model(COMPUTE_DTYPES[settings.compute_dtype])
            forward = TargetForward(
                model, settings.layer_ids, settings.hidden_size, settings.num_layers
            )
            progress.restart_clock()
            for index, record in _shards(dataset, plan, out, records, forward, progress):
                records[index] = record
                kept.verified[record.file] = verified_entry(out / record.file, record.sha256)
                kept.record(out)
    seconds = progress.seconds
    manifest = finish_store(out, plan, [records[shard.index] for shard in plan.shards], kept)
    progress.write("complete")
    return ExtractResult(
        "resumed" if kept.began_before else "written",
        manifest,
        out,
        len(kept.records),
        settings.tokens - sum(record.tokens for record in kept.records.values()),
        seconds,
    )


def _shards(
    dataset: Dataset,
    plan: Plan,
    out: Path,
    there: dict[int, ShardRecord],
    forward: TargetForward,
    progress: ExtractProgress,
) -> Iterator[tuple[int, ShardRecord]]:
    """Extract every shard that is not `there`, in order."""
    settings = plan.settings
    rows = dataset.rows()
    for shard in plan.shards:
        mine = list(itertools.islice(rows, shard.rows))
        if shard.index in there:
            continue
        if (len(mine), sum(len(row.input_ids) for row in mine)) != (shard.rows, shard.tokens):
            raise StoreError("changed during the extraction", place=Place(dataset.directory))
        samples = [
            Sample(row.id, row.source, len(row.input_ids), int(row.loss_mask.sum()), row.truncated)
            for row in mine
        ]
        file = ShardFile(
            out, shard, plan.digest, samples, settings.hidden_size, len(settings.layer_ids)
        )
        _check_space(out, file.size)
        with file:
            for batch in batch_ranges(shard, settings.batch_size):
                part: list[Row] = mine[batch.start - shard.first : batch.stop - shard.first]
                states = forward([row.input_ids for row in part])
                for row, (aux, last) in zip(part, states, strict=True):
                    file.add(row.input_ids, row.loss_mask, aux, last)
                progress.add(sum(len(row.input_ids) for row in part), len(part))
            yield shard.index, file.finish()


def _check_space(out: Path, size: int) -> None:
    free = shutil.disk_usage(out).free
    if free < size:
        raise StoreError(
            f"the disk is full: the next shard needs {size:,} bytes, {free:,} are free",
            place=Place(out),
            hint="free some space and run the same command again; finished shards are kept",
        )


def _disk_error(error: OSError, out: Path) -> StoreError:
    place = Place(Path(str(error.filename))) if error.filename else Place(out)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        try:
            free = f"{shutil.disk_usage(out).free:,} bytes are free"
        except OSError:
            free = "free space is unknown"
        return StoreError(
            f"the disk is full ({error.strerror}); {free}",
            place=Place(out),
            hint="free some space and run the same command again; finished shards are kept",
        )
    return StoreError(f"cannot be written or read: {error.strerror or error}", place=place)


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Torch with as many threads as the plan says, and as many as before afterwards."""
    before = torch.get_num_threads()
    with ExitStack() as stack:
        if before != count:
            torch.set_num_threads(count)
            stack.callback(torch.set_num_threads, before)
        yield
