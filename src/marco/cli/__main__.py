"""`python -m marco.cli`."""

from marco.cli import main

main()
