"""`weft conform run` at a running switch, all in one namespace.

run(KIND, WORKERS, [PROFILE]) and refuses(OUT), to be called within namespaces (weftlive.inside).

Units: Gbit/s, bytes.
Source: docs/conform.md.
"""

import base64
import contextlib
import copy
import json
import socket
import struct
import subprocess
import threading

import weftlive

PORTS = 4
SAI = "127.0.0.1:9092"
# Shares are of an output's rate; what is in an egress queue lasts longer than a thread of the switch waits for a processor.
RATE_GBPS = 0.04
CONFIG = f"""
[switch]
num_priorities = 8
[run]
log = "warn"
workers = WORKERS
[sai]
listen = "{SAI}"
[ecn]
ecn_enabled = true
ecn_threshold_low = 20
ecn_threshold_high = 60
[port_defaults]
port_bandwidth_gbps = 1
max_rate_gbps = {RATE_GBPS}
strict = [7]
weights = [1, 1, 2, 2, 3, 3, 4, 4]
"""
BUFFER = """
[buffer]
shared_cells = 6000
cell_bytes = 2048
headroom_bytes = 131072
dt_alpha = [1, 1, 1, 0.125, 0.125, 1, 1, 1]
xon_offset_bytes = 20000
queue_capacity_bytes = 1000000
[pfc]
pfc_priorities = [3, 4]
watchdog_detect_ms = 0
"""
CASES = {"mesh", "dscp", "pcp", "hold", "xoff", "xon", "headroom", "lossy", "watermarks", "ecn", "shares"}
NOT_EXACT = {"xon", "watermarks"}


def switch(kind, workers, buffer, *flags):
    """A running switch between four cables; whose other ends are in the same namespace."""
    weftlive.sh("ip link set lo up")
    for port in range(PORTS):
        weftlive.plug(f"sw{port}", f"h{port}")
    ports = "".join(
        f'[[port]]\nname = "p{port}"\ndevice = "sw{port}"\nkind = "{kind}"\n' for port in range(PORTS)
    )
    return weftlive.Rig(CONFIG.replace("WORKERS", str(workers)) + buffer + ports, *flags)


