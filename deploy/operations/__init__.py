"""Operations: what can change a host. One module each; `OPERATIONS` is what gets registered."""

from __future__ import annotations

from deploy.operations.command import RunCommand
from deploy.operations.copy import Copy
from deploy.operations.delete import Delete
from deploy.operations.job import Job
from deploy.operations.package import Package
from deploy.operations.patch import Patch
from deploy.operations.pypi_file import PypiFile
from deploy.operations.service import Service
from deploy.operations.sglang import SglangPatch, SglangServer
from deploy.operations.template import Template
from runbooks.engine.model.operation import Operation

__all__ = ["OPERATIONS"]

OPERATIONS: tuple[Operation, ...] = (
    RunCommand(),
    Copy(),
    Template(),
    Delete(),
    Patch(),
    Service(),
    Package(),
    Job(),
    SglangPatch(),
    SglangServer(),
    PypiFile(),
)
