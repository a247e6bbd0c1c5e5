"""The failures of other systems that ours was built against: each has a test that is named after it."""

import re
from pathlib import Path

import pytest

PLACES = ("tests", "jobevents/testing")
CASES = {
    "delivery": "DEL-01 DEL-02 DEL-04 DEL-06 DEL-07 DEL-09 DEL-11 DEL-12 DEL-14",
    "shutdown": "SHD-01 SHD-02 SHD-03 SHD-05",
    "cancel": "CAN-01 CAN-02 CAN-04 CAN-06 CAN-08 CAN-09",
    "idempotency": "IDE-01 IDE-03 IDE-05 IDE-07",
    "reserve": "RSV-01 RSV-04 RSV-05 RSV-06",
    "retry": "RET-01 RET-03 RET-05",
    "time": "TIM-01 TIM-02 TIM-03 TIM-06 TIM-07 TIM-09",
    "store": "STO-01 STO-02 STO-03 STO-04 STO-05 STO-06 STO-09 STO-12 STO-13 STO-15",
    "logs": "LOG-01 LOG-02 LOG-05",
    "memory": "MEM-01 MEM-03",
}


def names() -> set[str]:
    """Return the names of all tests."""
    root = Path(__file__).parent.parent
    modules = [path for place in PLACES for path in (root / place).rglob("*.py")]
    return {name for path in modules for name in re.findall(r"def (test_\w+)\(", path.read_text("utf-8"))}


@pytest.mark.parametrize("area", CASES)
def test_each_case_has_a_test(area: str) -> None:
    """By its id: `test_sto_13_...` is the test of STO-13."""
    found = names()

    missing = [
        case
        for case in CASES[area].split()
        if not any(name.startswith(f"test_{case.lower().replace('-', '_')}_") for name in found)
    ]

    assert [] == missing
