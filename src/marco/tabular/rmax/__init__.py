"""Adapted R-MAX and what it is compared with."""
