"""The page of a fabric (`weft fm topology --html`) in Debian's Chromium: all that the manager knows is on it.

`weft fabric up` in one process, and as processes, where the manager asks hosts by their sockets and a link goes
down; `weft fm ... --json` says what must be seen.

Units: bytes.
Source: docs/fm.md "The page of a fabric".
"""

import concurrent.futures
import contextlib
import json
import os
import re
import subprocess
import threading
import time
import tomllib

import pytest

import weftbrowser
import weftlive
from weftlive import sh, weft

MISSING = weftlive.missing() or weftbrowser.missing()
TIMEOUT_S = 60
DIR = "/run/weft/fabric"
SOCKET = f"{DIR}/fm/fm.sock"
BASE, SEGMENT = 0x10000000000, 64 << 30
TOPOLOGY = """
switch = [{ name = "sw0" }, { name = "sw1" }]
link = [{ ends = ["sw0", "sw1"], count = 2 }]
[[host]]
name = "h0"
at = "sw0"
bind = ["xpu0", "ep1"]
[[host]]
name = "h1"
at = "sw1"
[[device]]
name = "xpu0"
at = "sw0"
kind = "accelerator"
[[device]]
name = "ep1"
at = "sw1"
kind = "memory"
capacity_mib = 256
[[gfd]]
name = "g"
at = ["sw0", "sw1"]
count = 2
capacity_mib = 1024
[[memory]]
name = "pool"
hosts = ["h0", "h1"]
devices = ["xpu0"]
gfds = ["g"]
len = 0x20000000
granularity = 4096
hpa = 0x10000000000
"""
MEMORY, GIM, P2P = "far-pool", "shown", "direct"
# Names that would be markup, or end it, or move a terminal's cursor.
HOSTILE = ("<script>hit=1//", '"]]><b id=hit>\'', "<b>direct</b>", "two words", "\x1b[2J", "")
ROWS = (
    "Object.fromEntries([...document.querySelectorAll('tr[data-{0}]')]"
    ".map((r) => [r.dataset.{0}, [...r.cells].map((c) => c.textContent)]))"
)
DRAWN = (
    "Object.fromEntries([...document.querySelectorAll('#drawing g[id]')].map((g) => {"
    " const b = g.getBoundingClientRect();"
    " return [g.id, {kind: g.getAttribute('class'), seen: b.width > 0 || b.height > 0, text: g.textContent}]; }))"
)
MAPS = (
    "[...document.querySelectorAll('section.addresses')].map((s) => ({at: s.dataset.map, text: s.textContent,"
    " base: s.querySelector('.window')?.dataset.base, limit: s.querySelector('.window')?.dataset.limit,"
    " strips: [...s.querySelectorAll('.strip')].map((g) => ({base: g.dataset.base,"
    "   ways: [...g.querySelectorAll('.way')].map((w) => w.dataset.pid)})),"
    " granted: [...s.querySelectorAll('tr[data-granted]')].map((r) => r.dataset.granted)}))"
)
LOAD = r"(\d+\.\d) ([kMG])bit/s over (\d+) ms"
UNIT = {"k": 1e3, "M": 1e6, "G": 1e9}
MARKED = "[...document.querySelectorAll('.picked')].map((e) => e.id).sort()"


