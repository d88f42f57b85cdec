"""weft as the switch of Mininet: `mn --custom weft_mininet.py --switch weft --controller none --topo tree,2 --test pingall`.

WeftSwitch is a Switch of Mininet; each is a `weft run` of its own, with a port for each interface.

Units: seconds.
Source: Mininet 2.3 (node.Switch, net.Mininet); docs/lab.md "Mininet".
"""

import os
import shlex
import shutil
import subprocess
import tempfile
import time

from mininet.clean import addCleanupCallback
from mininet.log import error, warn
from mininet.node import Switch

# The binary: $WEFT, or the one in PATH.
WEFT = os.environ.get("WEFT", "weft")
START_S, STOP_S = 30, 10
LOOK_S = 0.05


class WeftSwitch(Switch):
    """A switch without a controller. It forwards between all its interfaces, which are ports of their own names.

    config: file for `weft run -c`. opts: more arguments of `weft run`, split as a shell would.
    """

    # Those whose process runs.
    running = set()

    def __init__(self, name, config=None, opts="", **params):
        self.config_file, self.process, self.log = config, None, None
        super().__init__(name, opts=opts, **params)

    @classmethod
    def setup(cls):
        """Is called by Mininet before switches are made."""
        if shutil.which(WEFT) is None:
            error(f"*** {WEFT} is not in PATH: install weft, or set WEFT to the path of the binary\n")
            raise SystemExit(1)
        addCleanupCallback(cls.halt_all)

    @classmethod
    def halt_all(cls):
        """Is called by Mininet after a failure, when it cleans up."""
        for switch in list(cls.running):
            switch.halt()

    def command(self):
        """The command line of the switch, as a list: no shell reads names of interfaces."""
        # Should this process be killed, the switch is told to stop.
        command = ["setpriv", "--pdeathsig", "TERM", WEFT, "run", "--set", f"switch.name={self.name}"]
        command += ["-c", self.config_file] if self.config_file else []
        for intf in self.intfList():
            if intf.name != "lo":
                command += ["--port", f"{intf.name}={intf.name}"]
        return command + shlex.split(self.opts or "")

    def start(self, controllers):
        """Starts the switch and waits until it answers; controllers are not used."""
        if controllers:
            warn(f"*** {self.name}: weft has no controller; use --controller none\n")
        if self.ask("show", "ports")[0] == 0:
            raise RuntimeError(f"{self.name}: a switch of this name runs already")
        self.log = tempfile.TemporaryFile()
        # It has a namespace only where Mininet's switches have: `nsenter` enters that of the node's shell.
        command = ["nsenter", f"--net=/proc/{self.pid}/ns/net", *self.command()]
        # In a session of its own, it is not ended by Ctrl-C on Mininet's command line.
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, start_new_session=True
        )
        self.running.add(self)
        end = time.monotonic() + START_S
        while not self.connected():
            if self.process.poll() is not None or time.monotonic() > end:
                self.halt()
                said = self.said()
                raise RuntimeError(f"{self.name}: weft run did not start: {said}")
            time.sleep(LOOK_S)

    def said(self):
        """What the switch has written."""
        self.log.seek(0)
        return self.log.read().decode(errors="replace").strip()

    def ask(self, *words):
        """Runs a command of weft for this switch; its exit code and what it said."""
        command = [WEFT, *words, "--switch", self.name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def connected(self):
        """Whether the switch answers."""
        return self.process is not None and self.ask("show", "ports")[0] == 0

    def dpctl(self, *words):
        """`dpctl show ports` of Mininet's command line: `weft show ports` of this switch."""
        return self.ask(*words)[1]

    def halt(self):
        """Ends the process, by its own id, and waits for its end; its exit code."""
        process, self.process = self.process, None
        self.running.discard(self)
        if process is None:
            return 0
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        return process.returncode

    def stop(self, deleteIntfs=True):  # noqa: N803, a name of Mininet's
        """Stops the switch; its interfaces go, too, unless they are to stay."""
        code = self.halt()
        if code:
            error(f"*** {self.name}: weft run ended with {code}: {self.said()}\n")
        super().stop(deleteIntfs)

    def terminate(self):
        """Is called where a network is torn down without stop()."""
        self.halt()
        super().terminate()


switches = {"weft": WeftSwitch}
