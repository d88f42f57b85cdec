"""Private networks for a script: it starts itself again in namespaces that are removed with it.

enter(mark, arguments, sockets) -> exit code of the second start, in whose environment `mark` is "1"; sh(command).

Source: unshare(1), ip-netns(8). Without root in a user namespace.
"""

import os
import subprocess
import sys


def enter(mark, *arguments, sockets=()):
    """Starts the running script again in new namespaces, with descriptors of sockets of these; returns its exit code."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    unshare = ["unshare", *user, "--net", "--mount", "--pid", "--fork", "--kill-child"]
    # A tmpfs on /run: names of namespaces and the switch's socket are private and are removed with it.
    start = 'mount -t tmpfs tmpfs /run && exec "$@"'
    command = [*unshare, "sh", "-c", start, "sh", sys.executable, os.path.abspath(sys.argv[0]), *arguments]
    return subprocess.run(command, env={**os.environ, mark: "1"}, pass_fds=sockets, check=False).returncode


def sh(command):
    """Runs a shell command that must succeed; returns what it printed."""
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{command}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout
