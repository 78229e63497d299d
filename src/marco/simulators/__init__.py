"""Simulators side by side: a host environment in several processes, on this machine or on a Ray cluster."""

from marco.simulators.config import Workers

__all__ = ["Workers"]