def fm(*words):
    """Output of `weft fm`, which must succeed."""
    done = subprocess.run([weft(), "fm", *words, "--socket", SOCKET], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


def refused_name(*words):
    """`weft fm` must refuse the name in its words, and say what names are."""
    done = subprocess.run([weft(), "fm", *words, "--socket", SOCKET], capture_output=True, text=True, check=False)
    assert done.returncode == 4 and "expected a name of letters" in done.stderr, (words, done)


def known(*words):
    """What the manager answers, as JSON."""
    return json.loads(fm(*words, "--json"))


def at(end):
    """A port, as ids of the page name it."""
    return f"s{end['switch']}.{end['port']}"


def link_ids(links):
    """Links, as ids of the page name them."""
    return {f"{at(a)}-{at(b)}" for a, b in links}


def attached(inventory):
    """What is at edge ports, by place: its class on the page."""
    kinds = {"Host": "host", "Device": "device", "Gfd": "gfd"}
    found = {}
    for number, switch in enumerate(inventory["switches"]):
        for port in switch["ports"]:
            partner = port["partner"]
            name = partner if isinstance(partner, str) else next(iter(partner))
            if name in kinds:
                assert port["up"], port
                found[f"s{number}.{port['number']}"] = kinds[name]
    return found


def bridges(inventory):
    """Bridges that show something, as switches report them, by what they are bound to: a port, or a virtual link."""
    local, ends = {}, set()
    for number, switch in enumerate(inventory["switches"]):
        for vcs in switch["vcss"]:
            for vppb, state in enumerate(vcs["vppbs"]):
                place = f"s{number}/{vcs['id']}/{vppb}"
                if state["status"] == 2 and vppb:  # 0 is the host's own port
                    local[place] = f"port:{state['port']}"
                elif state["status"] == 4:
                    ends.add(place)
    return local, ends


def look(page, inventory):
    """Everything that `weft fm` says of the fabric is in the page."""
    drawn = page.value(DRAWN)
    assert all(one["seen"] for one in drawn.values()), drawn
    kinds = {place: one["kind"] for place, one in drawn.items()}
    switches = {f"s{n}": f"sw{n}" for n in range(len(inventory["switches"]))}
    down = link_ids(inventory["down"])
    assert all(switch["whole"] for switch in inventory["switches"]), inventory
    want = {place: "switch" for place in switches} | attached(inventory)
    want |= {link: "link down" if link in down else "link" for link in link_ids(inventory["links"])}
    assert kinds == want, kinds.items() ^ want.items()
    assert {place: drawn[place]["text"].split()[0] for place in switches} == switches
    rows = {name: page.value(ROWS.format(name)) for name in ("switch", "link", "end", "bridge", "memory", "gim", "p2p")}
    assert rows["switch"].keys() == switches.keys()
    assert {link: cells[2] for link, cells in rows["link"].items()} == {
        link: "down" if link in down else "up" for link in link_ids(inventory["links"])
    }
    for link, cells in rows["link"].items():
        told = [re.fullmatch(LOAD, cell) for cell in cells[4:6]]
        assert all(told) if link not in down else cells[4:6] == ["", ""], cells
        title = [f"{load[1]} {load[2]}bit/s over {load[3]} ms" for load in told if load]
        assert all(load in drawn[link]["text"] for load in title), (drawn[link], cells)
    assert rows["end"].keys() == attached(inventory).keys()
    ends = {place: (cells[1].split()[0].lower(), cells[2]) for place, cells in rows["end"].items()}
    assert sorted(ends.values()) == [
        ("device", "ep1"), ("device", "xpu0"), ("gfd", "g0"), ("gfd", "g1"), ("host", "h0"), ("host", "h1"),
    ]  # fmt: skip
    # Bindings as the manager has them by name, and as the switches report them.
    bound = {(row["bridge"], row["to"].split("/")[0]) for row in known("bind")}
    shown = {(cells[0], cells[1].removeprefix("vUSP ").split("/")[0]) for cells in rows["bridge"].values()}
    named = {(bridge, to) for bridge, to in shown if "port" not in to}
    named |= {(bridge, "port:" + to.split("port ")[1]) for bridge, to in shown if "port" in to}
    assert named == bound and len(bound) == 3, (shown, bound)
    local, links = bridges(inventory)
    told = page.value("[...document.querySelectorAll('tr[data-bridge]')].map((r) => ({...r.dataset}))")
    ports = {row["bridge"]: row["to"] for row in told if row["to"].startswith("port:")}
    assert local == ports and len(local) == 2, (local, told)
    both = {end for row in told if not row["to"].startswith("port:") for end in (row["bridge"], row["to"])}
    assert both == links
    memory = known("memory")
    assert rows["memory"].keys() == {share["name"] for share in memory}
    assert rows["gim"].keys() == {grant["name"] for grant in known("gim")}
    direct = known("p2p")
    assert {name: (cells[3].split()[0], cells[4].split()[0], cells[5]) for name, cells in rows["p2p"].items()} == {
        grant["name"]: (grant["to"]["name"], grant["from"][0]["name"], grant["state"]) for grant in direct
    }
    for share in memory:
        assert rows["memory"][share["name"]][1] == hex(share["hpa"]), rows["memory"]
    # What is named like markup is none.
    assert MEMORY in rows["memory"] and GIM in rows["gim"] and P2P in rows["p2p"], rows
    assert page.value("document.querySelectorAll('script').length") == 1
    assert page.value("typeof hit + document.querySelectorAll('b').length") == "undefined0"


def loads(page, inventory):
    """The numbers at links are those of the tables that the manager has, counted here."""
    routes = known("routes")["rows"]
    shown = page.value(ROWS.format("link"))
    for one, other in inventory["links"]:
        cells = shown[f"{at(one)}-{at(other)}"]
        for end, told in ((one, cells[6]), (other, cells[7])):
            rows = [row for row in routes if row["switch"] == f"sw{end['switch']}"]
            assert int(told) == sum(row["ports"][:1] == [end["port"]] for row in rows), (end, cells)


def link_loads():
    """What the page tells of the load of each link, there and back; nothing of one that is down, or not counted yet."""
    html = fm("topology", "--html")
    return [re.findall(LOAD, row) for row in re.findall("<tr data-link=.*?</tr>", html, re.DOTALL)]


def until_load(what, done):
    """Waits until the bits a second over all links, there and back, are as wanted; both directions of each have been counted."""
    limit = time.monotonic() + TIMEOUT_S
    while True:
        rows = link_loads()
        total = [sum(float(load) * UNIT[unit] for load, unit, _ in end) for end in zip(*rows, strict=False)]
        if len(total) == 2 and all(len(row) == 2 for row in rows) and done(*total):
            assert all(int(ms) >= 200 for row in rows for _, _, ms in row), rows
            return total
        assert time.monotonic() < limit, (what, rows)
        time.sleep(0.1)


def busy():
    """Links have the load of a host that writes over them, and no longer when it has ended."""
    until_load("nothing", lambda there, back: there < 1e6 and back < 1e6)
    ended = threading.Event()

    def write():
        words = [weft(), "endpoint", "ctl", f"{DIR}/h0/endpoint.sock", "write", hex(BASE), "16MiB", "--seed=1"]
        while not ended.is_set():
            subprocess.run(words, check=True, stdout=subprocess.DEVNULL)

    with concurrent.futures.ThreadPoolExecutor() as pool:
        writer = pool.submit(write)
        try:
            until_load("a host that writes", lambda there, back: there > 10e6 and back > 0)
        finally:
            ended.set()
        writer.result()
    until_load("nothing any more", lambda there, back: there < 1e6 and back < 1e6)


def chosen(page):
    """A binding that is clicked is marked in the drawing, all of it, and no longer when it is clicked again."""
    told = page.value("[...document.querySelectorAll('tr[data-bridge]')].map((r) => ({...r.dataset}))")
    link = next(row for row in told if not row["to"].startswith("port:"))
    row = f"tr[data-bridge='{link['bridge']}']"
    page.click(row)
    marks = page.until("the marks", MARKED, lambda marks: marks != [])
    assert marks == sorted(link["marks"].split()) and {"s0", "s1"} < set(marks), (marks, link)
    assert any("-" in mark for mark in marks), marks
    page.click(row)
    page.until("no marks", MARKED, lambda marks: marks == [])


def maps(page, inventory):
    """Each requester has a map, with the memory that it has; FAST is what its host's GAE reports."""
    shares = known("memory")
    pids = {row["at"]: row["pid"] for row in known("pid") if row["what"] != "fabric port"}
    seen = {one["at"]: one for one in page.value(MAPS)}
    requesters = {place for place, kind in attached(inventory).items() if kind == "host"}
    devices = {place for place, cells in page.value(ROWS.format("end")).items() if cells[2] == "xpu0"}
    requesters |= devices
    assert seen.keys() == requesters
    assert all((P2P in one["granted"]) == (place in devices) for place, one in seen.items()), seen
    for place, one in seen.items():
        own = pids["sw" + place[1:]]
        mine = {share["name"] for share in shares if own in share["hosts"]}
        assert mine <= set(one["granted"]), (place, one)
        pool = next(share for share in shares if share["name"] == "pool")
        gfds = [f"{part['gfd']:03x}" for part in pool["parts"]]
        strip = next(strip for strip in one["strips"] if strip["base"] == hex(BASE))
        assert strip["ways"] == gfds and len(gfds) == 2, (strip, gfds)
        assert int(one["base"], 16) == BASE and int(one["limit"], 16) == BASE + SEGMENT, one


def opened(browser, folder, name):
    """The page opened from a file, and the inventory that was there before and after it was made. It asks for nothing."""
    path, limit = os.path.join(folder, name), time.monotonic() + TIMEOUT_S
    while True:
        before, html, after = known("topology"), fm("topology", "--html"), known("topology")
        if before == after:
            break
        assert time.monotonic() < limit, (before, after)
    with open(path, "w", encoding="utf-8") as file:
        file.write(html)
    page = browser.open(f"file://{path}")
    assert page.problems == [] and page.requests == [f"file://{path}"], (page.problems, page.requests)
    return page, after


def without_scripts(page):
    """The same page in a browser that runs none."""
    page.value("window.before = 1")
    page.call("Emulation.setScriptExecutionDisabled", value=True)
    page.call("Page.reload")
    page.until("it is loaded again", "!window.before && document.readyState === 'complete'")


def take_down(inventory):
    """Takes the first link between the switches down, at its interface; counting of the others may have begun anew since."""
    end = inventory["links"][0][0]
    with open(f"{DIR}/sw{end['switch']}/switch.toml", "rb") as file:
        ports = tomllib.load(file)["port"]
    sh(f"ip link set {ports[end['port']]['device']} down")
    limit = time.monotonic() + TIMEOUT_S
    while not (now := known("topology"))["down"]:
        assert time.monotonic() < limit, now
        time.sleep(0.1)
    while [len(row) for row in link_loads()].count(2) < len(inventory["links"]) - 1:
        assert time.monotonic() < limit, link_loads()
        time.sleep(0.1)


@contextlib.contextmanager
def served():
    """The address of a page that is served, until a signal comes."""
    command = [weft(), "fm", "topology", "--html", "--listen", "127.0.0.1:0", "--socket", SOCKET]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            said = server.stderr.readline()
            yield re.search(r"http://127\.0\.0\.1:\d+/", said)[0]
        finally:
            server.terminate()
            assert server.wait(TIMEOUT_S) == 0, server.stderr.read()


def by_itself(page, what, expression, good=bool):
    """Waits until the value of an expression is good in a page that is loaded again and again."""
    limit, value = time.monotonic() + TIMEOUT_S, None
    while True:
        try:
            value = page.value(expression)
            if good(value):
                return value
        except AssertionError as error:
            value = error  # it was asked just when the page went
        assert time.monotonic() < limit, (what, value)
        time.sleep(0.05)


def run_live(folder):
    """A page that is served, before there is a fabric, while there is one and a link goes down, and after it."""
    sh("ip link set lo up")
    file = os.path.join(folder, "fabric.toml")
    with open(file, "w", encoding="ascii") as out:
        out.write(TOPOLOGY)
    text, down = "document.body.textContent", "document.querySelectorAll('#drawing g.link.down').length"
    with weftbrowser.Browser(folder) as browser, served() as url:
        page = browser.open(url)
        by_itself(page, "no fabric", text, lambda text: "no fabric manager listens" in text)
        with weftlive.FabricUp(file, "--dir", DIR, "--processes"):
            by_itself(page, "the fabric", "document.querySelectorAll('tr[data-link]').length", lambda links: links == 2)
            # What was clicked is marked still when the page has been loaded again.
            click = "document.querySelector('tr[data-bridge]').click(), window.before = 1"
            by_itself(page, "a click", click, lambda before: before == 1)
            again = f"window.before ? [] : {MARKED}"
            by_itself(page, "the marks", again, lambda marks: "s0" in marks)
            assert page.value(down) == 0
            take_down(known("topology"))
            by_itself(page, "the link that is down", down, lambda down: down == 1)
        by_itself(page, "no fabric any more", text, lambda text: "fabric manager" in text and "Switches" not in text)
        assert set(page.requests) == {url}, page.requests


def run_page(way, folder):
    """A fabric, its page in a browser; with processes, the page after a link was lost, too."""
    sh("ip link set lo up")
    file = os.path.join(folder, "fabric.toml")
    with open(file, "w", encoding="ascii") as out:
        out.write(TOPOLOGY)
    with weftlive.FabricUp(file, "--dir", DIR, *(["--processes"] if way == "processes" else [])):
        fm("status", "--wait")
        far = hex(BASE + 4 * SEGMENT)
        for name in HOSTILE:
            for words in (
                ("memory", "add", name, "--host", "h0", "--ways", "1", "--size", "256MiB", "--hpa", far),
                ("gim", "add", name, "--of", "h1", "--from", "h0", "--size", "1MiB", "--hpa", hex(BASE + 6 * SEGMENT)),
                ("p2p", "add", name, "--from", "xpu0", "--to", "ep1", "--size", "256MiB", "--hpa", hex(BASE + 16 * SEGMENT)),
            ):
                refused_name(*words)
        fm("memory", "add", MEMORY, "--host", "h0", "--ways", "1", "--size", "256MiB", "--hpa", far)
        fm("gim", "add", GIM, "--of", "h1", "--from", "h0", "--size", "1MiB", "--hpa", hex(BASE + 6 * SEGMENT))
        # Where its host has the memory device already: it has one address for all.
        fm("p2p", "add", P2P, "--from", "xpu0", "--to", "ep1", "--size", "256MiB", "--hpa", hex(BASE + 2048 * SEGMENT))
        busy()
        with weftbrowser.Browser(folder) as browser:
            page, inventory = opened(browser, folder, "fabric.html")
            look(page, inventory)
            loads(page, inventory)
            maps(page, inventory)
            chosen(page)
            without_scripts(page)
            look(page, inventory)
            if way == "processes":
                take_down(inventory)
                page, inventory = opened(browser, folder, "down.html")
                look(page, inventory)
                assert page.value("document.querySelectorAll('#drawing g.link.down').length") == 1
            assert page.problems == [], page.problems


@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
@pytest.mark.parametrize("way", ["one", "processes"])
def test_fabric_page(way, tmp_path):
    weftlive.inside("test_live_fabric_page", "run_page", way, str(tmp_path), timeout=600)


@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
def test_fabric_page_is_live(tmp_path):
    weftlive.inside("test_live_fabric_page", "run_live", str(tmp_path), timeout=600)
