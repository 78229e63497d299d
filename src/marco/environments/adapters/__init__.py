"""Environments of other libraries as MARCO's own."""
