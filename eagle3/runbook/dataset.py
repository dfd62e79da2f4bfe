"""`dataset`: a merged dataset, whole, of the config that is named and of its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from eagle3.dataset_manifest import MANIFEST, VERIFIED, Manifest, parse_manifest
from eagle3.errors import EagleError, Place
from eagle3.runbook.config import config_of, reason
from eagle3.runbook.dataset_inputs import input_paths
from eagle3.runbook.look import GIVE, LIST, Part, Seen, look
from eagle3.runbook.merged_inputs import judge_inputs, look_at_inputs
from eagle3.runbook.wholeness import fault, flawed_bytes
from runbooks.engine.model.fact import Argument, Fact, Field
from runbooks.engine.model.host import Context
from runbooks.engine.model.probe import Asking, Unknown
from runbooks.engine.model.values import ABSENT, Choice, HostPath, Integer, Size, Text

__all__ = ["CHECKSUMS", "DatasetFact", "manifest_of"]

CHECKSUMS = Argument(
    Choice(("recorded", "full")),
    "`recorded`: size, mtime and inode of each file are as when it was last verified. "
    "`full`: every byte is read.",
    default="recorded",
)


def manifest_of(seen: Seen) -> Manifest:
    """The manifest of a dataset that was looked at. Raises Unknown when it is damaged."""
    try:
        return parse_manifest(seen.json(MANIFEST), Place(Path(seen.path) / MANIFEST))
    except EagleError as error:
        raise Unknown(reason(error)) from None


class DatasetFact(Fact):
    """`dataset: {path: data:merged, config: merge/100k.yaml, samples: 37_312}`."""

    name = "dataset"
    about = (
        "A merged dataset: whole, of this config, and of its input files as they are now. "
        "An input that is gone is no fault."
    )
    arguments: ClassVar[Mapping[str, Argument]] = {
        "path": Argument(HostPath(), "The dataset's directory.", required=True),
        "config": Argument(
            Text(),
            "The merge config: a file of the project, or one that the package brings "
            "(eagle3/configs). A dataset of other settings is not this one.",
            required=True,
        ),
        "checksums": CHECKSUMS,
    }
    fields: ClassVar[Mapping[str, Field]] = {
        "state": Field(Text(), "`complete`, `absent`, or what is wrong with it."),
        "samples": Field(Integer(0), "The samples, exactly."),
        "tokens": Field(Integer(0), "The tokens, exactly."),
        "supervised": Field(Integer(0), "The supervised tokens (loss mask 1)."),
        "bytes": Field(Size(), "The bytes of its files."),
        "digest": Field(Text("[0-9a-f]{64}"), "Its digest, over the digests of its shards."),
    }
    value = "state"
    defaults: ClassVar[Mapping[str, Any]] = {"state": "complete"}

    def for_plan(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        """A plan does not read every byte."""
        return {**args, "checksums": "recorded"}

    def read(self, args: Mapping[str, Any], context: Context) -> Asking:
        """The manifest's counts, and whether manifest, config, inputs and files agree."""
        config = config_of(args["config"], context)
        paths = input_paths(args["config"], context)
        label = f"dataset {args['path']}"
        body = GIVE.format(MANIFEST) + GIVE.format(VERIFIED) + LIST + look_at_inputs(paths, context)
        seen = (yield from look(label, [Part("dataset", args["path"], body)], context))["dataset"]
        if MANIFEST not in seen.files:
            return dict.fromkeys(self.fields, ABSENT) | {"state": "absent"}
        manifest = manifest_of(seen)
        files = manifest.hashed_files
        full = args.get("checksums") == "full"
        problem: str | None
        if manifest.config_digest != config.digest:
            problem = f"merged by another config than {args['config']}"
        elif isinstance(found := judge_inputs(manifest, paths, seen, full, context), str):
            problem = found
        elif full:
            problem = yield from flawed_bytes(
                f"{label} checksums", args["path"], seen, files, context, found
            )
        else:
            problem = fault(seen, files)
        return {
            "state": problem or "complete",
            "samples": manifest.samples,
            "tokens": manifest.tokens,
            "supervised": manifest.supervised,
            "bytes": sum(entry.bytes for entry in files.values()),
            "digest": manifest.digest,
        }
