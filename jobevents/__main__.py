"""`python -m jobevents`."""

from jobevents.cli import main

main()
