//! What becomes of TLPs whose link is down, or goes down while they wait for it.
//!
//! The rig of [`super`], with links that are cut and ports that take nothing.
//!
//! Units: bytes.
//! Source: docs/spec/cxl-fabric.md "Dynamic change"; PCIe 6.0 sections 2.2.9, 2.9.1.

use super::*;

/// `UIORdCpl` of `status` to the read of [`uio_read`], by the bridge at `bus`.
fn uio_status(bus: u8, status: u8) -> Vec<u8> {
    hex(&format!("0D 01 00 00 {bus:02X} 00 00 05 01 00 00 00 00 00 00 {status:02X}"))
}

const UR: u8 = 1;
const RRS: u8 = 2;

fn to_host(tlp: &[u8]) -> (usize, Vec<u8>) {
    (HOST, wire(partner(HOST), mac(HOST), 2, tlp))
}

/// Each way of the pipeline: the fast one, and that of a trace.
fn rigs() -> [Rig; 2] {
    let mut traced = Rig::new();
    traced.trace = Some(Trace::new(Deaf));
    [Rig::new(), traced]
}

impl Rig {
    fn cut(&mut self, port: usize) {
        self.states[port].is_down.store(true, Ordering::Relaxed);
        self.step();
    }

    fn fill(&self, port: usize, on: bool) {
        self.states[port].is_full.store(on, Ordering::Relaxed);
    }

    fn wait(&mut self, ms: u64) {
        self.now = Instant::from_ns(self.now.as_ns() + ms * 1_000_000);
        self.step();
        self.step();
    }

    /// Queues a frame for a port that takes none.
    fn queue(&mut self, input: usize, frame: &[u8]) {
        self.rx[input].lock().unwrap().push_back(frame.to_vec());
        self.step();
        assert_eq!(self.ledger().imbalance(), 0);
        assert!(self.tx.iter().all(|tx| tx.lock().unwrap().is_empty()));
    }
}

/// Inside of the fabric there may be another way soon; of a G-FAM device that is gone there is none.
#[test]
fn a_request_whose_route_is_down_may_be_sent_again() {
    for mut rig in rigs() {
        rig.cut(FABRIC);
        let out = rig.frame(HOST, &from_partner(HOST, 2, &uio_read(FAR_GFAM)));
        assert_eq!(out, [to_host(&uio_status(1, RRS))]);
        assert_eq!(rig.refused(HOST, Refusal::RouteDown), 1);
        // A memory read is told the same.
        let read = hex("20 00 00 01 01 00 00 07 00 00 01 10 00 00 00 00");
        let out = rig.frame(HOST, &from_partner(HOST, 2, &read));
        let [(HOST, answer)] = &out[..] else { panic!("{out:?}") };
        let tlp = weft_parsers::tlp::Tlp::parse(Mode::Flit, &answer[20..]).unwrap();
        let retry = weft_parsers::tlp::Status::RequestRetry;
        assert_eq!((tlp.tag(), tlp.status()), (7, Some(retry)), "{answer:x?}");
        rig.cut(GFD);
        let out = rig.frame(HOST, &from_partner(HOST, 2, &uio_read(GFAM)));
        assert_eq!(out, [to_host(&uio_status(1, UR))]);
    }
}

