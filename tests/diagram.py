"""The picture of the transitions in CONTRIBUTING.md; `python -m tests.diagram` writes it again from TRANSITIONS."""

import re
from pathlib import Path

from jobevents.job import ASSERTED, DELETED, NEW, SAME, TRANSITIONS, edge

CONTRIBUTING = Path(__file__).parent.parent / "CONTRIBUTING.md"

_between = re.compile(r"(?<=<!-- transitions -->\n).*?(?=<!-- /transitions -->)", re.DOTALL)


def diagram() -> str:
    """Return TRANSITIONS as a Mermaid state diagram, for people."""
    lines = ["stateDiagram-v2"]
    for state, row in TRANSITIONS.items():
        edges: dict[str, list[str]] = {}
        for cls, targets in row.items():
            for target in targets:
                if target not in (SAME, ASSERTED, DELETED):
                    edges.setdefault(target, []).append(edge(cls, state))
        lines += [
            f"    {'[*]' if state == NEW else state} --> {to}: {', '.join(labels)}" for to, labels in edges.items()
        ]
    return "\n".join(lines) + "\n"


def with_picture(text: str) -> str:
    """Return the text with the picture as TRANSITIONS has it now, between its two marks."""
    fresh, count = _between.subn(f"```mermaid\n{diagram()}```\n", text)
    assert count == 1, "CONTRIBUTING.md must hold the marks of the transitions once"
    return fresh


if __name__ == "__main__":
    CONTRIBUTING.write_text(with_picture(CONTRIBUTING.read_text("utf-8")), "utf-8")
