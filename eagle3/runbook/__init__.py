"""What eagle3 registers with the engine: facts about its stores, and the extraction's estimate.

The only package of eagle3 that imports the engine. A host needs no eagle3 for these: plain shell
reads JSON, sizes and checksums there, and the controller judges them, which has neither torch,
transformers nor pyarrow.
"""

from __future__ import annotations

from eagle3.runbook.dataset import DatasetFact
from eagle3.runbook.dataset_inputs import DatasetInputs
from eagle3.runbook.extraction import EXTRACTION
from eagle3.runbook.hidden_states import HiddenStates
from runbooks.engine.registry import Registry

__all__ = ["register"]


def register(registry: Registry) -> None:
    """The entry point `eagle3_runbooks.plugins: eagle3`."""
    for fact in (DatasetFact(), DatasetInputs(), HiddenStates()):
        registry.add_fact(fact)
    registry.add_estimator(EXTRACTION)