/// Requests that wait for a port are answered when its link goes down; nobody waits for the others.
#[test]
fn requests_that_wait_for_a_link_are_answered_when_it_goes_down() {
    for mut rig in rigs() {
        rig.fill(FABRIC, true);
        for _ in 0..40 {
            rig.queue(HOST, &from_partner(HOST, 2, &uio_read(FAR_GFAM)));
        }
        // From the fabric: it goes back where its requester is, which is this fabric port as well.
        rig.queue(FABRIC, &from_partner(FABRIC, 1, &through(FAR_HOST, FAR_GFD, &uio_read(0))));
        let answer = [hex("48 00 00 10 00 00 00 05 01 00 00 00"), vec![0xAB; 64]].concat();
        rig.queue(GFD, &from_partner(GFD, 1, &through(GFD_PID, FAR_HOST, &answer)));
        assert_eq!(rig.ledger().queued, 42);
        rig.cut(FABRIC);
        rig.step();
        let down = DropReason::PortDown;
        let lost = |rig: &Rig| (0..PORTS).map(|port| rig.drops(port, down)).sum::<u64>();
        let held = rig.ledger();
        assert_eq!((held.imbalance(), held.queued), (0, 1), "the answer");
        assert_eq!(lost(&rig), 1, "who cannot be answered");
        rig.wait(900);
        // Behind the edge nothing tells which bridge it came through.
        assert_eq!(rig.out(), vec![to_host(&uio_status(0, RRS)); 40]);
        assert_eq!(lost(&rig), 2);
    }
}

/// A posted write of a host to memory behind [`FABRIC`].
fn write(n: u8) -> Vec<u8> {
    [hex("60 00 00 01 01 00 00 00 00 00 01 10 00 00 00 00"), vec![n; 4]].concat()
}

/// [`write`], as it goes out at [`FABRIC`].
fn written(n: u8) -> (usize, Vec<u8>) {
    let tlp = through(HOST_PID, FAR_GFD, &write(n));
    (FABRIC, wire(MacAddr::BROADCAST, mac(FABRIC), 1, &tlp))
}

/// What cannot be sent again waits for a way, in its order and before what comes later; for 900 ms.
#[test]
fn what_cannot_be_sent_again_waits_for_a_way() {
    for mut rig in rigs() {
        rig.cut(FABRIC);
        for n in 0..3 {
            rig.queue(HOST, &from_partner(HOST, 2, &write(n)));
        }
        assert_eq!(rig.ledger().queued, 3);
        rig.wait(850);
        assert_eq!((rig.ledger().queued, rig.drops(HOST, DropReason::UnsupportedRequest)), (3, 0));
        rig.states[FABRIC].is_down.store(false, Ordering::Relaxed);
        let out = rig.frame(HOST, &from_partner(HOST, 2, &write(3)));
        assert_eq!(out, [written(0), written(1), written(2), written(3)]);
        // A load by CXL.mem waits as well, and a snoop's answer; both end as they would have at once.
        rig.cut(FABRIC);
        let load = mem::message(0x11, FAR_GFAM);
        rig.queue(HOST, &from_partner(HOST, mem::HBR, &load));
        rig.wait(899);
        assert_eq!(rig.ledger().queued, 1);
        rig.wait(2);
        assert_eq!(rig.out().len(), 1, "no memory, as if it had been refused at once");
    }
}

/// An input that floods a route which is down has 256 of the 512 places, whole bursts as well, and leaves room for others.
#[test]
fn a_flood_leaves_others_room_to_wait() {
    for mut rig in rigs() {
        rig.cut(FABRIC);
        let frame = from_partner(HOST, 2, &write(9));
        rig.rx[HOST].lock().unwrap().extend(vec![frame; 300]);
        while !rig.rx[HOST].lock().unwrap().is_empty() {
            rig.step();
        }
        let refused = |rig: &Rig| rig.drops(HOST, DropReason::UnsupportedRequest);
        assert_eq!((rig.ledger().queued, refused(&rig)), (256, 44));
        let answer = [hex("48 00 00 10 00 00 00 05 01 00 00 00"), vec![0xAB; 64]].concat();
        rig.queue(GFD, &from_partner(GFD, 1, &through(GFD_PID, FAR_HOST, &answer)));
        // New tables that lead nowhere either take no place from what waits.
        let core = rig.lane.core();
        core.tables.store(Arc::new(Tables::clone(&core.tables.load())));
        rig.step();
        assert_eq!((rig.ledger().queued, refused(&rig)), (257, 44));
        rig.wait(901);
        assert_eq!((rig.out(), refused(&rig)), (vec![], 300));
        rig.queue(HOST, &from_partner(HOST, 2, &write(1)));
        assert_eq!(rig.ledger().queued, 1, "places are free again");
        rig.wait(901);
    }
}

