"""The rows of a store, as people and tests read them: counts and the supervised text.

Works on a dataset and on a hidden-state store, with no other argument: both hold the target's
`tokenizer.json`, and dropped rows are listed in the dataset's `dropped.jsonl`. Where a
hidden-state store brings no tokenizer, `tokenizer` names a directory or file that has one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from eagle3.dataset import Dataset
from eagle3.dataset_manifest import DROPPED, FORMAT, store_format
from eagle3.errors import Place, StoreError
from eagle3.json_lines import JsonLines
from eagle3.tokenizers import TOKENIZER_FILE

__all__ = ["ShownRow", "load_decoder", "shown_dropped", "shown_rows"]


@dataclass(frozen=True, slots=True)
class ShownRow:
    """One sample: numbers of tokens and of supervised tokens, and these decoded, end tokens too.

    `supervised_text` joins all assistant turns without anything between them.
    """

    id: str
    source: str
    tokens: int
    supervised: int
    supervised_text: str
    truncated: bool


class Decoder(Protocol):
    """`tokenizers.Tokenizer`."""

    def decode(self, ids: list[int], *, skip_special_tokens: bool) -> str: ...


def load_decoder(store: Path, tokenizer: Path | None = None) -> Decoder:
    """The store's own tokenizer, or the one at `tokenizer` (a directory or a tokenizer.json).

    Raises StoreError when it is missing or damaged.
    """
    from tokenizers import Tokenizer

    path = tokenizer or store
    if path.is_dir() or not path.exists():
        path = path / TOKENIZER_FILE
    if not path.is_file():
        raise StoreError(
            "there is no tokenizer to decode tokens with",
            place=Place(path),
            hint="give --tokenizer DIR: a dataset's directory, or a target with tokenizer.json",
        )
    try:
        loaded: Decoder = Tokenizer.from_file(str(path))
    # The Rust side raises bare Exception.
    except Exception as error:
        raise StoreError(f"is no tokenizer: {error}", place=Place(path)) from error
    return loaded


def _stored_rows(store: Path) -> Iterator[Any]:
    """Rows of either store: objects with id, source, input_ids, loss_mask, truncated."""
    if store_format(store) == FORMAT:
        yield from Dataset.open(store).rows()
        return
    # A hidden-state store; imported only here, since it brings torch.
    from eagle3.states import StateStore

    yield from StateStore.open(store).rows()


def shown_rows(store: Path, decoder: Decoder) -> Iterator[ShownRow]:
    """Every row in stored order. Raises StoreError when the store is damaged."""
    for row in _stored_rows(store):
        ids = np.asarray(row.input_ids)
        supervised = ids[np.asarray(row.loss_mask) == 1]
        yield ShownRow(
            id=row.id,
            source=row.source,
            tokens=len(ids),
            supervised=len(supervised),
            supervised_text=decoder.decode(supervised.tolist(), skip_special_tokens=False),
            truncated=bool(row.truncated),
        )


def shown_dropped(store: Path) -> Iterator[dict[str, str]]:
    """`{id, source, dropped}` of every row that the merge left out; none in a hidden-state store."""
    path = store / DROPPED
    if not path.is_file():
        return
    for number, line in JsonLines(path):
        try:
            yield {"id": line["id"], "source": line["source"], "dropped": line["reason"]}
        except KeyError as error:
            place = Place(path, line=number)
            raise StoreError(f"damaged: has no {error}", place=place) from None
