"""Simulators side by side: a host environment in several processes, on this machine or on a Ray cluster."""
