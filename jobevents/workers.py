"""Who works: the identity of this worker process, one for each start of a process."""

import os
import socket


def identity() -> str:
    """Return this process's identity, `{host}-{pid}-{random}`: the same until it ends, never that of another start."""
    pid = os.getpid()
    if pid not in _identities:  # a forked child is a process of its own
        _identities.clear()
        _identities[pid] = f"{socket.gethostname()[:64]}-{pid}-{os.urandom(4).hex()}"
    return _identities[pid]


_identities: dict[int, str] = {}
