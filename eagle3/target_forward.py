"""Aux and last hidden states of rows of tokens, by the transformers backend.

Batch size one: every bit is that of `model(input_ids, output_hidden_states=True)` for that row
alone, converted to bf16. Larger batches are padded on the right, with an attention mask; kernels
then add up in another order. Computed in float32, a stored value x of a token whose largest
value is m then differs by at most 2^-7 |x| + 2^-18 m (one step of bf16, and rounding near zero).
Measured on SmolLM2-135M, batches of 2 to 8, rows of 1 to 500 tokens: 2^-7 |x| + 6.0e-7 m, and at
most 0.5 % of a row's values differ at all. Computed in bfloat16 the same rows differ by up to
2^-7 |x| + 0.065 m, in up to 79 % of the values: that is the noise of bf16 layers, not padding's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from eagle3.errors import TargetError

__all__ = ["BATCH_BOUND", "TargetForward"]

# Of |x| and of the token's largest value: the bound above, for float32.
BATCH_BOUND = (2.0**-7, 2.0**-18)


class TargetForward:
    """Runs the stack of decoder layers, without the language-model head."""

    def __init__(self, model: Any, layer_ids: Sequence[int], hidden_size: int, num_layers: int):
        """`layer_ids` are outputs of layers. Raises TargetError when the layers are not found."""
        self._decoder = model.get_decoder()
        self._layer_ids = tuple(layer_ids)
        self._hidden_size = hidden_size
        layers = getattr(self._decoder, "layers", None)
        if not isinstance(layers, torch.nn.ModuleList) or len(layers) != num_layers:
            found = len(layers) if isinstance(layers, torch.nn.ModuleList) else "none"
            raise TargetError(
                f"{type(self._decoder).__name__} has {found} decoder layers; the config says "
                f"{num_layers}",
                hint="this architecture is not supported by --backend transformers",
            )
        self._layers = layers

    def __call__(
        self, rows: Sequence[npt.NDArray[np.int32]]
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """For each row of n ids: aux bf16 [n, A*H] low to high, last bf16 [n, H] post-norm."""
        lengths = [len(row) for row in rows]
        ids = torch.zeros(len(rows), max(lengths), dtype=torch.long)
        mask = torch.zeros_like(ids)
        for index, row in enumerate(rows):
            ids[index, : len(row)] = torch.from_numpy(row.astype(np.int64))
            mask[index, : len(row)] = 1
        # Without padding a mask is needless, and takes another attention kernel.
        padded = min(lengths) != max(lengths)
        with torch.inference_mode(), self._capture() as captured:
            found = self._decoder(
                input_ids=ids, attention_mask=mask if padded else None, use_cache=False
            )
            last = found.last_hidden_state
            self._check(captured, last, tuple(ids.shape))
            return [
                (
                    torch.cat(
                        [captured[i][index, :length].to(torch.bfloat16) for i in self._layer_ids],
                        dim=-1,
                    ),
                    last[index, :length].to(torch.bfloat16),
                )
                for index, length in enumerate(lengths)
            ]

    @contextmanager
    def _capture(self) -> Iterator[dict[int, torch.Tensor]]:
        """Outputs of the aux layers alone: `output_hidden_states` would hold all of them."""
        captured: dict[int, torch.Tensor] = {}

        def keep(index: int) -> Any:
            def hook(module: torch.nn.Module, inputs: Any, output: Any) -> None:
                captured[index] = output[0] if isinstance(output, tuple) else output

            return hook

        handles = [self._layers[i].register_forward_hook(keep(i)) for i in self._layer_ids]
        try:
            yield captured
        finally:
            for handle in handles:
                handle.remove()

    def _check(
        self, captured: dict[int, torch.Tensor], last: torch.Tensor, shape: tuple[int, ...]
    ) -> None:
        """States off by a row (speculators #279), or of a layer that never ran."""
        wanted = (*shape, self._hidden_size)
        states = {f"layer {i}": captured.get(i) for i in self._layer_ids} | {"last": last}
        for name, found in states.items():
            if found is None or tuple(found.shape) != wanted:
                shown = "nothing" if found is None else str(list(found.shape))
                raise TargetError(f"{name}: the forward gave {shown}; wanted {list(wanted)}")
