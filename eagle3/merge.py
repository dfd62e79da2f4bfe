"""Merge JSONL sources into one shuffled, tokenized, masked dataset.

The same inputs, settings and target give the same bytes of the whole store but verified.json,
whatever the order of the sources on the command line, the machine or the time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from eagle3 import tokenizers
from eagle3.conversations import SourceReader
from eagle3.dataset import Dataset, ShardWriter
from eagle3.dataset_manifest import (
    DROPPED,
    MANIFEST,
    VERIFIED,
    FileEntry,
    InputEntry,
    Manifest,
    ShardEntry,
    SourceEntry,
    dataset_digest,
    read_manifest,
    record_inputs,
    stat_entry,
)
from eagle3.errors import InputError, Place, StoreError
from eagle3.files import atomic_write, canonical_json, sha256_file, write_json
from eagle3.masks import RULES_VERSION, Dropped, Masker
from eagle3.merge_config import MergeConfig, resolve_path
from eagle3.spool import Spool
from eagle3.staging import Staging, staged_directory
from eagle3.target_digest import read_target_files, target_digest

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

__all__ = ["MergeResult", "merge"]

# (stage, done, total): bytes of input while reading, rows while writing.
Progress = Callable[[str, int, int], None]
Item = TypeVar("Item")
_BATCH_ROWS = 128


@dataclass(frozen=True)
class MergeResult:
    """`outcome`: `written`, `unchanged` (it was there, whole) or `repaired` (it was damaged)."""

    outcome: str
    manifest: Manifest
    directory: Path


@dataclass
class _Counts:
    samples: int = 0
    tokens: int = 0
    supervised: int = 0
    truncated: int = 0
    dropped: dict[str, int] = field(default_factory=dict)


def merge(
    config: MergeConfig, out: Path, *, replace: bool = False, progress: Progress | None = None
) -> MergeResult:
    """Write the dataset of `config` to the directory `out`, or find it there already.

    A store of the same inputs is left untouched when it is whole, and written anew when it is
    damaged. Any other content of `out` is refused unless `replace`, and with it if it is no
    dataset. Raises InputError (a bad input; nothing is written), TargetError, StoreError.
    """
    report = progress or (lambda stage, done, total: None)
    out = out.resolve()
    try:
        inputs = _inputs(config)
        directory = resolve_path(config.target)
        target = target_digest(read_target_files(directory))
        hashed: dict[str, dict[str, Any]] = {}
        state = _existing(config, target, inputs, out, replace, hashed)
        if isinstance(state, Manifest):
            # A dataset that may only be read is as good without.
            with suppress(OSError):
                record_inputs(out, hashed)
            return MergeResult("unchanged", state, out)
        with staged_directory(out) as staging:
            tokenizer = tokenizers.load_tokenizer(directory)
            manifest = _write(config, target, inputs, tokenizer, staging, report)
            staging.commit(replace=state != "absent")
    except OSError as error:
        place = Place(Path(str(error.filename))) if error.filename else Place(out)
        raise StoreError(
            f"cannot be read or written: {error.strerror or error}", place=place
        ) from error
    return MergeResult("repaired" if state == "damaged" else "written", manifest, out)


def _inputs(config: MergeConfig) -> dict[str, Path]:
    """Name to file of each source that is read; InputError names all that are missing."""
    found = {name: resolve_path(text) for name, text in config.input_paths().items()}
    missing = [f"{name} ({path})" for name, path in found.items() if not path.is_file()]
    if missing:
        raise InputError(f"no such file: {', '.join(missing)}")
    return found


def _existing(
    config: MergeConfig,
    target: str,
    inputs: dict[str, Path],
    out: Path,
    replace: bool,
    hashed: dict[str, dict[str, Any]],
) -> Manifest | str:
    """The manifest when `out` is this merge and whole; else `absent`, `damaged` or `replaced`.

    `hashed` is filled with the entries of the inputs that were read for it.

    Raises StoreError when `out` may not be touched.
    """
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return "absent"
    if not out.is_dir():
        raise StoreError("is no directory", place=Place(out))
    hint = "write to another directory, or give --replace to put this merge in its place"
    try:
        manifest = read_manifest(out)
    except StoreError:
        if not replace:
            raise StoreError(
                "is there, and is no finished dataset", place=Place(out), hint=hint
            ) from None
        manifest = None
    if manifest is not None:
        difference = _difference(config, target, inputs, manifest, hashed)
        if difference is None:
            if _whole(out):
                return manifest
        elif not replace:
            raise StoreError(f"holds another dataset: {difference}", place=Place(out), hint=hint)
        else:
            manifest = None
    _refuse_foreign_files(out)
    return "replaced" if manifest is None else "damaged"


def _difference(
    config: MergeConfig,
    target: str,
    inputs: dict[str, Path],
    manifest: Manifest,
    hashed: dict[str, dict[str, Any]],
) -> str | None:
    """What differs first between this merge and the one in `manifest`; hashes the inputs last."""
    for name, ours, theirs in (
        ("seed", config.seed, manifest.seed),
        ("max_tokens", config.max_tokens, manifest.max_tokens),
        ("sources", sorted(inputs), sorted(manifest.sources)),
        ("excluded sources", list(config.excluded), sorted(manifest.excluded)),
        ("target", target, manifest.target_digest),
        ("config digest", config.digest, manifest.config_digest),
        ("rules of masks", RULES_VERSION, manifest.rules),
    ):
        if ours != theirs:
            return f"{name} {_shown(theirs)} there, {_shown(ours)} here"
    for name, path in inputs.items():
        was, before = manifest.sources[name].input, path.stat()
        if was.size != before.st_size or was.sha256 != sha256_file(path):
            return f"input {name} ({path.name}) has other content"
        _note(hashed, name, path, before, was.sha256)
    return None


def _note(
    hashed: dict[str, dict[str, Any]], name: str, path: Path, before: os.stat_result, sha256: str
) -> None:
    """An input that was read, for verified.json; not one that changed meanwhile."""
    entry = stat_entry(before, sha256)
    if entry == stat_entry(path.stat(), sha256):
        hashed[name] = entry


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)


def _whole(out: Path) -> bool:
    try:
        dataset = Dataset.open(out)
        try:
            dataset.verify(full=False)
        except StoreError:
            dataset.verify(full=True)
    except StoreError:
        return False
    return True


def _refuse_foreign_files(out: Path) -> None:
    """What is in `out` will be deleted: only what a merge may have written."""
    own = {DROPPED, MANIFEST, VERIFIED, tokenizers.TOKENIZER_FILE}
    for path in sorted(out.iterdir()):
        ours = path.name in own or (path.name.startswith("data-") and path.suffix == ".parquet")
        if not (ours and path.is_file()) and not path.name.endswith(".partial"):
            raise StoreError(
                f"holds {path.name}, which no merge wrote; only a dataset is replaced",
                place=Place(out),
            )


def _write(
    config: MergeConfig,
    target: str,
    inputs: dict[str, Path],
    tokenizer: PreTrainedTokenizerFast,
    staging: Staging,
    report: Progress,
) -> Manifest:
    """The whole store in the staging directory, read back and verified."""
    folder = staging.directory
    masker = Masker(tokenizer, config.max_tokens)
    with Spool(folder / "spool", config.seed) as spool:
        with atomic_write(folder / DROPPED) as stream:
            sources: dict[str, SourceEntry] = {}
            hashed: dict[str, dict[str, Any]] = {}
            for name, dropped in _read_sources(inputs, masker, spool, sources, hashed, report):
                line = {"id": dropped.id, "source": name, "reason": dropped.reason}
                stream.write(canonical_json(line) + b"\n")
        if not len(spool):
            raise InputError(f"no row is left to train on: {_reasons(sources)}; nothing is written")
        shards = _write_shards(spool, folder, report)
    with atomic_write(folder / tokenizers.TOKENIZER_FILE) as stream:
        stream.write(tokenizers.tokenizer_json(tokenizer))
    manifest = Manifest(
        digest=dataset_digest({shard.file: shard.sha256 for shard in shards}),
        config_digest=config.digest,
        seed=config.seed,
        max_tokens=config.max_tokens,
        target_digest=target,
        tokenizer_digest=tokenizers.tokenizer_digest(tokenizer),
        template_digest=tokenizers.template_digest(tokenizer),
        family=masker.family,
        rules=RULES_VERSION,
        sources=sources,
        excluded=config.excluded,
        shards=tuple(shards),
        files={name: _entry(folder / name) for name in (DROPPED, tokenizers.TOKENIZER_FILE)},
    )
    write_json(folder / MANIFEST, manifest.to_json())
    written = Dataset.open(folder)
    written.verify(full=True)
    record_inputs(folder, hashed)
    return written.manifest


def _read_sources(
    inputs: dict[str, Path],
    masker: Masker,
    spool: Spool,
    sources: dict[str, SourceEntry],
    hashed: dict[str, dict[str, Any]],
    report: Progress,
) -> Iterator[tuple[str, Dropped]]:
    """Reads every input into `spool`, `sources` and `hashed`; yields what is dropped, in input order."""
    vocabulary = tokenizers.vocabulary_size(masker.tokenizer)
    total = sum(path.stat().st_size for path in inputs.values())
    before = 0
    for name, path in inputs.items():
        status = path.stat()
        reader = SourceReader(path, vocabulary)
        counts = _Counts()
        for batch in _batches(iter(reader), _BATCH_ROWS):
            for row in masker.mask_rows(batch):
                if isinstance(row, Dropped):
                    counts.dropped[row.reason] = counts.dropped.get(row.reason, 0) + 1
                    yield name, row
                    continue
                spool.add(name, row)
                counts.samples += 1
                counts.tokens += len(row.input_ids)
                counts.supervised += int(row.loss_mask.sum())
                counts.truncated += row.truncated
            report("reading", before + reader.size, total)
        before += reader.size
        _note(hashed, name, path, status, reader.sha256)
        sources[name] = SourceEntry(
            input=InputEntry(path.name, reader.size, reader.sha256),
            duplicates=reader.duplicates,
            **vars(counts),
        )


def _write_shards(spool: Spool, folder: Path, report: Progress) -> list[ShardEntry]:
    writer = ShardWriter(folder)
    for done, row in enumerate(spool.rows(), start=1):
        writer.add(row)
        report("writing", done, len(spool))
    writer.close()
    return writer.shards


def _batches(items: Iterator[Item], size: int) -> Iterator[Sequence[Item]]:
    while batch := list(islice(items, size)):
        yield batch


def _entry(path: Path) -> FileEntry:
    return FileEntry(path.stat().st_size, sha256_file(path))


def _reasons(sources: dict[str, SourceEntry]) -> str:
    total: dict[str, int] = {}
    for source in sources.values():
        for reason, count in source.dropped.items():
            total[reason] = total.get(reason, 0) + count
    return (
        ", ".join(f"{count} {reason}" for reason, count in sorted(total.items())) or "0 rows read"
    )
