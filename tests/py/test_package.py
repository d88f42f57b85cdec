"""The package for Debian: its files, what is in them, and its unit, run as systemd would run it.

A package of the binary under test (packaging/deb.py, cargo-deb), taken apart by dpkg-deb; weft in namespaces.

Units: seconds.
Source: docs/lab.md "The package"; deb(5), systemd.service(5), systemd.exec(5), sd_notify(3).
"""

import configparser
import gzip
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time

import pytest

import weftlive
from weftlive import ROOT, sh, weft

MISSING = None if shutil.which("cargo-deb") else "cargo-deb missing: tools/setup.sh installs it"
packaged = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
UNIT = "usr/lib/systemd/system/weft@.service"
EXAMPLES = "usr/share/doc/weft/examples"
LIBRARIES = "usr/lib/{}-linux-gnu/wireshark".format(os.uname().machine)
WAIT_S = 30
# Of systemd-analyze security, times ten: without network access and capabilities no switch could work.
EXPOSURE_MAX = 30


def made_by(*command, **options):
    """What a command prints; it must succeed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{command}: {done.stderr or done.stdout}"
    return done.stdout


@pytest.fixture(name="package", scope="module")
def made(tmp_path_factory):
    """The package, quickly packed, and its files."""
    folder = tmp_path_factory.mktemp("deb")
    maker = [sys.executable, os.path.join(ROOT, "packaging", "deb.py"), weft(), str(folder)]
    made_by(*maker, "--no-strip", "--fast", "--compress-type=gz", "--offline", "--locked")
    (path,) = folder.glob("*.deb")
    made_by("dpkg-deb", "--raw-extract", str(path), str(folder / "root"))
    return path, folder / "root"


def unit(root):
    """The sections of the unit; a key that is there twice is an error."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str
    parser.read(root / UNIT)
    return parser


@packaged
def test_the_package_has_its_files_with_modes_and_owners(package):
    path, root = package
    files = {str(one.relative_to(root)) for one in root.rglob("*") if one.is_file()}
    lua = {f"{LIBRARIES}/plugins/weft/{name}" for name in os.listdir(os.path.join(ROOT, "wireshark", "weft"))}
    assert files == lua | {
        "DEBIAN/control",
        "DEBIAN/postinst",
        "DEBIAN/postrm",
        "usr/bin/weft",
        "usr/share/man/man1/weft.1.gz",
        "usr/share/bash-completion/completions/weft",
        "usr/share/zsh/vendor-completions/_weft",
        "usr/share/fish/vendor_completions.d/weft.fish",
        "usr/share/doc/weft/copyright",
        f"{EXAMPLES}/switch.toml",
        f"{EXAMPLES}/containerlab/leaf.clab.yml",
        f"{EXAMPLES}/containerlab/pair.clab.yml",
        "usr/share/weft/weft_mininet.py",
        f"{LIBRARIES}/plugins/weft.lua",
        f"{LIBRARIES}/extcap/weft-extcap",
        UNIT,
    }
    programs = {"usr/bin/weft", f"{LIBRARIES}/extcap/weft-extcap", "DEBIAN/postinst", "DEBIAN/postrm"}
    for name in files:
        assert stat.S_IMODE(os.stat(root / name).st_mode) == (0o755 if name in programs else 0o644), name
    listed = made_by("dpkg-deb", "--contents", str(path)).splitlines()
    assert all(line.split()[1] in ("0/0", "root/root") for line in listed), listed


@packaged
def test_what_is_installed_works(package):
    path, root = package

    def field(name):
        return made_by("dpkg-deb", "--field", str(path), name).strip()

    version = made_by(str(root / "usr/bin/weft"), "--version").split()[1]
    assert (field("Package"), field("Version").split("-")[0]) == ("weft", version)
    assert field("Architecture") == made_by("dpkg", "--print-architecture").strip()
    assert "libc6" in field("Depends"), field("Depends")
    page = gzip.decompress((root / "usr/share/man/man1/weft.1.gz").read_bytes()).decode()
    assert ".TH weft 1" in page and "CLAB_INTFS" in page
    completions = root / "usr/share"
    made_by("bash", "-n", str(completions / "bash-completion/completions/weft"))
    assert (completions / "zsh/vendor-completions/_weft").read_text().startswith("#compdef weft")
    assert "complete -c weft" in (completions / "fish/vendor_completions.d/weft.fish").read_text()
    for script in ("postinst", "postrm"):
        made_by("sh", "-n", str(root / "DEBIAN" / script))
    made_by(str(root / "usr/bin/weft"), "config", "check", str(root / EXAMPLES / "switch.toml"))


