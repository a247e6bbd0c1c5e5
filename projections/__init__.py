"""Read models folded from the job events; `projections` reads the truth that `jobevents` writes."""
