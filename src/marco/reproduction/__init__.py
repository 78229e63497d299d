"""The paper's experiments, run again: its figures and claims beside ours (`marco reproduce`).

cells.py         what is run: every curve of every figure, with thresholds and claims
measure.py       runs one of them, all seeds at once
store.py         its rows, in a file that is redrawn without running
statistics.py    means, interquartile means, samples to a threshold, with intervals
figures.py       the paper's figures
claims.py        the paper's claims, and the rules of their verdicts
page.py          the page of claims, tables and figures
"""
