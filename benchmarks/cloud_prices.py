"""What storage operations cost, and what the log on Cloud Storage may cost. Standard library only, as the rows are."""

PRICES = {"A": 5.0, "B": 0.4, "free": 0.0}  # dollars a million operations; US single region, list prices of late 2026
TRANSITIONS = 8.4  # dollars that a million may cost, index and sweep aside
MESSAGES = 0.07  # of them for Pub/Sub, which is not counted here
CLAIMED = TRANSITIONS - MESSAGES
