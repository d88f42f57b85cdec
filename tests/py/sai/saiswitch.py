"""A running switch with SAI's service between veths, for the cases of saiobjects.py and the like.

run(KIND, WORKERS, STUBS, OUT, [CASE]...) within namespaces (weftlive.inside) writes JSON: of each case "passed",
or why not.

Units: octets without FCS, Gbit/s.
Source: docs/configuration.md; docs/spec/pipeline.md §4.
"""

import json
import os
import sys
import time
import tomllib
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]

import weftlive  # noqa: E402
from saioracle import Oracle  # noqa: E402

ADDRESS = "127.0.0.1:9092"
PORTS = 4
DSCP_TO_PRI = [1] * 64
for _pri, _dscp in enumerate((8, 0, 5, 3, 4, 46, 48, 56)):
    DSCP_TO_PRI[_dscp] = _pri
PCP_TO_PRI = [1, 0, 2, 3, 4, 5, 6, 7]
PRI_TO_PG = [0, 0, 0, 3, 4, 0, 0, 7]
# The kernel forwards frames by itself only where the far end has NAPI, and where no short queue is marked.
SETTINGS = {
    "switch": {"num_priorities": 8},
    "run": {"log": "warn"},
    "classify": {"dscp_to_pri": DSCP_TO_PRI, "pcp_to_pri": PCP_TO_PRI, "pri_to_pg": PRI_TO_PG},
    "buffer": {
        "buffer_size_mb": 16,
        "cell_bytes": 2048,
        "headroom_bytes": 131_072,
        "dt_alpha": [1, 1, 1, 0.125, 0.125, 1, 1, 1],
        "xon_offset_bytes": 20_000,
    },
    "ecn": {"ecn_enabled": False},
    "pfc": {"pfc_priorities": [3, 4], "watchdog_detect_ms": 0},
    "port_defaults": {"strict": [], "scheduler": "dwrr", "weights": [1] * 8, "port_bandwidth_gbps": 1},
    "sai": {"listen": ADDRESS},
}


def merged(settings, changes):
    """Sections, those of `changes` over those of `settings`."""
    return settings | {name: settings.get(name, {}) | keys for name, keys in changes.items()}


def value(one):
    """A value as TOML."""
    return json.dumps(one)


def toml(settings, kind, stations):
    """The text of a configuration whose ports are of a kind; stations are behind them, and never age."""
    lines = []
    for name, keys in settings.items():
        lines += [f"[{name}]", *(f"{key} = {value(one)}" for key, one in keys.items())]
    for port, station in enumerate(stations):
        lines += ["[[port]]", f'name = "p{port}"', f'device = "sw{port}"', f'kind = "{kind}"']
        lines += ["[[static_entry]]", f'addr = "{station}"', f'port = "p{port}"']
    return "\n".join(lines) + "\n"


def run(kind, workers, stubs, out, *names):
    """Runs cases, or all, on one switch; a case that fails does not stop the rest."""
    sys.path.insert(0, stubs)
    import saibench  # of the stubs, which are made for this run
    import saibuffer
    import saiforward
    import saihostile
    import saiobjects

    weftlive.sh("ip link set lo up")
    for port in range(PORTS):
        weftlive.plug(f"sw{port}", f"h{port}")
        if kind != "af_packet":
            weftlive.sh(f"ethtool -K h{port} gro on")
    settings = merged(SETTINGS, {"run": {"workers": int(workers)}})
    stations = [saibench.mac(port) for port in range(PORTS)]
    text = toml(settings, kind, stations)
    with weftlive.Rig(text) as rig:

        def reload(sections):
            changed = toml(merged(settings, sections), kind, stations)
            with open(rig.file, "w", encoding="ascii") as file:
                file.write(changed)
            assert rig.ask("reload") is not None, "the switch refuses the changed configuration"
            return Oracle(tomllib.loads(changed))

        def memory_kib():
            with open(f"/proc/{rig.process.pid}/status", encoding="ascii") as status:
                return int(next(line.split()[1] for line in status if line.startswith("VmRSS:")))

        bench = saibench.Bench(
            ADDRESS,
            [f"p{port}" for port in range(PORTS)],
            [f"h{port}" for port in range(PORTS)],
            Oracle(tomllib.loads(text)),
            reload,
            memory_kib,
        )
        results, cases = {}, saiobjects.CASES | saiforward.CASES | saibuffer.CASES | saihostile.CASES
        if any(name in saihostile.CASES for name in names or cases):
            saihostile.begin(bench)
        for name in names or cases:
            start = time.monotonic()
            try:
                bench.fresh()
                cases[name](bench)
                results[name] = "passed"
            except Exception:  # the next case has its own chance
                results[name] = traceback.format_exc()
            print(f"{name}: {results[name]} ({time.monotonic() - start:.2f} s)", flush=True)
            with open(out, "w", encoding="utf-8") as file:
                json.dump(results, file)
        bench.fresh()
        bench.close()
        if kind == "af_xdp" and "every_pair_of_ports_passes_every_priority" in results:
            # Frames went by the kernel's own path, too, which a held output must close first.
            assert sum(row["express"] for row in rig.show()["ports"]) > 0
