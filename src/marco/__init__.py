"""MARCO: learn a team's policy from few real interactions."""
