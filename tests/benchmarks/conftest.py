import sys
from pathlib import Path

# The scripts under benchmarks/ import each other by bare names.
sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
