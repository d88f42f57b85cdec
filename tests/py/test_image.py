"""packaging/oci.py writes images that hold together, of static binaries only. `make soak` runs the image of weft itself.

A small static program instead of weft, whose build for musl takes minutes; an independent reader (weftimage).

Units: bytes.
Source: OCI Image Format 1.0.2; docs/lab.md "The image".
"""

import json
import os
import struct
import subprocess
import sys

import pytest

from weftimage import Image
from weftlive import ROOT, weft

OCI = os.path.join(ROOT, "packaging", "oci.py")
PROGRAM = '#include <stdio.h>\nint main(int n, char **a) { return printf("%d %s\\n", n, a[0]) < 0; }\n'


def write(binary, out, **environment):
    """Calls the writer; exit code and what it said."""
    command = [sys.executable, OCI, binary, out, "--version", "1.2.3"]
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(name="static", scope="module")
def built(tmp_path_factory):
    """A static program."""
    folder = tmp_path_factory.mktemp("static")
    (folder / "p.c").write_text(PROGRAM)
    subprocess.run(["cc", "-static", "-o", folder / "p", folder / "p.c"], check=True)
    return folder / "p"


def test_an_image_holds_together(static, tmp_path):
    out = tmp_path / "new" / "image.tar"
    code, said = write(static, out)
    assert code == 0, said
    image = Image(out)
    assert image.command() == (["/weft"], ["run", "--ports", "eth[1-9]*"])
    assert image.config["config"]["Labels"]["org.opencontainers.image.version"] == "1.2.3"
    entries = {one.name: (oct(one.mode), one.uid, one.gid, one.isdir()) for one in image.entries()}
    assert entries == {
        "etc": ("0o755", 0, 0, True),
        "etc/weft": ("0o755", 0, 0, True),
        "run": ("0o755", 0, 0, True),
        "tmp": ("0o1777", 0, 0, True),
        "LICENSE": ("0o644", 0, 0, False),
        "weft": ("0o755", 0, 0, False),
    }
    image.unpack(tmp_path / "root")
    assert (tmp_path / "root" / "weft").read_bytes() == static.read_bytes()
    # What docker before 25 reads instead of the index.
    (docker,) = json.loads(image.files["manifest.json"])
    assert docker["RepoTags"] == ["weft:latest"]
    assert json.loads(image.files[docker["Config"]]) == image.config
    assert len(docker["Layers"]) == 1 and docker["Layers"][0] in image.files
    assert os.listdir(tmp_path / "new") == ["image.tar"], "no part is left behind"


def test_the_same_input_gives_the_same_bytes(static, tmp_path):
    for name in ("a", "b"):
        assert write(static, tmp_path / name, SOURCE_DATE_EPOCH="1700000000")[0] == 0
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert Image(tmp_path / "a").config["created"] == "2023-11-14T22:13:20Z"


def test_what_cannot_run_alone_is_refused(static, tmp_path):
    whole = static.read_bytes()
    cases = {
        "needs a loader": open(weft(), "rb").read(1 << 20),
        "expected a 64-bit": b"#!/bin/sh\n" + bytes(100),
        "expected a 64-bit ": whole[:63],
        "expected a machine": whole[:18] + struct.pack("<H", 0xF3) + whole[20:],
        "lie outside": whole[:32] + struct.pack("<Q", 1 << 40) + whole[40:],
    }
    for number, (why, data) in enumerate(cases.items()):
        (tmp_path / "bad").write_bytes(data)
        code, said = write(tmp_path / "bad", tmp_path / f"out{number}")
        assert code == 1 and why.strip() in said and "Traceback" not in said, said
        assert not (tmp_path / f"out{number}").exists()
