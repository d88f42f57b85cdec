"""The page of a running switch in Debian's Chromium: an incast is seen where it is, pauses at their port and class.

`weft run --metrics`, `weft traffic` hosts, a browser in the same namespaces; `weft show` says what must be seen.

Units: cells; frames; nanoseconds.
Source: docs/page.md; docs/spec/pipeline.md §9; IEEE 802.1Q 36.

With WEFT_PAGE_PNG=FILE a picture of the incast is written there: docs/page.png was.
"""

import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request

import pytest

import weftbrowser
import weftlive
from weftlive import FIRST, Rig, plug, sh, weft

MISSING = weftlive.missing() or weftbrowser.missing()
SENDERS = range(1, 4)
VICTIM = 4
PRI = 2
AT = "127.0.0.1:9464"
CONFIG = """
[pfc]
pfc_priorities = [2]
[port_defaults]
rx_ring_frames = 4096
"""
PORT = '[[port]]\nname = "p{n}"\nkind = "{kind}"\ndevice = "sw{n}"\n{extra}'
# Dataset of the marks of the time line, and of the cells of a map.
MARKS = "[...document.querySelectorAll('#pauses rect[data-port]')].map((m) => ({...m.dataset}))"
CELLS = (
    "[...document.querySelectorAll('#{} rect')]"
    ".map((c) => ({{...c.dataset, shade: +c.getAttribute('fill-opacity')}}))"
)
ROWS = "[...document.querySelectorAll('#pfc tbody tr')].map((r) => [...r.cells].map((c) => c.textContent))"
TEXT = "document.getElementById('{}')?.textContent ?? ''"
HOT = "({...document.getElementById('hot').dataset})"


