"""Debian's tshark with weft's dissector installed as docs/wireshark.md says, run by a user without privileges.

Shark() is a home with the dissector in its folder of plugins; frames(capture, ...) -> Frame of each frame.

Source: docs/wireshark.md; tshark(1). Not as root: what reads hostile bytes needs no privileges, and where init.lua sets
`run_user_scripts_when_superuser = false`, root's Wireshark loads no Lua and says nothing of it: fields are unknown then.
"""

import json
import os
import shutil
import subprocess
import tempfile

from weftlive import ROOT, weft

NOBODY = 65534
PLUGINS = os.path.join(".local", "lib", "wireshark", "plugins")
LUA_ERROR = "Lua Error"
# What stands only in Wireshark: links, paths, names, messages of its experts and what `weft decode` has no word for.
OWN = (
    "cci",
    "drop",
    "dropped",
    "mac_control.classes.name",
    "malformed",
    "cut",
    "path",
    "payload.malformed",
    "preference_error",
    "rh.acked_in",
    "rh.request_in",
    "rh.response_time",
    "tlp.byte_count",
    "tlp.completed_in",
    "tlp.offset_dw",
    "tlp.pasid",
    "tlp.request_in",
    "tlp.response_time",
)
# Of a capture's record, which Wireshark has itself: key of `weft decode`, field of Wireshark.
RECORD = {
    "number": "frame.number",
    "ts_ns": "frame.time_epoch",
    "interface": "frame.interface_id",
    "comment": "frame.comment",
}


def missing():
    """Why tshark cannot be run here, or None."""
    needed = ["tshark", *(["setpriv"] if os.geteuid() == 0 else [])]
    lacking = [name for name in needed if shutil.which(name) is None]
    return f"not installed: {', '.join(lacking)} (tools/setup.sh test)" if lacking else None


class Frame:
    """What tshark shows of a frame: all its fields in order, and those of weft by name."""

    def __init__(self, packet):
        self.fields = []
        self._walk(packet)

    def _walk(self, pairs):
        for name, value in pairs:
            # An object came as its pairs; an empty one has none.
            if isinstance(value, list):
                self._walk(value)
            else:
                self.fields.append((name, value))

    def all(self, name):
        """Every value of a field."""
        return [value for found, value in self.fields if found == name]

    def one(self, name):
        """The value of a field that is there once; None if it is not."""
        values = self.all(name)
        assert len(values) < 2, (name, values)
        return values[0] if values else None

    def weft(self):
        """Fields that `weft decode` has, too, as pairs without `weft.`, sorted."""
        names = [(name[5:], value) for name, value in self.fields if name.startswith("weft.")]
        return sorted((name, value) for name, value in names if not is_own(name))

    def record(self):
        """What Wireshark says of the record, with the keys of `weft decode`; it shows no interface of a pcap file."""
        found = {key: self.one(name) for key, name in RECORD.items()}
        seconds, part = found["ts_ns"].split(".")
        found["ts_ns"] = str(int(seconds) * 10**9 + int(part.ljust(9, "0")))
        return {key: value for key, value in found.items() if value is not None}


def is_own(name):
    """Whether a field is not one of `weft decode`'s."""
    return any(name == own or name.startswith(own + ".") for own in OWN)


class Shark:
    """A home of a user without privileges, with the dissector; a context that removes it."""

    def __enter__(self):
        self.home = tempfile.mkdtemp(prefix="weft-shark-")
        shutil.copytree(os.path.join(ROOT, "wireshark"), os.path.join(self.home, PLUGINS))
        self.own(self.home)
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.home)

    @staticmethod
    def own(folder):
        """Gives a folder to the user that tshark runs as."""
        if os.geteuid() == 0:
            for path, _, files in os.walk(folder):
                for each in [path, *(os.path.join(path, name) for name in files)]:
                    os.chown(each, NOBODY, NOBODY)

    def reachable(self, capture):
        """A copy of a capture where that user can read it, whatever the folders above the original allow."""
        copy = os.path.join(self.home, "capture" + os.path.splitext(capture)[1])
        shutil.copyfile(capture, copy)
        os.chmod(copy, 0o644)
        return copy

    def run(self, *arguments, prefs=(), program="tshark", environment=None, timeout=300):
        """Runs tshark; returns what it prints. Errors of the script fail, wherever they stand."""
        command = [program, *map(str, arguments), *(word for pref in prefs for word in ("-o", pref))]
        if os.geteuid() == 0:
            command = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *command]
        env = {"PATH": os.environ["PATH"], "HOME": self.home, "LC_ALL": "C.UTF-8", "TZ": "UTC"} | (
            environment or {}
        )
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
            env=env,
            cwd=self.home,
        )
        assert done.returncode == 0, done.stderr
        for text in (done.stdout, done.stderr):
            at = text.find(LUA_ERROR)
            assert at < 0, text[at : at + 400]
        return done.stdout

    def frames(self, capture, *arguments, prefs=(), layers="frame pkt_comment weft weft_cci"):
        """The frames of a capture; of other layers than those named only the names are kept."""
        told = self.run("-r", self.reachable(capture), "-T", "json", "-J", layers, *arguments, prefs=prefs)
        return [Frame(packet) for packet in json.loads(told, object_pairs_hook=list)]


def flat(value, name=""):
    """A value of `weft decode --json` as pairs of names and texts, as tshark writes them."""
    if isinstance(value, dict):
        return [pair for key, one in value.items() for pair in flat(one, f"{name}.{key}" if name else key)]
    if isinstance(value, list):
        return [pair for one in value for pair in flat(one, name)]
    return [(name, str(int(value)) if isinstance(value, bool) else str(value))]


def decoded(capture, *arguments):
    """What `weft decode --json` says of each frame of a capture."""
    told = subprocess.run(
        [weft(), "decode", "--json", *arguments, capture], capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stderr
    return [json.loads(line) for line in told.stdout.splitlines()]


def assert_equal(frames, lines):
    """Every frame has the fields that `weft decode` prints, and no other of them."""
    assert len(frames) == len(lines)
    for frame, line in zip(frames, lines, strict=True):
        record = {key: str(line.pop(key)) for key in RECORD if key in line}
        number, shown = record["number"], frame.record()
        if "interface" not in shown:
            assert record.pop("interface") == "0", number
        assert shown == record, number
        assert frame.weft() == sorted(flat(line)), number