def conform(*flags):
    """Exit code of `weft conform run`, what became of each case, and what else it said."""
    links = [f"--link=p{port}=h{port}" for port in range(PORTS)]
    command = [weftlive.weft(), "conform", "run", "--json", *links, *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    report = json.loads(done.stdout) if done.stdout else {"cases": []}
    verdicts = {one["case"]: one["verdict"] for one in report["cases"]}
    return done.returncode, verdicts, done.stdout + done.stderr


def params():
    """What `weft conform params` says."""
    return json.loads(weftlive.Rig.ask("conform", "params", "--json"))


def assert_nothing_is_held():
    """All ports send."""
    ports = json.loads(weftlive.Rig.ask("show", "ports", "--json"))["ports"]
    assert not any(port["tx_off"] for port in ports), ports


def check(kind, workers, profile=None):
    """All cases pass, by the management socket and by SAI's service; those that cannot be exact are said to be skipped."""
    flags = ["--profile", profile] if profile else []
    with switch(kind, workers, "" if profile else BUFFER, *flags):
        with open("/run/params.json", "w", encoding="ascii") as file:
            json.dump(params(), file)
        ways = ([], ["--server", SAI, "--params", "/run/params.json"])
        for way in ways if not profile else ways[:1]:
            code, verdicts, said = conform(*way)
            print(said)
            skipped = NOT_EXACT if int(workers) > 1 else set()
            if profile:  # its queues hold less than ECN's threshold, or than a tenth of a second
                skipped |= {case for case in ("ecn", "shares") if verdicts.get(case) == "skipped"}
            expected = {case: "skipped" if case in skipped else "passed" for case in CASES}
            assert (code, verdicts) == (0, expected), said


def spoil(good):
    """For each case that goes by a parameter: its name, and parameters that are wrong by as little as can be."""

    def changed(change):
        wrong = copy.deepcopy(good)
        change(wrong)
        return wrong

    def row(key, add, lossless=True):
        def change(wrong):
            for one in wrong["rows"]:
                if one["lossless"] == lossless:
                    one[key] += add

        return changed(change)

    def swap(key, one, other):
        def change(wrong):
            wrong[key][one], wrong[key][other] = wrong[key][other], wrong[key][one]

        return changed(change)

    for add in (1, -1):
        yield "xoff", row("trig_pfc", add)
        yield "xon", row("dismiss_pfc", add)
        yield "headroom", row("trig_ingr_drp", add)
        yield "lossy", row("trig_egr_drp", add, lossless=False)
        yield "watermarks", row("trig_pfc", add)
    yield "dscp", swap("dscp_to_pri", 7, 8)
    yield "pcp", swap("pcp_to_pri", 2, 3)
    yield "mesh", swap("dscp_to_pri", 0, 8)
    frame = good["cell_size"] * good["packet_cells"]
    yield "ecn", changed(lambda wrong: wrong["ecn"].update(high_bytes=good["ecn"]["high_bytes"] - 8 * frame))
    yield "ecn", changed(lambda wrong: wrong["ecn"].update(low_bytes=good["ecn"]["high_bytes"] - frame))
    weights = good["ports"][0]["weights"]
    yield "shares", changed(lambda wrong: [one.update(weights=weights[::-1]) for one in wrong["ports"]])


def notices():
    """A case fails where the switch does something else than the parameters say."""
    with switch("af_packet", 1, BUFFER):
        good = params()
        for case, wrong in spoil(good):
            with open("/run/params.json", "w", encoding="ascii") as file:
                json.dump(wrong, file)
            code, verdicts, said = conform("--params", "/run/params.json", "--case", case, "--limit", "3")
            print(said)
            assert (code, verdicts) == (1, {case: "failed"}), said
        assert_nothing_is_held()


def refuses():
    """What cannot be begun is refused with what is wrong, and nothing is held afterwards."""
    with switch("af_packet", 1, BUFFER):
        with open("/run/params.json", "w", encoding="ascii") as file:
            json.dump(params(), file)
        with open("/run/no-pool.json", "w", encoding="ascii") as file:
            json.dump(params() | {"buf_pool_roid": "0xpool"}, file)
        for flags, expected, part in (
            (["--link=p9=h1"], 2, 'no port "p9"'),
            (["--link=p1=h9"], 3, 'interface "h9"'),
            (["--server", "127.0.0.1:1", "--params", "/run/params.json"], 4, "connect to 127.0.0.1:1"),
            (["--params", "/run/weft.toml"], 2, "--params /run/weft.toml"),
            (["--params", "/run/no-pool.json"], 2, 'found "0xpool"'),
        ):
            code, verdicts, said = conform(*flags)
            print(said)
            assert code == expected and not verdicts and part in said, (code, said)
        assert_nothing_is_held()
        answers = {
            b"": "no answer",
            b"GET / HTTP/1.1": "a message of more than",
            b"\x80\x01\x00\x02" + struct.pack(">I4sI", 4, b"port", 1) + b"\x00": "expected a value",
            b"\x80\x01\x00\x03" + struct.pack(">IIB", 0, 1, 11) + b"\0\1\0\0\0\4oops\0": "oops",
            b"\x80\x01\x00\x02" + b"\x7f" * 20: "a message of more than",
        }
        for answer, part in answers.items():
            with serving(answer) as address:
                code, verdicts, said = conform("--server", address, "--params", "/run/params.json")
            assert code not in (0, 1, 101) and not verdicts and part in said, (answer, code, said)
        for call in ("", "%%%", "gAEAAQ==", base64.b64encode(b"\x80\x01\x00\x01" + b"\xff" * 40).decode()):
            answer = management({"cmd": "sai", "call": call})
            assert answer["error"]["code"] == "bad_request", (call, answer)
        unknown = b"\x80\x01\x00\x01" + struct.pack(">I4sI", 4, b"none", 7) + b"\x00"
        answer = base64.b64decode(management({"cmd": "sai", "call": base64.b64encode(unknown).decode()})["ok"])
        assert answer[3] == 3 and b"no method none" in answer, answer  # an exception, as over TCP


@contextlib.contextmanager
def serving(answer):
    """A server that answers its first client with these bytes, whatever is asked, and ends; its address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            client, _ = listening.accept()
            with client:
                client.recv(1000)
                client.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        thread.join(10)


def management(request):
    """The answer to one request at the management socket."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect("/run/weft/weft/mgmt.sock")
        client.sendall(json.dumps(request).encode() + b"\n")
        return json.loads(client.makefile().readline())
