"""Facts: what can be read from a host. One module a subject; `FACTS` is what gets registered."""

from __future__ import annotations

from deploy.facts.job import JobFact
from deploy.facts.net import Http
from deploy.facts.nvidia import GpuProcesses, NvidiaDriver
from deploy.facts.package import PackageFact
from deploy.facts.path import PathFact
from deploy.facts.process import ProcessEnv, ProcessFact
from deploy.facts.service import ServiceFact
from deploy.facts.sglang import ExtractionReady, SglangPatchFact, SglangServerFact
from deploy.facts.source import Git, PatchFact
from deploy.facts.storage import DiskFree, RowCount
from deploy.facts.tree import Tree
from runbooks.engine.model.fact import Fact

__all__ = ["FACTS"]

FACTS: tuple[Fact, ...] = (
    PathFact(),
    Tree(),
    DiskFree(),
    RowCount(),
    Http(),
    ProcessFact(),
    ProcessEnv(),
    ServiceFact(),
    PackageFact(),
    Git(),
    PatchFact(),
    JobFact(),
    NvidiaDriver(),
    GpuProcesses(),
    SglangPatchFact(),
    SglangServerFact(),
    ExtractionReady(),
)
