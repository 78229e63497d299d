"""Runs: settings, loops, folders and figures."""
