"""The merge config that a fact names: the controller reads it, as the host's merge will."""

from __future__ import annotations

from eagle3.errors import EagleError
from eagle3.merge_config import MergeConfig, find_config, load_config
from runbooks.engine.model.host import Context
from runbooks.engine.model.probe import Unknown

__all__ = ["config_of", "reason"]


def config_of(name: str, context: Context) -> MergeConfig:
    """The config called `name`: of the project, else one that the package brings.

    Raises Unknown with file and line: a config with a fault says nothing about any dataset.
    """
    try:
        own = context.project / name
        return load_config(own if own.is_file() else find_config(name))
    except EagleError as error:
        raise Unknown(reason(error)) from None


def reason(error: EagleError) -> str:
    """An error in one line: place, message, hint."""
    return "; ".join(line.strip() for line in str(error).splitlines())
