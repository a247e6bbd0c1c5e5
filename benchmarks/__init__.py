"""What things cost, beside the least that they could cost and what a user would pick instead: `python -m benchmarks`.

Every contender of a row runs in its own process over seeded data, in turns with the others, so that noise meets all alike.
Compare ratios, not machines: `limit` is a bare loop that does the least that the same promise needs.
"""
