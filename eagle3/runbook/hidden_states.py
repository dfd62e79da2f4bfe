"""`hidden_states`: a store of hidden states, complete and of the dataset, target and layers named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from eagle3.aux_layers import CONVENTION, default_layer_ids
from eagle3.dataset_manifest import MANIFEST, VERIFIED, Manifest
from eagle3.errors import TargetError
from eagle3.extract_plan import PLAN
from eagle3.runbook.dataset import CHECKSUMS, manifest_of
from eagle3.runbook.look import GIVE, Part, Seen, look
from eagle3.runbook.states_look import (
    SIDECARS,
    LayersSeen,
    StatesSeen,
    finished_shards,
    layers_of,
    plan_of,
    states_of,
)
from eagle3.runbook.target_look import DIGEST, digest_of
from eagle3.runbook.wholeness import fault, flawed_bytes
from runbooks.engine.model.fact import Argument, Fact, Field
from runbooks.engine.model.host import Context
from runbooks.engine.model.probe import Asking, Unknown
from runbooks.engine.model.values import ABSENT, Boolean, HostPath, Integer, Size, Text

__all__ = ["HiddenStates"]

_STORE = GIVE.format(MANIFEST) + GIVE.format(VERIFIED) + SIDECARS


class HiddenStates(Fact):
    """`hidden_states: {path: data:hidden, of: data:merged, target: model:x, complete: true}`."""

    name = "hidden_states"
    about = "A store of hidden states: complete, of this dataset, this target and these layers."
    arguments: ClassVar[Mapping[str, Argument]] = {
        "path": Argument(HostPath(), "The store's directory.", required=True),
        "of": Argument(HostPath(), "The dataset's directory, as it is now.", required=True),
        "target": Argument(HostPath(), "The target's directory, as it is now.", required=True),
        "layers": Argument(
            Text("[0-9]+(,[0-9]+)*", example="1,14,26"),
            "The aux layers by their outputs, counted from 0, as in `eagle3 extract --layers`. "
            "Without it: the target's own three, 1, N//2-1, N-4.",
        ),
        "checksums": CHECKSUMS,
    }
    fields: ClassVar[Mapping[str, Field]] = {
        "complete": Field(Boolean(), "Whether `state` is `complete`."),
        "state": Field(
            Text(), "`complete`, `absent`, `partial: 120 of 240 samples`, or what is wrong."
        ),
        "samples": Field(Integer(0), "The samples, exactly; of an unfinished store those done."),
        "tokens": Field(Integer(0), "The tokens, exactly; of an unfinished store those done."),
        "supervised": Field(Integer(0), "The supervised tokens (loss mask 1)."),
        "bytes": Field(Size(), "The bytes of its files."),
        "layer_ids": Field(Text(), "The aux layers that are stored: `1,14,26`."),
        "dtype": Field(Text(), "The type that states are stored in: `bfloat16`."),
        "digest": Field(Text("[0-9a-f]{64}"), "Its digest, over the digests of its shards."),
    }
    value = "state"
    defaults: ClassVar[Mapping[str, Any]] = {"state": "complete"}

    def for_plan(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        """A plan does not read every byte."""
        return {**args, "checksums": "recorded"}

    def read(self, args: Mapping[str, Any], context: Context) -> Asking:
        """Store, dataset and target in one look; every byte in a second one where asked for."""
        label = f"hidden_states {args['path']}"
        parts = [
            Part("store", args["path"], _STORE),
            Part("dataset", args["of"], GIVE.format(MANIFEST)),
            Part("target", args["target"], DIGEST),
        ]
        seen = yield from look(label, parts, context)
        store: Seen = seen["store"]
        if MANIFEST not in store.files:
            return self._unfinished(store, seen["dataset"], args.get("layers"))
        states = states_of(store)
        problem = _other_inputs(states, seen["dataset"], seen["target"])
        if problem is None and (layers := _other_layers(states.layers, args.get("layers"))):
            problem = f"of {layers}"
        if problem is None and args.get("checksums") == "full":
            problem = yield from flawed_bytes(
                f"{label} checksums", args["path"], store, states.files, context
            )
        elif problem is None:
            problem = fault(store, states.files)
        return {
            "complete": problem is None,
            "state": problem or "complete",
            "samples": states.samples,
            "tokens": states.tokens,
            "supervised": states.supervised,
            "bytes": sum(entry.bytes for entry in states.files.values()),
            "layer_ids": states.layers.ids,
            "dtype": states.layers.storage_dtype,
            "digest": states.digest,
        }

    def _unfinished(self, store: Seen, dataset: Seen, wanted: str | None) -> dict[str, Any]:
        nothing = dict.fromkeys(self.fields, ABSENT) | {"complete": False}
        if PLAN not in store.files:
            return nothing | {"state": "absent"}
        plan = plan_of(store)
        layers = layers_of(plan["settings"])
        finished = finished_shards(store, plan)
        rows = sum(shard["rows"] for shard in finished)
        state = f"partial: {rows:,} of {plan['settings']['samples']:,} samples"
        if MANIFEST not in dataset.files:
            state += "; dataset absent"
        elif plan["settings"]["dataset_digest"] != manifest_of(dataset).digest:
            state += " of another dataset"
        elif found := _other_layers(layers, wanted):
            state += f" of {found}"
        tokens = sum(shard["tokens"] for shard in finished)
        return nothing | {
            "state": state,
            "samples": rows,
            "tokens": tokens,
            "layer_ids": layers.ids,
            "dtype": layers.storage_dtype,
        }


def _other_layers(found: LayersSeen, wanted: str | None) -> str | None:
    """`other layers (0,1,2; want 1,14,26)`; None when they are those wanted."""
    if wanted is None:
        try:
            wanted = ",".join(map(str, default_layer_ids(found.num_layers)))
        except TargetError as error:
            raise Unknown(f"{error.message}; name the ones wanted: layers: {found.ids!r}") from None
    # Spelt alike: 01 is 1.
    wanted = ",".join(str(int(word)) for word in wanted.split(","))
    if found.ids != wanted:
        return f"other layers ({found.ids}; want {wanted})"
    if found.convention != CONVENTION:
        return f"other layers (ids of convention {found.convention!r}; want {CONVENTION!r})"
    return None


def _other_inputs(states: StatesSeen, dataset: Seen, target: Seen) -> str | None:
    """Which input the store was not made of, as the inputs are now."""
    if MANIFEST not in dataset.files:
        return "dataset absent"
    manifest: Manifest = manifest_of(dataset)
    if states.dataset_digest != manifest.digest:
        return (
            f"of another dataset ({states.dataset_digest[:12]}; "
            f"{dataset.path} is {manifest.digest[:12]} now)"
        )
    if not target.there:
        return "target absent"
    digest = digest_of(target)
    if digest is None:
        return "target without weights"
    if states.target_digest != digest:
        return (
            f"of another target ({states.target_digest[:12]}; {target.path} is {digest[:12]} now)"
        )
    if (states.samples, states.tokens) != (manifest.samples, manifest.tokens):
        return (
            f"{states.samples:,} of {manifest.samples:,} samples, "
            f"{states.tokens:,} of {manifest.tokens:,} tokens"
        )
    return None