def traffic(station, *options):
    """A weft host on its end of the cable."""
    command = [weft(), "traffic", f"h{station}", "--station", station, "--size", 700, "--json", *options]
    command = [*(FIRST if station == VICTIM else []), *map(str, command)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def get(path, **headers):
    """Status, headers and body of a request to the metrics server."""
    request = urllib.request.Request(f"http://{AT}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as response:
            return response.status, response.headers, response.read().decode()
    except urllib.error.HTTPError as err:
        return err.code, err.headers, err.read().decode()


def pause(interface):
    """One PFC frame that pauses class 3 for as long as one can, from the peer at `interface`."""
    frame = bytes.fromhex("0180c2000001 020000000099 8808 0101 0008".replace(" ", ""))
    frame += b"".join(b"\xff\xff" if n == 3 else b"\0\0" for n in range(8))
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
        raw.bind((interface, 0))
        raw.send(frame.ljust(60, b"\0"))


def by_place(queues):
    """What is said of queues, by port and priority."""
    return {(row["port"], row["pri"]): row for row in queues}


def look(page, rig):
    """What the page shows is what `weft show` says of the same queues, once nothing changes any more.

    The victim is held, and the senders are paused. On a busy machine they may only seem to be: all is compared again.
    """
    end = time.monotonic() + weftbrowser.TIMEOUT_S
    while True:
        try:
            alike(page, rig)
            return
        except AssertionError:
            if time.monotonic() > end:
                raise
        time.sleep(0.3)


def alike(page, rig):
    """The page shows the queues as they are now."""
    queues = by_place(rig.show()["queues"])
    victim = queues[f"p{VICTIM}", PRI]
    assert victim["depth_cells"] > 0, victim
    seen = page.value(HOT)
    assert seen.get("cells") == str(victim["depth_cells"]), (seen, victim)
    assert (seen["port"], seen["pri"]) == (f"p{VICTIM}", str(PRI)), seen
    depths = page.value(CELLS.format("depth"))
    assert len(depths) == len(queues)
    for cell in depths:
        assert int(cell["cells"]) == queues[cell["output"], int(cell["pri"])]["depth_cells"], cell
    hottest = max(depths, key=lambda cell: cell["shade"])
    assert (hottest["output"], hottest["pri"], hottest["shade"]) == (f"p{VICTIM}", str(PRI), 1), hottest
    waiting = {of["input"]: of for of in victim["waiting"]}
    assert sorted(waiting) == [f"p{n}" for n in SENDERS], waiting
    for cell in page.value(CELLS.format("voq")):
        of = waiting.get(cell["input"]) if cell["output"] == f"p{VICTIM}" else None
        assert (int(cell["frames"]), int(cell["cells"])) == (of["lossless_frames"] if of else 0, 0), cell
    # The same of /api/state, field by field.
    state = json.loads(get("/api/state")[2])
    assert by_place(state["switch"]["queues"]) == queues
    assert state["switch"]["epoch"] == rig.show()["epoch"]


def run_page(engine, folder):
    """An incast, live; then held, so that page and `weft show` can be compared; then let go."""
    sh("ip link set lo up")
    for n in (*SENDERS, VICTIM):
        plug(f"sw{n}", f"h{n}")
    ports = "".join(
        PORT.format(n=n, kind=engine, extra="max_rate_gbps = 0.1\n" if n == VICTIM else "")
        for n in (*SENDERS, VICTIM)
    )
    record = os.path.join(folder, "incast.record")
    with Rig(CONFIG + ports, "--metrics", AT, "--record", record) as rig, weftbrowser.Browser(folder) as browser:
        status, headers, _ = get("/")
        assert status == 200 and headers["X-Content-Type-Options"] == "nosniff", headers
        assert headers["Content-Security-Policy"].startswith("default-src 'none'; "), headers
        assert get("/", Host="rebind.example")[0] == 403
        page = browser.open(f"http://{AT}/")
        page.until("a state", "document.body.dataset.number > 1")
        receiver = traffic(VICTIM)
        line = receiver.stderr.readline()  # a host that is not there yet loses what is flooded to it
        assert "is open" in line, line + receiver.stderr.read()
        load = ("--to", VICTIM, "--pri", PRI, "--rate", "80Mbps", "--duration", 300)
        senders = [traffic(n, *load) for n in SENDERS]
        try:
            victim = {"port": f"p{VICTIM}", "pri": str(PRI)}
            page.until("the incast", HOT, lambda hot: {**hot, **victim} == hot)
            asked = {(f"p{n}", str(PRI), "asked") for n in SENDERS}
            marks = lambda seen: {(m["port"], m["pri"], m["side"]) for m in seen}  # noqa: E731
            # Each of them at some time: senders that get little of a busy machine are seldom paused at once.
            ever = set()
            page.until("pauses at the senders", MARKS, lambda seen: ever.update(marks(seen)) or ever == asked)
            if picture := os.environ.get("WEFT_PAGE_PNG"):
                time.sleep(12)  # a whole time line
                page.screenshot(picture, 1100, 1500)
            rig.ask("port", f"p{VICTIM}", "tx", "off")
            look(page, rig)
            classes = {row["port"]: row["classes"] for row in rig.show()["pfc"] if row["pri"] == PRI}
            for row in page.value(ROWS):
                assert row[1] == str(PRI) and row[2] == ", ".join(map(str, classes[row[0]])), row
            # The peer of the victim pauses it, too: the other side, at its port and class.
            pause(f"h{VICTIM}")
            obeyed = (f"p{VICTIM}", str(PRI), "obeyed")
            page.until("the victim's pause", MARKS, lambda seen: marks(seen) == asked | {obeyed})
            # A cell is clicked: what is known of its queue is shown.
            page.click(f"#depth rect[data-output=p{VICTIM}][data-pri='{PRI}']")
            title = f"Output p{VICTIM}, priority {PRI}"
            page.until("the queue", TEXT.format("picked"), lambda text: title in text)
            rig.ask("port", f"p{VICTIM}", "tx", "on")
        finally:
            for host in senders:
                host.terminate()
            for host in senders:
                host.communicate(timeout=20)
        rig.show_settled()
        page.until("an empty switch", TEXT.format("hot"), lambda text: text == "Nothing is queued.")
        receiver.terminate()
        receiver.communicate(timeout=20)
        # In no browser does a page from elsewhere get anything: this one has another origin.
        other = browser.open("about:blank")
        read = f"fetch('http://{AT}/api/state').then((r) => r.text()).catch(() => 'refused')"
        assert other.value(read) == "refused"
        assert page.problems == [], page.problems
        assert {url.split(AT)[1] for url in page.requests} == {"/", "/api/events"}, page.requests
        assert all(url.startswith(f"http://{AT}/") for url in page.requests), page.requests
        rig.stop()
        replayed(browser, record, folder)
        simulated(browser, folder)


def replayed(browser, record, folder):
    """The page of the recorded run shows the same, from a file, and loads nothing."""
    path = os.path.join(folder, "replay.html")
    done = subprocess.run(
        [weft(), "replay", "--record", record, "--page", path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    page = browser.open(f"file://{path}")
    hot = page.until("the hot queue", HOT, lambda hot: hot.get("port"))
    assert (hot["port"], hot["pri"]) == (f"p{VICTIM}", str(PRI)) and int(hot["cells"]) > 0, hot
    seen = {(m["port"], m["pri"], m["side"]) for m in page.value(MARKS)}
    asked = {(f"p{n}", str(PRI), "asked") for n in SENDERS}
    assert seen == asked | {(f"p{VICTIM}", str(PRI), "obeyed")}, seen
    slide = "(() => { const t = document.getElementById('time'); t.value = 0; t.dispatchEvent(new Event('input')); })()"
    page.value(slide)
    page.until("the first state", TEXT.format("hot"), lambda text: text == "Nothing is queued.")
    assert page.problems == [] and page.requests == [f"file://{path}"], (page.problems, page.requests)


def simulated(browser, folder):
    """So does the page of a run in virtual time, with its series inside."""
    path = os.path.join(folder, "sim.html")
    scenario = os.path.join(weftlive.ROOT, "scenarios", "setting-c-rate-control.toml")
    command = [weft(), "sim", "run", scenario, "--page", path, "--json", "-"]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    page = browser.open(f"file://{path}")
    hot = page.until("the hot queue", HOT, lambda hot: hot.get("port"))
    switch = results["switches"][0]
    deepest = max(
        (max(series["max"]), f"port {series['port']}", str(series["pri"]))
        for series in results["series"]
        if series["kind"] == "queue_depth_bytes" and series["node"] == switch["name"]
    )
    want = (-(-deepest[0] // switch["cell_bytes"]), *deepest[1:])
    assert (int(hot["cells"]), hot["port"], hot["pri"]) == want, (hot, want)
    assert page.problems == [] and page.requests == [f"file://{path}"], (page.problems, page.requests)


# Cells and words that end beyond the screen, or beyond what scrolls, or have letters too small to be read.
CUT = """(() => {
  const width = document.documentElement.clientWidth;
  const seen = [...document.querySelectorAll('td, th, svg text, p')].filter((e) => e.getClientRects().length);
  const cut = (e) => { const b = e.getBoundingClientRect(); return b.right > width + 1 || b.left < -1; };
  const small = (e) => e.closest('svg') !== null && e.getBoundingClientRect().height < 9;
  return seen.filter((e) => cut(e) || small(e)).map((e) => e.textContent);
})()"""


@pytest.mark.skipif(weftbrowser.missing() is not None, reason=str(weftbrowser.missing()))
def test_page_of_a_simulation_has_its_counts_and_fits_a_phone(tmp_path):
    """At the state with the deepest queue, which is shown first, PAUSE of the run is counted; 390 pixels suffice for all."""
    scenario = os.path.join(weftlive.ROOT, "scenarios", "setting-c-standard-pfc-ecn.toml")
    path = tmp_path / "sim.html"
    done = subprocess.run(
        [weft(), "sim", "run", scenario, "--page", path, "--json", "-"], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    queues = [
        (f"port {number}", pri, queue)
        for number, port in enumerate(json.loads(done.stdout)["switches"][0]["ports"])
        for pri, queue in enumerate(port["queues"])
    ]
    keys = ("xoff", "xon", "pause_tx_frames", "pause_rx_frames")
    want = {
        (port, f"{pri}"): [f"{queue[key]:,}" for key in keys]
        for port, pri, queue in queues
        if any(queue[key] for key in (*keys, "storms", "paused_ps"))
    }
    assert sum(queue["pause_tx_frames"] for *_, queue in queues) > 0, "the run has PAUSE"
    with weftbrowser.Browser(tmp_path) as browser:
        page = browser.open(f"file://{path}")
        page.until("the hot queue", HOT, lambda hot: hot.get("port"))
        heads = page.value("[...document.querySelectorAll('#pfc th')].map((c) => c.textContent)")
        rows = [dict(zip(heads, row, strict=True)) for row in page.value(ROWS)]
        shown = {
            (row["Port"], row["Priority"]): [*row["XOFF / XON"].split(" / "), row["PAUSE sent"], row["PAUSE received"]]
            for row in rows
        }
        assert shown == want
        for row in rows:
            assert all(row.values()), f"a column is empty: {row}"
        wide = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": False}
        page.call("Emulation.setDeviceMetricsOverride", **wide)
        page.value("document.getElementById('pri').dispatchEvent(new Event('change'))")
        assert page.value(CUT) == []
        assert page.problems == [], page.problems


@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
@pytest.mark.parametrize("engine", ["af_packet", "af_xdp"])
def test_page(engine, tmp_path):
    if engine == "af_xdp" and weftlive.xdp_kind() != "af_xdp":
        pytest.skip("no CAP_BPF, or not root: no program may be loaded")
    weftlive.inside("test_live_page", "run_page", engine, str(tmp_path), timeout=300)
