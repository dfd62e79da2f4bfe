"""The target model on disk, and in memory with the transformers backend.

A target is a directory: config.json with *.safetensors, or exactly one *.gguf (Q4_1 and others,
read dequantized). Nothing is fetched, no remote code runs, and pickles (*.bin) are refused.
transformers is imported when a model is loaded, since that takes seconds.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eagle3.errors import Place, TargetError
from eagle3.gguf_header import read_gguf_metadata
from eagle3.target_digest import read_target_files, target_digest

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

__all__ = ["Target"]

_HINT = "wanted config.json with *.safetensors, or exactly one *.gguf"


@dataclass(frozen=True)
class Target:
    """What of a target is known without its weights. Sizes are those of its text model."""

    directory: Path
    gguf: Path | None
    hidden_size: int
    num_layers: int
    vocab_size: int
    max_positions: int | None
    text_config: Mapping[str, Any]

    @classmethod
    def open(cls, directory: Path) -> Target:
        """The target in `directory`. Reads config.json or the GGUF's header, and no weights.

        Multimodal targets (Kimi-K2.5) nest the sizes in `text_config`. Raises TargetError: no
        such directory, no weights, several GGUFs, pickles alone, unreadable.
        """
        if not directory.is_dir():
            raise TargetError("is no directory of a target model", place=Place(directory))
        try:
            names = sorted(p.name for p in directory.iterdir() if not p.name.startswith("."))
        except OSError as error:
            raise TargetError(f"cannot be read: {error.strerror}", place=Place(directory)) from None
        ggufs = [name for name in names if name.endswith(".gguf")]
        if any(name.endswith(".safetensors") for name in names):
            return cls._from_config(directory)
        if len(ggufs) == 1:
            return cls._from_gguf(directory, directory / ggufs[0])
        if ggufs:
            raise TargetError(
                f"holds {len(ggufs)} GGUF files: {', '.join(ggufs)}",
                place=Place(directory),
                hint="which one is meant is not guessed; leave one of them there",
            )
        pickles = [name for name in names if name.endswith((".bin", ".pt", ".pth"))]
        if pickles:
            raise TargetError(
                f"holds its weights as pickles ({', '.join(pickles[:3])}), which can run code",
                place=Place(directory),
                hint="convert them: model.save_pretrained writes safetensors",
            )
        raise TargetError("holds no weights", place=Place(directory), hint=_HINT)

    @classmethod
    def _from_config(cls, directory: Path) -> Target:
        path = directory / "config.json"
        try:
            config = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise TargetError(f"cannot be read: {error}", place=Place(path), hint=_HINT) from error
        if not isinstance(config, dict):
            raise TargetError("is not an object", place=Place(path))
        nested = config.get("text_config")
        text = nested if isinstance(nested, dict) else config
        return cls(
            directory,
            None,
            _size(text, "hidden_size", path),
            _size(text, "num_hidden_layers", path),
            _size(text, "vocab_size", path),
            _optional_size(text, "max_position_embeddings"),
            text,
        )

    @classmethod
    def _from_gguf(cls, directory: Path, path: Path) -> Target:
        metadata = read_gguf_metadata(path)
        name = metadata.get("general.architecture")
        return cls(
            directory,
            path,
            _size(metadata, f"{name}.embedding_length", path),
            _size(metadata, f"{name}.block_count", path),
            _size(metadata, f"{name}.vocab_size", path),
            _optional_size(metadata, f"{name}.context_length"),
            metadata,
        )

    @cached_property
    def digest(self) -> str:
        """SHA-256 over sizes, text files and heads of weight files: see `target_digest`."""
        return target_digest(read_target_files(self.directory))

    def load_model(self, dtype: torch.dtype) -> PreTrainedModel:
        """The whole language model in `dtype` on the CPU: eval mode, no parameter wants a gradient.

        Raises TargetError when transformers does not know the architecture, or when a weight is
        missing or of another shape: transformers would put random numbers there and go on.
        """
        model, info = self._from_pretrained(dtype)
        faults = [
            f"{kind.replace('_', ' ')}: {', '.join(map(str, sorted(info[kind], key=str)[:3]))}"
            for kind in ("missing_keys", "mismatched_keys", "error_msgs")
            if info.get(kind)
        ]
        if faults:
            raise TargetError(
                f"its weights do not fit its config: {'; '.join(faults)}",
                place=Place(self.directory),
                hint="fetch the target's files again",
            )
        loaded: PreTrainedModel = model.eval().requires_grad_(False)
        return loaded

    def _from_pretrained(self, dtype: torch.dtype) -> tuple[Any, dict[str, Any]]:
        # Set before the import: huggingface_hub reads it once, then.
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        try:
            from transformers import AutoConfig
            from transformers.utils import logging as transformers_logging
        except ImportError as error:
            raise TargetError(
                f"transformers cannot be imported: {error}",
                hint="install eagle3-runbooks[embedded]",
            ) from error
        options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
        if self.gguf is not None:
            options["gguf_file"] = self.gguf.name
        logging: Any = transformers_logging
        verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
        logging.set_verbosity(50)  # what it would warn of is judged in load_model
        logging.disable_progress_bar()
        try:
            config = AutoConfig.from_pretrained(str(self.directory), **options)
            found: tuple[Any, dict[str, Any]] = _auto_class(config).from_pretrained(
                str(self.directory),
                **options,
                config=config,  # or a GGUF's header would be parsed once more
                dtype=dtype,
                use_safetensors=True,
                output_loading_info=True,
            )
            return found
        except TargetError:
            raise
        # Whatever a damaged or foreign file makes transformers raise is a fault of the target.
        except Exception as error:
            reason = str(error).strip().split("\n", 1)[0] or type(error).__name__
            raise TargetError(
                f"cannot be loaded: {reason}", place=Place(self.gguf or self.directory)
            ) from error
        finally:
            logging.set_verbosity(verbosity)
            if bars:
                logging.enable_progress_bar()


def _auto_class(config: Any) -> Any:
    """The transformers class that loads the model with its head; multimodal ones have their own."""
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

    for auto in (AutoModelForCausalLM, AutoModelForImageTextToText):
        if type(config) in auto._model_mapping:
            return auto
    raise TargetError(
        f"model type {config.model_type!r} is no language model that transformers loads",
        hint="extract it with a serving engine instead of --backend transformers",
    )


def _size(values: Mapping[str, Any], key: str, path: Path) -> int:
    found = values.get(key)
    if type(found) is not int or found < 1:
        raise TargetError(f"does not say its {key}", place=Place(path))
    return found


def _optional_size(values: Mapping[str, Any], key: str) -> int | None:
    found = values.get(key)
    return found if type(found) is int and found > 0 else None