/// Frames of a flow that were picked, queued and received as the link went down go on in their order when it is back.
#[test]
fn what_waits_keeps_its_order() {
    for mut rig in rigs() {
        rig.fill(FABRIC, true);
        for n in 0..200 {
            rig.queue(HOST, &from_partner(HOST, 2, &write(n)));
        }
        // The step that notices the link receives, too.
        let late = (200..220).map(|n| from_partner(HOST, 2, &write(n)));
        rig.rx[HOST].lock().unwrap().extend(late);
        rig.cut(FABRIC);
        assert_eq!((rig.ledger().queued, rig.ledger().imbalance()), (220, 0));
        rig.wait(50);
        rig.fill(FABRIC, false);
        rig.states[FABRIC].is_down.store(false, Ordering::Relaxed);
        while rig.ledger().queued > 0 {
            rig.step();
        }
        assert_eq!(rig.out(), (0..220).map(written).collect::<Vec<_>>());
    }
}

fn through(spid: u16, dpid: u16, tlp: &[u8]) -> Vec<u8> {
    [&Pth { dsar: true, ..pth(spid, dpid) }.emit()[..], tlp].concat()
}

/// Where another port leads there by now, all goes on by that one, in its order.
#[test]
fn what_waits_for_a_link_goes_by_another_one() {
    for mut rig in rigs() {
        rig.fill(FABRIC, true);
        let answer = [hex("48 00 00 10 00 00 00 05 01 00 00 00"), vec![0xAB; 64]].concat();
        rig.queue(HOST, &from_partner(HOST, 2, &uio_read(FAR_GFAM + 64)));
        rig.queue(HOST, &from_partner(HOST, 2, &uio_read(FAR_GFAM + 128)));
        rig.queue(GFD, &from_partner(GFD, 1, &through(GFD_PID, FAR_HOST, &answer)));
        let core = rig.lane.core();
        let mut tables = Tables::clone(&core.tables.load());
        for bits in [FAR_GFD, FAR_HOST] {
            let port = u8::try_from(GFD).unwrap();
            tables.set_drt(usize::from(bits), &[DrtEntry::Port(port)]).unwrap();
        }
        tables.set_edge(id(GFD), None).unwrap(); // a second fabric port
        core.tables.store(Arc::new(tables));
        rig.cut(FABRIC);
        rig.step();
        let out = |tlp: &[u8]| (GFD, wire(partner(GFD), mac(GFD), 1, tlp));
        let mut got = rig.out();
        let mut want = vec![
            out(&through(HOST_PID, FAR_GFD, &uio_read(FAR_GFAM + 64))),
            out(&through(HOST_PID, FAR_GFD, &uio_read(FAR_GFAM + 128))),
            out(&through(GFD_PID, FAR_HOST, &answer)),
        ];
        got.sort();
        want.sort(); // requests and answers have priorities of their own
        assert_eq!(got, want);
    }
}

/// What was for the link's partner alone goes nowhere else, least of all to the switch itself.
#[test]
fn what_is_for_the_partner_ends_with_the_link() {
    let mut rig = Rig::new();
    rig.fill(FABRIC, true);
    let info = [hex("74 00 00 10 00 00 00 7E 00 00 1E 98 00 00 00 90"), vec![0; 64]].concat();
    let frame = wire(cpu_mac_of_port(id(FABRIC)), CPU_PORT_MAC, 1, &through(0xFFF, 0xFFF, &info));
    rig.queue(AGENT, &frame);
    let queued = rig.ledger().queued;
    rig.cut(FABRIC);
    rig.step();
    assert_eq!((queued, rig.out()), (1, Vec::new()));
}
