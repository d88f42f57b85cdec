"""Makes the modules of this folder importable for its tests, wherever pytest starts.

sys.path entry only.

Source: pytest documentation, conftest.py.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
