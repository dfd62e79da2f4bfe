"""The graph of a runbook's steps, as Mermaid or as text."""

from __future__ import annotations

from rich.cells import cell_len

from runbooks.engine.model.runbook import Runbook, Step
from runbooks.engine.view.text import printable

__all__ = ["mermaid", "text_graph"]

_CLASSES = {
    "gate": "fill:#eef,stroke:#66a",
    "irreversible": "fill:#fdd,stroke:#a00,stroke-width:3px",
    "transient": "fill:#ffe,stroke:#aa6,stroke-dasharray:4 3",
}
# Shapes say the same as colours, for those who see no colour.
_SHAPES = {
    "gate": ("{{", "}}"),
    "irreversible": ("[[", "]]"),
    "transient": ("([", "])"),
    "": ("[", "]"),
}


def _marks(step: Step) -> list[str]:
    marks = []
    if step.gate:
        marks.append("gate")
    if step.irreversible:
        marks.append("irreversible")
    if step.transient:
        marks.append("transient")
    return marks


def mermaid(runbook: Runbook) -> str:
    """A Mermaid flowchart; ids are our own, so that no step's name can break it."""
    ids = {name: f"s{index}" for index, name in enumerate(runbook.order)}
    lines = ["flowchart TD"]
    for name in runbook.order:
        step = runbook.steps[name]
        marks = _marks(step)
        kind = marks[0] if marks else ""
        parts = [name, ", ".join(step.hosts)]
        if step.do is not None:
            parts.append(step.do.operation.name)
        parts.extend(marks)
        opened, closed = _SHAPES[kind]
        label = "<br/>".join(map(_escaped, parts))
        suffix = f":::{kind}" if kind else ""
        lines.append(f'  {ids[name]}{opened}"{label}"{closed}{suffix}')
    for name in runbook.order:
        lines.extend(f"  {ids[need]} --> {ids[name]}" for need in runbook.steps[name].needs)
    used = {mark for step in runbook.steps.values() for mark in _marks(step)[:1]}
    lines.extend(f"  classDef {kind} {style}" for kind, style in _CLASSES.items() if kind in used)
    return "\n".join(lines)


def _escaped(text: str) -> str:
    """Text inside a quoted Mermaid label: entities for what it reads as its own."""
    return "".join(
        char if char.isalnum() or char in " -_.,:/·" else f"#{ord(char)};"
        for char in printable(text)
    )


def text_graph(runbook: Runbook) -> str:
    """One line a step, in an order that respects needs."""
    rows = []
    for name in runbook.order:
        step = runbook.steps[name]
        what = step.do.operation.name if step.do else "gate"
        marks = " ".join(mark for mark in _marks(step) if mark != "gate")
        after = f"after {', '.join(step.needs)}" if step.needs else ""
        rows.append([name, ", ".join(step.hosts), what, marks, after])
    widths = [max((cell_len(row[column]) for row in rows), default=0) for column in range(4)]
    lines = []
    for row in rows:
        padded = [
            text + " " * (width - cell_len(text)) for text, width in zip(row, widths, strict=False)
        ]
        lines.append("  ".join([*padded, row[-1]]).rstrip())
    return printable("\n".join(lines))
