"""Finite Dec-POMDPs as tables: files, exact planning, Adapted R-MAX (Algorithm 2) and its theorem."""
