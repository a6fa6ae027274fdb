"""The same models in other frameworks: parameters go in and come out as NumPy arrays."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))  # peers import each other as files of one folder, as `neoflow bench` does
