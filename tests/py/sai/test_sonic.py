"""The runner of SONiC's tests, on a folder that looks like a clone of sonic-mgmt but holds classes of our own.

Pytest; runs of sonic.py as a user starts it, against real switches.

Units: frames; seconds.
Source: docs/sonic.md.
"""

import json
import os
import re
import subprocess
import sys
import tomllib

import pytest

import saioracle
import sonic
import sonicclone
import soniccases
import stubs
import weftlive

MISSING = weftlive.missing() or stubs.missing()
TIMEOUT_S = 120
TRACEBACK = 'Traceback\n  File "/a/b.py", line 7, in f\n    assert x\n           ^\nAssertionError\n'
HANGS_S = 2  # a class that never ends is given so long
BASE = '''
import json
import ptf
from ptf.base_tests import BaseTest
from ptf.testutils import test_params_get
from switch_sai_thrift import switch_sai_rpc
from switch_sai_thrift.sai_headers import SAI_PORT_STAT_IF_IN_UCAST_PKTS
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport


class Base(BaseTest):
    def setUp(self):
        self.dataplane = ptf.dataplane_instance
        self.test_params = test_params_get()
        self.transport = TBufferedTransport(TSocket("localhost", 9092))
        self.transport.open()
        self.client = switch_sai_rpc.Client(TBinaryProtocol(self.transport))

    def tearDown(self):
        self.transport.close()
'''
CLASSES = '''
import json
import time
import sai_base_test
import switch
from ptf.testutils import send_packet, simple_ip_packet, verify_packet
from switch_sai_thrift.sai_headers import SAI_PORT_ATTR_PKT_TX_ENABLE, SAI_PORT_STAT_IF_OUT_UCAST_PKTS
from switch_sai_thrift.ttypes import sai_thrift_attribute_t, sai_thrift_attribute_value_t


class PFCtest(sai_base_test.Base):
    def runTest(self):
        given = self.test_params
        print("GIVEN " + json.dumps(given))
        with open(given["port_map_file_ini"]) as file:
            names = dict(line.strip().split("@") for line in file)
        port = self.client.sai_thrift_get_port_id_by_front_port(names[str(given["src_port_id"])])
        counter = [sai_base_test.SAI_PORT_STAT_IF_IN_UCAST_PKTS]
        before = self.client.sai_thrift_get_port_stats(port, counter, 1)[0]
        src, dst = (self.dataplane.get_mac(0, given[f"{way}_port_id"]) for way in ("src", "dst"))
        packet = simple_ip_packet(pktlen=64, eth_src=src, eth_dst=dst)
        send_packet(self, given["src_port_id"], packet)
        verify_packet(self, packet, given["dst_port_id"])
        assert self.client.sai_thrift_get_port_stats(port, counter, 1)[0] == before + 1


class QWatermarkAllPortTest(sai_base_test.Base):
    def runTest(self):
        given = self.test_params
        destination = given["dst_port_id"]
        port = self.client.sai_thrift_get_port_id_by_front_port(f"p{destination}")

        def transmit(on):
            value = sai_thrift_attribute_value_t(booldata=on)
            attribute = sai_thrift_attribute_t(id=SAI_PORT_ATTR_PKT_TX_ENABLE, value=value)
            assert self.client.sai_thrift_set_port_attribute(port, attribute) == 0

        def sent():
            return self.client.sai_thrift_get_port_stats(port, [SAI_PORT_STAT_IF_OUT_UCAST_PKTS], 1)[0]

        src, dst = (self.dataplane.get_mac(0, port_id) for port_id in (given["src_port_id"], destination))
        transmit(False)
        packet = simple_ip_packet(pktlen=given["packet_size"], eth_src=src, eth_dst=dst)
        send_packet(self, given["src_port_id"], packet, given["pkt_count"])
        start = time.monotonic()
        transmit(True)
        count = sent()
        while count < 3:
            count = sent()
        seconds = time.monotonic() - start
        print(f"SENT {count} in {seconds} s of {given['pkt_count']}")


class LossyQueueTest(sai_base_test.Base):
    def runTest(self):
        assert self.client is None, "so it was meant"


class PFCXonTest(sai_base_test.Base):
    def runTest(self):
        while True:
            time.sleep(1)
'''


@pytest.fixture(name="clone")
def clone_fixture(tmp_path):
    """A folder with the files of a clone that tests need."""
    place = tmp_path / "clone" / "tests" / "saitests" / "py3"
    place.mkdir(parents=True)
    texts = {"sai_base_test": BASE, "sai_qos_tests": CLASSES, "switch": "", "texttable": ""}
    for name, text in texts.items():
        (place / f"{name}.py").write_text(text, encoding="ascii")
    return tmp_path / "clone"


