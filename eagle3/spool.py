"""Masked rows on disk between reading (input order) and writing (shuffled order).

Only an index is kept in memory (about 200 bytes a row); 87.8M tokens are 440 MB on disk.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import numpy as np

from eagle3.dataset import Row
from eagle3.masks import MaskedRow

__all__ = ["Spool", "shuffle_key"]


def shuffle_key(seed: int, source: str, row_id: str) -> bytes:
    """Where a row stands in the shuffle: 32 bytes, SHA-256 of "seed NUL source NUL id".

    Sorting by it is a uniform shuffle that depends on nothing else: not on the machine, a
    library's generator, the order of files and lines, nor on which other rows there are (adding
    a source leaves the order among the old rows as it was). A source's name holds no NUL.
    """
    return hashlib.sha256(f"{seed}\0{source}\0{row_id}".encode()).digest()


class Spool:
    """A file of ids (int32) and masks (uint8), one row after the other; gone on exit."""

    def __init__(self, path: Path, seed: int):
        self.path = path
        self.seed = seed
        self._index: list[tuple[bytes, str, str, int, int, bool]] = []
        self._end = 0

    def __enter__(self) -> Spool:
        self._stream = open(self.path, "w+b")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stream.close()
        self.path.unlink(missing_ok=True)

    def __len__(self) -> int:
        return len(self._index)

    def add(self, source: str, row: MaskedRow) -> None:
        key = shuffle_key(self.seed, source, row.id)
        count = len(row.input_ids)
        self._index.append((key, source, row.id, self._end, count, row.truncated))
        self._stream.write(row.input_ids.tobytes())
        self._stream.write(row.loss_mask.tobytes())
        self._end += 5 * count

    def rows(self) -> Iterator[Row]:
        """Every row, in shuffled order."""
        self._index.sort()
        self._stream.flush()
        for _, source, row_id, begin, count, truncated in self._index:
            self._stream.seek(begin)
            data = self._stream.read(5 * count)
            ids = np.frombuffer(data, dtype=np.int32, count=count)
            mask = np.frombuffer(data, dtype=np.uint8, offset=4 * count)
            yield Row(row_id, source, ids, mask, truncated)
