"""The target's tokenizer and chat template, without the target's weights.

From a Hugging Face directory (tokenizer.json) or a directory with one *.gguf; nothing is fetched.
transformers is imported when a tokenizer is loaded, since that takes seconds.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eagle3.errors import Place, TargetError
from eagle3.files import canonical_json
from eagle3.gguf_header import read_gguf_metadata

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

__all__ = [
    "PROBE",
    "TOKENIZER_FILE",
    "chat_template",
    "check_round_trip",
    "encode_batch",
    "load_tokenizer",
    "render",
    "template_digest",
    "tokenizer_digest",
    "tokenizer_json",
    "vocabulary_size",
]

TOKENIZER_FILE = "tokenizer.json"
# transformers 5 dropped spaces of some BPE tokenizers.
PROBE = "a b  c\n\n  def f(x):\n\treturn 1_024 + x  # don't\n3. naïve 日本語 🙂🚀 «end» "


def load_tokenizer(directory: Path) -> PreTrainedTokenizerFast:
    """The fast tokenizer of the target in `directory`, checked to give text back unchanged.

    Raises TargetError when there is none, more than one, or decode(encode(x)) != x.
    """
    if not directory.is_dir():
        raise TargetError("is no directory of a target model", place=Place(directory))
    if (directory / TOKENIZER_FILE).is_file() or (directory / "tokenizer_config.json").is_file():
        tokenizer = _load(directory)
    else:
        gguf = _only_gguf(directory)
        tokenizer = _load(directory, gguf_file=gguf.name)
        _restore_pre_tokenizer(tokenizer, gguf)
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise TargetError(
            f"its tokenizer ({type(tokenizer).__name__}) is not a fast one",
            place=Place(directory),
            hint="put a tokenizer.json beside it; tiktoken models need a conversion",
        )
    # A tokenizer.json may carry the settings of its last training run.
    backend.no_truncation()
    backend.no_padding()
    loaded: PreTrainedTokenizerFast = tokenizer
    check_round_trip(loaded, place=Place(directory))
    return loaded


def _only_gguf(directory: Path) -> Path:
    found = sorted(path for path in directory.glob("*.gguf") if not path.name.startswith("."))
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise TargetError(
            f"wanted tokenizer.json, or exactly one *.gguf; found {names}", place=Place(directory)
        )
    return found[0]


def _load(directory: Path, **options: str) -> Any:
    # Set before the import: huggingface_hub reads it once, then.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        from transformers import AutoTokenizer
        from transformers.utils import logging
    except ImportError as error:
        raise TargetError(
            f"transformers cannot be imported: {error}",
            hint="install eagle3-runbooks[host] (or [embedded] on a machine without a GPU)",
        ) from error
    verbosity = logging.get_verbosity()
    logging.set_verbosity(40)  # ERROR
    try:
        return AutoTokenizer.from_pretrained(
            str(directory), local_files_only=True, trust_remote_code=False, **options
        )
    # Whatever a damaged or foreign file makes transformers raise is a fault of the target.
    except Exception as error:
        reason = str(error).strip().split("\n", 1)[0] or type(error).__name__
        raise TargetError(
            f"its tokenizer cannot be loaded: {reason}", place=Place(directory)
        ) from error
    finally:
        logging.set_verbosity(verbosity)


def _restore_pre_tokenizer(tokenizer: Any, gguf: Path) -> None:
    """Put back what transformers 5.24 leaves out of a GGUF's tokenizer.

    `tokenizer.ggml.pre` = `smollm` means: split off each digit, then GPT-2's pattern (llama.cpp,
    LLAMA_VOCAB_PRE_TYPE_SMOLLM; the model's own tokenizer.json has Digits + ByteLevel).
    transformers keeps GPT-2's pattern alone, which splits the white space before a digit
    otherwise than the model was trained on: "\\n\\n1." became two newline tokens, not one.
    """
    if read_gguf_metadata(gguf).get("tokenizer.ggml.pre") != "smollm":
        return
    from tokenizers import pre_tokenizers

    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=True),
        ]
    )


def check_round_trip(tokenizer: PreTrainedTokenizerFast, *, place: Place | None = None) -> None:
    """Raise TargetError unless the tokenizer gives `PROBE` back unchanged."""
    ids = encode_batch(tokenizer, [PROBE])[0]
    back = tokenizer.backend_tokenizer.decode(ids, skip_special_tokens=False)
    if back != PROBE:
        raise TargetError(
            f"its tokenizer does not give text back unchanged: {PROBE!r} became {back!r}",
            place=place,
            hint="tokenizer.json and the installed transformers do not fit each other",
        )


def encode_batch(tokenizer: PreTrainedTokenizerFast, texts: Sequence[str]) -> list[list[int]]:
    """Token ids of each text, without added special tokens, truncation or padding.

    Names of special tokens *in* a text do become those tokens: a template writes them.
    """
    backend = tokenizer.backend_tokenizer
    return [found.ids for found in backend.encode_batch_fast(list(texts), add_special_tokens=False)]


def render(tokenizer: PreTrainedTokenizerFast, messages: Sequence[Mapping[str, Any]]) -> str:
    """The chat template's text of `messages`, without a generation prompt.

    Raises whatever the template raises (jinja2.TemplateError and others): see `masks.mask_rows`.
    """
    text = tokenizer.apply_chat_template(
        [dict(turn) for turn in messages], tokenize=False, add_generation_prompt=False
    )
    return str(text)


def chat_template(tokenizer: PreTrainedTokenizerFast) -> str:
    """The chat template's source; TargetError when there is none, or several without a default."""
    template: Any = tokenizer.chat_template
    if isinstance(template, dict):
        template = template.get("default")
    if not isinstance(template, str) or not template:
        raise TargetError(
            "the target's tokenizer has no chat template",
            hint="add chat_template.jinja, or chat_template in tokenizer_config.json",
        )
    return template


def vocabulary_size(tokenizer: PreTrainedTokenizerFast) -> int:
    """One more than the largest token id, added tokens included."""
    return max(tokenizer.get_vocab().values()) + 1


def tokenizer_json(tokenizer: PreTrainedTokenizerFast) -> bytes:
    """The backend tokenizer as canonical JSON: loadable by `tokenizers`, the same everywhere."""
    return canonical_json(json.loads(tokenizer.backend_tokenizer.to_str()))


def tokenizer_digest(tokenizer: PreTrainedTokenizerFast) -> str:
    """SHA-256 (hexadecimal) of `tokenizer_json`: vocabulary, merges, special tokens."""
    return hashlib.sha256(tokenizer_json(tokenizer)).hexdigest()


def template_digest(tokenizer: PreTrainedTokenizerFast) -> str:
    """SHA-256 (hexadecimal) of the chat template's source in UTF-8."""
    return hashlib.sha256(chat_template(tokenizer).encode()).hexdigest()
