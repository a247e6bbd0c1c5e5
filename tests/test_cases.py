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
    "paging": "PAG-01 PAG-02 PAG-04 PAG-05 PAG-08",
    "data": "DAT-01 DAT-03 DAT-04 DAT-07 DAT-08 DAT-11 DAT-12",
    "security": "SEC-01 SEC-03 SEC-05 SEC-06 SEC-08 SEC-10 SEC-12",
    "projection": "PRJ-01 PRJ-03 PRJ-05 PRJ-08 PRJ-09 PRJ-10 PRJ-12",
    "object store": "GCS-01 GCS-03 GCS-04 GCS-06 GCS-08",
}
OVER_PUBSUB = f"{CASES['projection']} {CASES['delivery']}"
ABOUT_PUBSUB = (
    "test_pubsub*.py",
    "test_push.py",
    "test_postgres_relay.py",
    "jobqueue*.py",
)  # the last by a queue on it

# What goes wrong with a log on Cloud Storage and hints on Pub/Sub, and the tests in which it does.
FAULTS = {
    "01 a crash before the write": "fault_01_crash_before_the_write",
    "02 a crash after the write, before the reply": "fault_02_crash_after_the_write",
    "03 a crash between append and publish": "fault_03_crash_between_append_and_publish",
    "04 a reply lost, the write landed, also late": "fault_04_reply_lost_and_landed fault_04_reply_lost_and_landed_late",
    "05 two writers, one slot": "fault_05_two_writers_one_slot fault_05_two_deliveries_one_grant",
    "06 503 for a minute": (
        "fault_06_store_away_for_a_minute fault_06_and_07_the_projector_is_degraded_and_loses_nothing "
        "pulling_stops_while_the_views_are_behind"
    ),
    "07 429 on a create and on a status": (
        "fault_07_too_many_writes fault_06_and_07_the_projector_is_degraded_and_loses_nothing"
    ),
    "08 Pub/Sub down for ten minutes": "fault_08_pubsub_down_ten_minutes",
    "09 messages doubled, reversed, lost, late": "fault_09_doubled_reversed_lost_and_late",
    "10 an acknowledgement lost": "fault_10_acknowledgement_lost",
    "11 the subscription deleted": "fault_11_subscription_deleted topic_and_subscription_lost_together",
    "12 two projectors, old and new code": "fault_12_two_projectors fault_12_old_and_new_code_together",
    "13 a projector paused with a write under way": "fault_13_projector_paused_with_a_write_under_way",
    "14 a zombie finishes a job given to another": "fault_14_zombie_finishes_after_the_job_was_given_away",
    "15 clocks apart, stepping back": "fault_15_clocks_apart",
    "16 a poison event": "fault_16_poison_is_parked_and_others_flow",
    "17 nesting without end": ("fault_17_what_cannot_be_read fault_17_bytes_that_nobody_can_read_park_their_job_alone"),
    "18 text and numbers that cannot be stored": "fault_18_values_that_cannot_be_stored",
    "19 a payload over the limit": "fault_19_payload_over_the_limit",
    "20 SQLite killed at random": (
        "a_killed_writer_loses_no_acknowledged_event a_killed_writer_has_no_id_given_out_twice"
    ),
    "21 a full disk": "fault_21_disk_full sto_06_full_disk_is_unavailable_until_there_is_room",
    "22 permission denied, on each kind of object": (
        "fault_22_permission_denied no_permission_is_told_and_nothing_is_taken_for_gone"
    ),
    "23 wild ids": "fault_23_wild_ids fault_23_wild_ids_cost_no_read",
    "24 a forged message": "fault_24_forged_messages_are_dropped fault_24_other_bytes_than_the_logs_change_nothing",
    "25 a rebuild during live traffic": "fault_25_views_removed_during_live_traffic",
    "26 a zombie append after an erasure": "26_a_write_under_way_is_gone_by_the_next_pass",
    "27 what is forgotten to make room": "fault_27_forgotten_heads_change_nothing",
    "28 SIGTERM with statuses not written yet": "fault_28_a_stop_stores_what_was_taken",
    "29 an independent subscriber": "fault_29_an_independent_subscriber_gets_everything",
    "30 a foreign success over our running": "fault_30_foreign_success_over_our_running",
    "31 a rerun, and a stale success": "fault_31_rerun_with_a_stale_status",
    "32 a late first event after an erasure": "an_erased_job_does_not_begin_again",
}


def names(pattern: str = "*.py") -> set[str]:
    """Return the names of all tests, or of those in some modules."""
    root = Path(__file__).parent.parent
    modules = [path for place in PLACES for path in (root / place).rglob(pattern)]
    return {name for path in modules for name in re.findall(r"def (test_\w+)\(", path.read_text("utf-8"))}


@pytest.mark.parametrize("area", CASES)
def test_each_case_has_a_test(area: str) -> None:
    """By its id: `test_sto_13_...` is the test of STO-13."""
    assert [] == without_test(CASES[area], names())


def test_each_case_of_messages_has_a_test_over_them() -> None:
    """In a module about what Pub/Sub brings or pushes, or in the contract that the queue on it keeps."""
    assert [] == without_test(OVER_PUBSUB, set().union(*map(names, ABOUT_PUBSUB)))


def without_test(cases: str, found: set[str]) -> list[str]:
    """Return the cases of which no test has the name."""
    return [
        case
        for case in cases.split()
        if not any(name.startswith(f"test_{case.lower().replace('-', '_')}_") for name in found)
    ]


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_of_the_cloud_has_a_test(fault: str) -> None:
    """Named here, so that none is taken away or renamed without a word."""
    assert {f"test_{one}" for one in FAULTS[fault].split()} <= names()


def test_no_fault_of_the_cloud_is_left_out() -> None:
    """There are thirty-two of them."""
    assert [f"{number:02d}" for number in range(1, 33)] == [fault[:2] for fault in FAULTS]
