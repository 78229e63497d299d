"""Many runs from one file: worlds x settings x seeds, or a search over settings (`marco sweep`).

file.py        the TOML file, checked
cells.py       one setting in one environment, with all of its settings made out
runs.py        the folder of a sweep: which runs it has, which are missing, and how one is run
table.py       its results, a row per run and seed; what `marco compare` reads
search.py      settings proposed by Optuna
compare.py     what is said of the rows: means, intervals, thresholds, who is better
figure.py      return against real samples
"""
