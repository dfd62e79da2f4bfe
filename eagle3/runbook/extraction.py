"""The estimator `extraction`: what an extraction still has to write, and how long it takes."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from eagle3.dataset_manifest import MANIFEST
from eagle3.extract_plan import PLAN
from eagle3.forecast import SHARD_TOKENS, remaining_bytes
from eagle3.runbook.dataset import manifest_of
from eagle3.runbook.look import GIVE, Part, look
from eagle3.runbook.states_look import SIDECARS, finished_shards, plan_of, rate_of
from eagle3.runbook.target_look import WIDTH, width_of
from runbooks.engine.binding import bind_check
from runbooks.engine.model.fact import Argument
from runbooks.engine.model.host import Context
from runbooks.engine.model.probe import Output, Shell, Unknown
from runbooks.engine.model.runbook import Estimate, Step
from runbooks.engine.model.values import HostPath, Number, RootName
from runbooks.engine.registry import Estimator

__all__ = ["EXTRACTION", "RATE"]

# Tokens a second, measured in production: 23.1M tokens in 19 h.
RATE = 338
_AUX_LAYERS = 3


def _store(args: Mapping[str, Any], step: Step, context: Context) -> str | None:
    """The store that the step's `ensures` want of this dataset."""
    host = context.host
    dataset = PurePosixPath(host.resolve(args["dataset"]))
    for check in step.ensures:
        if check.fact.name == "hidden_states" and check.host in (None, host.name):
            wanted = bind_check(check, host).args
            if PurePosixPath(host.resolve(wanted["of"])) == dataset:
                return str(wanted["path"])
    return None


def _compute(
    args: Mapping[str, Any], step: Step, context: Context
) -> Generator[Shell, Output, Estimate]:
    """What remains. A store of another plan or dataset counts for nothing."""
    given = args.get("rate")
    if given is not None and not given > 0:
        raise Unknown(f"the rate is {given:g} tokens/s; write one above 0")
    parts = [
        Part("dataset", args["dataset"], GIVE.format(MANIFEST)),
        Part("target", args["target"], WIDTH),
    ]
    if (path := _store(args, step, context)) is not None:
        parts.append(Part("store", path, SIDECARS))
    seen = yield from look(f"extraction {args['dataset']}", parts, context)
    if MANIFEST not in seen["dataset"].files:
        raise Unknown("dataset absent")
    manifest = manifest_of(seen["dataset"])
    finished: Sequence[Mapping[str, int]] = ()
    aux_layers, shard_tokens, rate = _AUX_LAYERS, SHARD_TOKENS, given
    if path is not None and PLAN in seen["store"].files:
        plan = plan_of(seen["store"])
        if plan["settings"]["dataset_digest"] == manifest.digest:
            finished = finished_shards(seen["store"], plan)
            aux_layers = len(plan["settings"]["layer_ids"])
            shard_tokens = plan["settings"]["shard_tokens"]
            rate = given or rate_of(seen["store"])
    try:
        written = remaining_bytes(
            seen["dataset"].json(MANIFEST),
            finished,
            width_of(seen["target"]),
            aux_layers,
            shard_tokens,
        )
    except ValueError as error:
        raise Unknown(str(error)) from None
    tokens = manifest.tokens - sum(shard["tokens"] for shard in finished)
    return Estimate(time=math.ceil(tokens / (rate or RATE)), writes={args["root"]: written})


EXTRACTION = Estimator(
    name="extraction",
    about=(
        "Bytes and time that remain of an extraction: from the dataset's tokens, the width of the "
        "target, and the finished shards of the store in the step's `hidden_states` check."
    ),
    arguments={
        "dataset": Argument(HostPath(), "The dataset's directory.", required=True),
        "target": Argument(HostPath(), "The target's directory.", required=True),
        "root": Argument(RootName(), "The root that is written to.", required=True),
        "rate": Argument(
            Number(),
            f"Tokens a second. Without it: the rate in the store's progress.json, else {RATE}.",
        ),
    },
    compute=_compute,
)
