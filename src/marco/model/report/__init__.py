"""How good a learned model is."""