def run(clone, *words):
    """Runs the runner; returns what became of it, and the table that it wrote."""
    results = clone.parent / "results"
    line = [sys.executable, os.path.join(sonic.HERE, "sonic.py"), str(clone), *words, "--results", str(results)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    path = results / "table.txt"
    return done, path.read_text(encoding="utf-8") if path.exists() else None


def processes_of(clone):
    """Command lines of processes that have to do with a clone."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
                line = file.read()
        except OSError:
            continue
        if str(clone) in line:
            found.append(line)
    return found


def files_of(clone):
    return sorted(str(path.relative_to(clone)) for path in clone.rglob("*") if path.is_file())


@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
def test_a_class_passes_one_fails_and_one_is_not_there(clone):
    before = files_of(clone)
    done, table = run(clone, "PFCtest", "LossyQueueTest", "WRRtest")
    assert done.returncode == 1, done.stdout + done.stderr
    rows = {line[:26].strip(): line[26:].split(maxsplit=2) for line in table.splitlines()[1:4]}
    assert {title: row[0] for title, row in rows.items()} == {
        "PFCtest": "passed",
        "LossyQueueTest": "FAILED",
        "WRRtest": "FAILED",
    }, table
    assert re.search(r"^LossyQueueTest: AssertionError: so it was meant \(sai_qos_tests.py, line \d+", table, re.M)
    assert "\nWRRtest: this clone has no py3/sai_qos_tests.WRRtest\n" in table, table
    assert table.endswith("\n1 passed, 2 failed\n") and done.stdout.endswith(table), done.stdout
    assert files_of(clone) == before, "nothing is written into a clone"
    # What a class is given is what the rules say of the switch's configuration.
    log = (clone.parent / "results" / "PFCtest.log").read_text(encoding="utf-8")
    given = json.loads(re.search("GIVEN (.*)", log)[1])
    case = next(case for case in soniccases.CASES if case.title == "PFCtest")
    oracle = saioracle.Oracle(tomllib.loads(sonic.configuration(case, "af_packet", 1)))
    assert given["pkts_num_trig_pfc"] == oracle.xoff(soniccases.LOSSLESS) + 1
    assert given["pkts_num_trig_ingr_drp"] == oracle.ingress_drop(soniccases.LOSSLESS) + 1
    assert rows["PFCtest"][2] == f"PFC at {given['pkts_num_trig_pfc']}, drop at {given['pkts_num_trig_ingr_drp']}"
    assert not processes_of(clone)


@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
def test_a_slow_output_is_slow(clone):
    """A class may let a port send while its frames are still coming only because few leave meanwhile."""
    done, table = run(clone, "QWatermarkAllPortTest")
    assert done.returncode == 0, table + done.stdout + done.stderr
    log = (clone.parent / "results" / "QWatermarkAllPortTest.log").read_text(encoding="utf-8")
    sent, seconds = re.search(r"SENT (\d+) in (\S+) s", log).groups()
    rate = soniccases.CRAWL["port_defaults"]["max_rate_gbps"] * 1e9
    wire_bits = (soniccases.LONG_OCTETS + 24) * 8
    # A full bucket lets one frame go at once, and the next as soon as there is a credit.
    assert int(sent) <= 2 + rate * float(seconds) / wire_bits, (sent, seconds)


def other(clone, word, by):
    """The same clone after a change of its classes."""
    path = clone / "tests" / "saitests" / "py3" / "sai_qos_tests.py"
    path.write_text(path.read_text(encoding="ascii").replace(word, by), encoding="ascii")
    return str(clone)


def test_a_clone_of_another_revision_is_named(clone, monkeypatch):
    cases = [case for case in soniccases.CASES if case.title in ("PFCtest", "LossyQueueTest", "WRRtest")]
    monkeypatch.setattr(
        soniccases,
        "DIGESTS",
        {case.test: sonicclone.digest(str(clone), case.folder, case.test) for case in cases},
    )
    assert sonic.plan(str(clone), cases) == (cases, [])
    # What a class says to people is no other code.
    assert sonic.plan(other(clone, "        given = ", "\n        # A remark.\n        given = "), cases) == (cases, [])
    chosen, said = sonic.plan(other(clone, "so it was meant", "so it was not"), cases)
    assert chosen == cases and len(said) == 1
    assert soniccases.REVISION in said[0] and "other code in LossyQueueTest:" in said[0], said


def test_a_row_that_a_revision_does_not_check_is_left_out(clone):
    row = next(case for case in soniccases.CASES if case.needs)
    path = clone / "tests" / "saitests" / "py3" / "sai_qos_tests.py"
    kept = []
    for text in ("class DscpEcnSend:\n    cell_occupancy = 1\n", "class DscpEcnSend:\n    pass\n", ""):
        path.write_text(text, encoding="ascii")
        chosen, said = sonic.plan(str(clone), [row])
        kept.append((chosen == [row], any("left out" in line for line in said)))
    # Without the class at all the row fails, as every other does.
    assert kept == [(True, False), (False, True), (True, False)]


def test_all_classes_have_a_known_revision():
    assert soniccases.DIGESTS.keys() == {case.test for case in soniccases.CASES}


def facts_of(title, names=()):
    """What a row's switch has, without the switch."""
    case = next(case for case in soniccases.CASES if case.title == title)
    config = tomllib.loads(sonic.configuration(case, "af_packet", 1))
    oracle = saioracle.Oracle(config)
    params = {"cell_size": oracle.cell, "packet_size": sonic.PACKET_OCTETS, "packet_cells": 1}
    return case, soniccases.Facts(params, oracle, config, frozenset(names))


@pytest.mark.parametrize("title", ["DscpToPgMapping", "Dot1pToPgMapping"])
def test_frames_of_a_group_are_in_one_queue(title):
    """These classes want them in the order in which they were sent."""
    _, facts = facts_of(title)
    maps = facts.config["classify"]
    for values in (maps["dscp_to_pri"], maps["pcp_to_pri"]):
        used = set(values)
        assert len({maps["pri_to_pg"][pri] for pri in used}) == len(used)
    groups = [maps["pri_to_pg"][pri] for pri in maps["dscp_to_pri"]]
    assert groups == [{3: 3, 4: 4}.get(dscp, 0) for dscp in range(64)]
    assert [maps["pri_to_pg"][pri] for pri in maps["pcp_to_pri"]] == soniccases.PRI_TO_PG


@pytest.mark.parametrize(
    ("ecn", "names", "want"),
    [
        (0, ["cell_occupancy"], (200, 200)),  # 200 frames of a cell each
        (1, ["cell_occupancy"], (99, 200)),  # 99 are not marked; 200 is no more than the least, so 3 to 7 % is not asked for
        (0, [], (200 * 64, 200 * 2 * 2048)),
        (1, [], (99 * 2 * 2048, 0)),
    ],
)
def test_limits_of_marks_follow_the_revision(ecn, names, want):
    case, facts = facts_of(f"DscpEcnSend, ecn={ecn}", names)
    given, _ = case.given(facts)
    assert (given["limit"], given["min_limit"]) == want


def test_chance_stays_in_the_bounds_of_marks():
    case, facts = facts_of("DscpEcnSend, 3 to 7 %")
    given, asserted = case.given(facts)
    frames, limit = given["num_of_pkts"], given["limit"]
    assert given["min_limit"] < frames, "else the share is not asked for"
    assert frames <= facts.oracle.egress_drop(soniccases.LOSSY), "all are queued"
    mean, variance = facts.oracle.marks(facts.cell, frames)
    deviation = float(variance) ** 0.5
    for bound in (mean - 0.03 * limit, 0.07 * limit - mean, frames - mean - 0.95 * limit):
        assert bound > 5 * deviation, (float(bound), deviation)
    assert asserted == "117 to 273 of 4000 marked, 200 on average"


@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
def test_a_class_that_hangs_is_ended_and_leaves_nothing(clone):
    done, table = run(clone, "PFCXonTest", "--timeout", str(HANGS_S))
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"\nPFCXonTest: did not end within {HANGS_S} s\n" in table, table
    assert not processes_of(clone)


@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
def test_what_cannot_be_run_is_named(clone):
    place = clone / "tests" / "saitests" / "py3"
    done, table = run(clone, "NoSuchTest")
    assert done.returncode == 2 and table is None
    assert done.stderr.startswith("sonic: no class NoSuchTest; there are BufferPoolWatermarkTest, "), done.stderr
    with open(place / "switch.py", "a", encoding="ascii") as file:
        file.write("from switch_sai_thrift.sai_headers import SAI_PORT_ATTR_ADMIN_STATE, SAI_PORT_ATTR_OF_LATER\n")
    done, _ = run(clone)
    wrong = "sonic: these tests import names that weft's stubs do not have: sai_headers.SAI_PORT_ATTR_OF_LATER\n"
    assert (done.returncode, done.stderr) == (2, wrong)
    (place / "switch.py").write_text("def (", encoding="ascii")
    done, _ = run(clone)
    assert done.returncode == 2 and "switch.py is no Python" in done.stderr, done.stderr
    (place / "switch.py").unlink()
    done, _ = run(clone)
    wrong = f"sonic: {clone} is no clone of sonic-mgmt with these tests: it has no {sonicclone.FILES[2]}\n"
    assert (done.returncode, done.stderr) == (2, wrong)
    done, _ = run(clone / "nowhere")
    assert done.returncode == 2 and done.stderr.endswith("is no folder: give that of a clone of sonic-mgmt\n")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("", "it said nothing"),
        ("ptf: no such test", "ptf: no such test"),
        (TRACEBACK, "AssertionError (b.py, line 7, in f: assert x)"),
        ("KeyError: 'ecn'\nRan 1 test in 1s\n", "KeyError: 'ecn'"),
        ("thrift.TTransport.TTransportException: refused\nRan 1 test\n", "thrift.TTransport.TTransportException: refused"),
    ],
)
def test_reasons_are_short(said, why):
    assert sonic.reason(said).startswith(why)


def test_a_run_without_a_test_has_not_passed():
    assert not sonic.PASSED.search("Ran 0 tests in 0.000s\n\nOK\n")
    assert sonic.PASSED.search("...\nRan 1 test in 31.250s\n\nOK\nSkipped 0\n")
