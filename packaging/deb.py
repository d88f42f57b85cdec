#!/usr/bin/env python3
"""Makes a package for Debian of a binary that is built: `make deb`.

deb.py BINARY FOLDER [cargo deb's options]... -> build/deb/programs and build/deb/data, the files of the package below
/usr, and the package, which cargo-deb makes of them as `[package.metadata.deb]` in cli/Cargo.toml says.

Source: docs/lab.md "The package"; Filesystem Hierarchy Standard 3.0; hier(7).
"""

import gzip
import os
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
STAGE = os.path.join(ROOT, "build", "deb")
# Completions: shell, place.
SHELLS = {
    "bash": "share/bash-completion/completions/weft",
    "zsh": "share/zsh/vendor-completions/_weft",
    "fish": "share/fish/vendor_completions.d/weft.fish",
}
EXAMPLES = "share/doc/weft/examples"
# What is in the tree: file or folder, and its place. MULTIARCH is the name of the machine's library folder.
COPIED = [
    ("packaging/weft@.service", "lib/systemd/system/weft@.service"),
    ("packaging/switch.toml", f"{EXAMPLES}/switch.toml"),
    ("packaging/weft_mininet.py", "share/weft/weft_mininet.py"),
    ("packaging/containerlab", f"{EXAMPLES}/containerlab"),
    ("wireshark/weft.lua", "lib/MULTIARCH/wireshark/plugins/weft.lua"),
    ("wireshark/weft", "lib/MULTIARCH/wireshark/plugins/weft"),
    ("wireshark/extcap/weft-extcap", "lib/MULTIARCH/wireshark/extcap/weft-extcap"),
]


def said(*command):
    """What a command prints; it must succeed."""
    return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout


def write(place, data, executable=False):
    """Writes a file below the stage: programs apart, as cargo-deb gives all files of a pattern one mode."""
    path = os.path.join(STAGE, "programs" if executable else "data", place)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)
    os.chmod(path, 0o755 if executable else 0o644)


def copy(source, place):
    """Copies a file, or all files of a folder, of the tree."""
    path = os.path.join(ROOT, source)
    if os.path.isdir(path):
        for name in sorted(os.listdir(path)):
            copy(os.path.join(source, name), os.path.join(place, name))
        return
    with open(path, "rb") as file:
        write(place, file.read(), os.access(path, os.X_OK))


def stage(binary):
    """Puts all files of the package where they are installed, below the stage."""
    shutil.rmtree(STAGE, ignore_errors=True)
    multiarch = said("dpkg-architecture", "-qDEB_HOST_MULTIARCH").decode().strip()
    copy(binary, "bin/weft")
    write("share/man/man1/weft.1.gz", gzip.compress(said(binary, "man"), mtime=0))
    for shell, place in SHELLS.items():
        write(place, said(binary, "completions", shell))
    for source, place in COPIED:
        copy(source, place.replace("MULTIARCH", multiarch))


def main(binary, out, *options):
    """Makes the package."""
    stage(os.path.abspath(binary))
    os.makedirs(out, exist_ok=True)
    command = ["cargo", "deb", "-p", "weft", "--no-build", "--compress-system"]
    command += ["--output", os.path.abspath(out) + "/", *options]
    # Nothing is built: it is not to wait for those who build.
    environment = {**os.environ, "CARGO_TARGET_DIR": os.path.join(STAGE, "target")}
    sys.exit(subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: deb.py BINARY FOLDER [cargo deb's options]...")
    main(*sys.argv[1:])
