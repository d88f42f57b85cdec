"""Makes the package switch_sai_thrift of switch_sai.thrift and sai_headers.py, and puts it where Python finds it.

make(FOLDER) writes FOLDER/switch_sai_thrift; `python stubs.py FOLDER` does so for other testers.

Source: thrift-compiler's generator `py`.
"""

import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = "switch_sai_thrift"


def missing():
    """Why the stubs cannot be made here, or None."""
    return None if shutil.which("thrift") else "thrift-compiler is not installed (tools/setup.sh)"


def make(folder):
    """Writes the package into `folder`, which is made; returns the folder."""
    os.makedirs(folder, exist_ok=True)
    idl = os.path.join(HERE, "switch_sai.thrift")
    done = subprocess.run(
        ["thrift", "-strict", "--gen", "py", "-out", folder, idl], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"thrift: {done.stderr or done.stdout}"
    shutil.copy(os.path.join(HERE, "sai_headers.py"), os.path.join(folder, PACKAGE))
    return folder


if __name__ == "__main__":
    print(make(sys.argv[1]))
