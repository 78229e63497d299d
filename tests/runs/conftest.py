"""What the tests of killed runs share."""

import multiprocessing
import os
import sys

import pytest


@pytest.fixture
def processes(monkeypatch):
    """Processes that begin with everything imported and nothing of JAX started."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # the server looks nowhere else
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["helpers.tiny_run"])
    return context