@packaged
def test_the_dissector_is_loaded_from_where_it_is_installed(package):
    _, root = package
    folders = made_by("tshark", "-G", "folders")
    installed = {line.split("\t")[1] for line in folders.splitlines() if line.startswith(("Global Plugins", "Global Lua"))}
    assert f"/{LIBRARIES}/plugins" in installed, folders


@packaged
def test_the_unit_says_what_the_documentation_says(package):
    _, root = package
    service = unit(root)["Service"]
    assert service["Type"] == "notify" and int(service["WatchdogSec"]) > 0
    with open(os.path.join(ROOT, "docs/privileges.md"), encoding="utf-8") as file:
        row = next(line for line in file if line.startswith("| ports of kind `af_xdp` with express"))
    wanted = {f"CAP_{name.upper()}" for name in re.findall(r"`(\w+)`", row.split("|")[2])}
    assert set(service["AmbientCapabilities"].split()) == wanted
    assert set(service["CapabilityBoundingSet"].split()) == wanted
    with open(os.path.join(ROOT, "control/src/live/confine/calls.rs"), encoding="utf-8") as file:
        families = set(re.findall(r"libc::(AF_\w+)", file.read()))
    assert set(service["RestrictAddressFamilies"].split()) == families


@packaged
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze missing")
def test_systemd_finds_no_fault_with_the_unit(package, tmp_path):
    _, root = package
    # The program is not installed here: it is the one of the package.
    text = (root / UNIT).read_text().replace("/usr/bin/weft", str(root / "usr/bin/weft"))
    instance = tmp_path / "weft@lab.service"
    instance.write_text(text.replace("Documentation=man:weft(1)\n", ""))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(instance)], capture_output=True, text=True, check=False
    )
    own = [line for line in done.stderr.splitlines() if "weft" in line]
    assert done.returncode == 0 and not own, done.stderr
    said = made_by("systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE_MAX}", str(instance))
    print(said.splitlines()[-1])


def run_unit(root):
    """Does by hand what the unit says: its user, capabilities, environment, folder; then reload, watchdog and stop."""
    service = configparser.ConfigParser(interpolation=None)
    service.optionxform = str
    service.read(os.path.join(root, UNIT))
    service = service["Service"]
    sh("mkdir -p /run/etc/weft && mount --bind /run/etc /etc")
    shutil.copy(os.path.join(root, EXAMPLES, "switch.toml"), "/etc/weft/lab.toml")
    for name in ("eth1", "eth2"):
        sh(f"ip link add {name} type veth peer name far-{name} && ip link set {name} up && ip link set far-{name} up")
    command = service["ExecStart"].replace("%i", "lab").split()
    assert command[0] == "/usr/bin/weft"
    command[0] = "/run/weft-binary"
    shutil.copy(os.path.join(root, "usr/bin/weft"), command[0])
    user, folder = "65534", "/run/" + service["RuntimeDirectory"].replace("%i", "lab")
    os.makedirs(folder)
    os.chmod(folder, int(service["RuntimeDirectoryMode"], 8))
    os.chown(folder, int(user), int(user))
    held = ",".join("+" + name[4:].lower() for name in service["AmbientCapabilities"].split())
    setpriv = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--no-new-privs"]
    setpriv += [f"--inh-caps=-all,{held}", f"--ambient-caps=-all,{held}", f"--bounding-set=-all,{held}"]
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind("\0weft-test-unit")
    manager.settimeout(WAIT_S)

    def told(start):
        while not (text := manager.recv(4096).decode()).startswith(start):
            pass
        return text

    watchdog = {"NOTIFY_SOCKET": "@weft-test-unit", "WATCHDOG_USEC": str(int(service["WatchdogSec"]) * 1_000_000)}
    process = subprocess.Popen([*setpriv, *command], env={**os.environ, **watchdog}, stderr=subprocess.PIPE, text=True)
    try:
        told("READY=1")
        told("WATCHDOG=1")
        # By the name of the instance, as an operator asks; root may.
        shown = made_by(weft(), "show", "ports", "--switch", "lab")
        assert "eth1" in shown and "eth2" in shown, shown
        assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"
        process.send_signal(signal.SIGHUP)
        told("RELOADING=1")
        told("READY=1")
        begun = time.monotonic()
        process.send_signal(signal.SIGTERM)
        told("STOPPING=1")
        assert process.wait(WAIT_S) == 0, process.stderr.read()
        print(f"stopped in {time.monotonic() - begun:.1f} s")
    finally:
        process.kill()
        print(process.stderr.read())


@packaged
@pytest.mark.skipif(weftlive.missing() is not None or os.geteuid() != 0, reason="namespaces as root missing")
def test_the_unit_starts_reloads_and_stops_a_switch(package):
    weftlive.inside("test_package", "run_unit", package[1])
