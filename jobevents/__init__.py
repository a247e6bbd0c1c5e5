"""Every transition of every background job kept as an event; everything else folded from those events."""
