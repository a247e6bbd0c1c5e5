"""What a look at a bucket's set-up has found."""

import msgspec


class Check(msgspec.Struct, frozen=True):
    """What one check found."""

    name: str
    is_well: bool
    found: str  # what was found, and what to do about it
    is_fatal: bool = False  # with this, acknowledged events may be lost
