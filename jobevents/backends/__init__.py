"""The places a log, blobs or a bus can live; each module is imported lazily by `jobevents.wiring`."""
