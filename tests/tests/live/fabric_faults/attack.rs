//! Hosts, devices and a G-FAM device that are hostile, on the wires of a fabric that runs.
//!
//! Raw frames, put on a wire beside what its endpoint sends itself → nothing of the fabric has changed, each of
//! them was counted, the load of everybody else went on, and the manager has noticed nothing but what it should.
//!
//! Units: frames.
//! Source: docs/security.md; docs/spec/cxl-fabric.md "Port roles"; docs/spec/wire-formats.md §3.5 to §3.8, §4.4.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use weft_parsers::cci::component::{ClaimOp, ClaimOwnership};
use weft_parsers::cci::pbr::{AssignOp, AssignPids, CrawlOut, CrawlTarget, PidAssignment};
use weft_parsers::cci::tables::SetDrt;
use weft_parsers::cci::{List, Request, Uuid};
use weft_parsers::fabric::{Bdf, DrtEntry, Pid};
use weft_parsers::tlp::vdm::PartnerInfo;
use weft_parsers::tlp::{
    MctpPacket, Mode, Oui, PbrVdm, Protocol, Pth, TlpLink, TlpRepr, VdmOp, link,
};
use weft_tests::fabric_up::Up;
use weft_tests::stations::{BURST, Station};

use super::{Loaded, alone, differences, number, state};

/// Frames that are sent before they are looked for in the counters.
const AT_ONCE: usize = 4 * BURST;

fn pid(bits: u16) -> Pid {
    Pid::from_low_bits(bits)
}

fn bytes(repr: &TlpRepr<'_>) -> Vec<u8> {
    let mut out = vec![0; 512];
    let len = repr.emit(&mut out).unwrap();
    out.truncate(len);
    out
}

fn vdm(op: VdmOp, payload: &[u8]) -> Vec<u8> {
    let mut payload = payload.to_vec();
    payload.resize(payload.len().max(4 * op.payload_dws().0), 0);
    bytes(&PbrVdm::new(op, &payload).repr())
}

/// A message as one packet, a request's or (`owner` false) an answer's.
fn mctp(message: &[u8], owner: bool) -> MctpPacket<'_> {
    let (first, last) = (true, true);
    MctpPacket { dest: 0, source: 0, first, last, seq: 0, owner, tag: 1, pad: 0, payload: message }
}

fn body(request: &Request<'_>) -> Vec<u8> {
    let mut out = vec![0; 512];
    let len = request.emit_message(9, &mut out).unwrap();
    let mut body = [&[7], &out[..len]].concat();
    body.resize(body.len().next_multiple_of(4), 0);
    body
}

fn in_band(body: &[u8], owner: bool) -> Vec<u8> {
    let nowhere = Bdf::from_bits(0);
    bytes(&mctp(body, owner).repr(Mode::Flit, nowhere, nowhere))
}

/// Who is who in the fabric: what an attacker may know at best.
struct Names {
    manager: Pid,
    uuid: Uuid,
    pids: BTreeMap<String, Pid>,
}

impl Names {
    fn of(up: &Up) -> Self {
        let status = up.fm("status");
        let manager = pid(u16::try_from(number(&status["pid"])).unwrap());
        let text: String = status["manager"].as_str().unwrap().replace('-', "");
        let uuid = u128::from_str_radix(&text, 16).unwrap().to_be_bytes();
        let mut pids = BTreeMap::new();
        let of = |text: &Value| pid(u16::from_str_radix(text.as_str().unwrap(), 16).unwrap());
        for switch in up.switches() {
            let fabric = up.show(&switch, "fabric");
            pids.insert(switch.clone(), of(&fabric["pid"]));
            for port in fabric["ports"].as_array().unwrap() {
                for one in port["pids"].as_array().unwrap() {
                    let name = port["name"].as_str().unwrap();
                    pids.insert(format!("{switch}.{name}"), of(one));
                }
            }
        }
        Self { manager, uuid, pids }
    }

    fn all(&self) -> Vec<Pid> {
        let mut all: Vec<Pid> = self.pids.values().copied().collect();
        all.extend([self.manager, Pid::NONE]);
        all
    }
}

/// The wire of an endpoint, with somebody on it who puts in what he likes.
struct Wire {
    station: Station,
    switch: String,
    port: String,
    macs: [u8; 12],
    /// PIDs that the manager gave to the port.
    own: Vec<Pid>,
}

impl Wire {
    fn of(up: &Up, names: &Names, part: &str) -> Self {
        let run = std::fs::read_to_string(up.folder().join(part).join("run")).unwrap();
        let (switch, port, near, far) = up.wire_of(&run).expect("the part hangs on a switch");
        let mac = |device: &str| {
            let shown = up.net().run("sw", "ip", &format!("-j link show dev {device}"));
            let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
            let text = shown[0]["address"].as_str().unwrap().to_owned();
            text.split(':').map(|two| u8::from_str_radix(two, 16).unwrap()).collect::<Vec<u8>>()
        };
        let macs = [mac(&near), mac(&far)].concat().try_into().unwrap();
        let station = Station::sender(up.net(), "sw", &far);
        let name = format!("{switch}.{port}");
        let own = names.pids.iter().filter(|(at, _)| **at == name).map(|(_, pid)| *pid).collect();
        Self { station, switch, port, macs, own }
    }

    fn frame(&self, protocol: Protocol, tagged: bool, parts: &[&[u8]]) -> Vec<u8> {
        let mut head = [0; link::LEN];
        TlpLink { oui: Oui::DEFAULT, protocol, ln: false }.emit(&mut head).unwrap();
        let tag: &[u8] = if tagged { &[0x81, 0, 0xE0, 5] } else { &[] };
        let mut frame = [&self.macs[..], tag, &head, &parts.concat()].concat();
        frame.resize(frame.len().max(60), 0);
        frame
    }

    /// A TLP with a PTH, as it is; tagged; behind NOPs.
    fn with_pth(&self, pth: Pth, tlp: &[u8]) -> [Vec<u8>; 3] {
        let pth = pth.emit();
        [
            self.frame(Protocol::Pbr, false, &[&pth, tlp]),
            self.frame(Protocol::Pbr, true, &[&pth, tlp]),
            self.frame(Protocol::Pbr, false, &[&[0; 8], &pth, tlp]),
        ]
    }

    /// TLPs that were refused at this port, by reason.
    fn refused(&self, up: &Up) -> BTreeMap<String, u64> {
        let fabric = up.show(&self.switch, "fabric");
        let of = &fabric["refused"][&self.port];
        let all = of.as_object().into_iter().flatten();
        all.map(|(why, count)| (why.clone(), number(count))).collect()
    }

    /// Sends frames, each of which is refused for one of these reasons; returns how many there were.
    fn refuses(&self, up: &Up, why: &[&str], frames: &[Vec<u8>]) {
        let sum = |up: &Up| -> u64 {
            let refused = self.refused(up);
            why.iter().filter_map(|why| refused.get(*why)).sum()
        };
        let mut want = sum(up);
        for part in frames.chunks(AT_ONCE) {
            self.send(part);
            want += part.len() as u64;
            up.until(&format!("{why:?} {want} at {}.{}", self.switch, self.port), |up| {
                let now = sum(up);
                assert!(now <= want, "{now} of {want} {why:?}");
                (now == want).then_some(())
            });
        }
    }

    fn send(&self, frames: &[Vec<u8>]) {
        for burst in frames.chunks(BURST) {
            assert_eq!(self.station.send(burst), burst.len(), "the wire takes them");
        }
    }
}

/// What asks for something, or says something in somebody's name, in all forms that a PTH goes in front of.
fn requests(names: &Names) -> Vec<Vec<u8>> {
    let claim = |op| {
        let (fm, fm_uuid) = (names.manager, names.uuid);
        Request::ClaimOwnership(ClaimOwnership { op, fm, fm_uuid, pid: pid(0x7F0) })
    };
    let (none, lost) = (
        [DrtEntry::Invalid; 8],
        [PidAssignment {
            pid: names.pids.values().next().copied().unwrap(),
            target: 0,
            instance: 0,
        }],
    );
    let inner = body(&Request::IdentifyPbrComponent);
    let commands = [
        Request::Identify,
        Request::IdentifyPbrComponent,
        claim(ClaimOp::RegisterPrimary),
        claim(ClaimOp::UpdatePid),
        claim(ClaimOp::PromoteSecondary),
        Request::SetDrt(SetDrt { table: 0, start: 0, entries: List::of(&none) }),
        Request::AssignPids(AssignPids { op: AssignOp::Clear, assignments: List::of(&lost) }),
        Request::CrawlOut(CrawlOut {
            target: CrawlTarget::Port(0),
            message: List::of(&inner[1..13]),
        }),
    ];
    let mut all: Vec<Vec<u8>> = commands.iter().map(|it| in_band(&body(it), true)).collect();
    // reads, writes and configuration
    all.push(vec![0x20, 0, 0, 1, 1, 0, 0, 5, 0, 0, 1, 0, 0, 0, 0x10, 0]);
    all.push(vec![0x60, 0, 0, 1, 1, 0, 0, 5, 0, 0, 1, 0, 0, 0, 0x10, 0, 1, 2, 3, 4]);
    all.push(vec![0x22, 0, 0, 2, 1, 0, 0, 5, 0, 0, 1, 0, 0, 0, 0x10, 0]);
    all.push(vec![0x04, 1, 0, 1, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0xF]);
    for op in [VdmOp::AssertReset, VdmOp::AssertPerst, VdmOp::LinkUp, VdmOp::DpCmd, VdmOp::RtUpdate]
    {
        all.push(vdm(op, &[]));
    }
    all
}

/// What a G-FAM device may send in its own name: answers, notifications, completions.
fn answers() -> Vec<Vec<u8>> {
    let mut answer = body(&Request::IdentifyPbrComponent);
    answer[1] |= 1; // a response
    let mut all = vec![
        in_band(&answer, false),
        vec![0x0A, 0, 0, 0, 1, 0, 0, 5, 2, 0, 0, 4],
        vec![0x4A, 0, 0, 1, 1, 0, 0, 5, 2, 0, 0, 4, 1, 2, 3, 4],
    ];
    all.extend([VdmOp::Gam, VdmOp::UcPull, VdmOp::UcRspFail].map(|op| vdm(op, &[])));
    all
}

/// All of `tlps` in all names, to all.
fn forged(wire: &Wire, names: &Names, tlps: &[Vec<u8>], spids: &[Pid]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for &spid in spids {
        for dpid in names.all() {
            for (at, tlp) in tlps.iter().enumerate() {
                let hie = at % 3 == 0 && !dpid.is_none();
                let pth = Pth { hie, dsar: at % 2 == 0, ..Pth::new(spid, dpid) };
                let [plain, tagged, late] = wire.with_pth(pth, tlp);
                all.push(plain);
                if dpid.is_none() || dpid == names.manager {
                    all.extend([tagged, late]); // the others alike
                }
            }
        }
    }
    all
}

/// TLPs as hosts and devices may send them, with messages in them that only the fabric has.
fn without_pth(wire: &Wire, tlps: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for tlp in tlps.iter().filter(|tlp| tlp[0] & 0x38 == 0x30) {
        for routing in [0_u8, 2, 3, 4] {
            let mut tlp = tlp.clone(); // to the root, by ID, from the root, to the other end
            tlp[0] = tlp[0] & !7 | routing;
            all.push(wire.frame(Protocol::HbrFlit, false, &[&tlp]));
            // of the logical device that a fabric manager owns
            all.push(wire.frame(Protocol::HbrFlit, false, &[&[0x8E, 0xFF, 0xFF, 0], &tlp]));
        }
    }
    all
}

/// State without what a refused announcement leaves to be seen.
fn tables(up: &Up) -> Value {
    let mut all = state(up);
    for switch in up.switches() {
        for port in all[switch.as_str()]["ports"].as_array_mut().unwrap() {
            port.as_object_mut().unwrap().remove("refused_pid");
        }
    }
    let status = all["status"].as_object_mut().unwrap();
    status.remove("errors");
    all
}

fn same(what: &str, before: &Value, after: &Value) {
    let mut all = Vec::new();
    differences("", before, after, &mut all);
    assert_eq!(all, Vec::<String>::new(), "{what}");
}

/// Messages that a switch's own functions have had to do with.
fn heard(up: &Up, switch: &str) -> [u64; 3] {
    let functions = up.show(switch, "fabric")["agent"]["functions"].take();
    ["refused", "ignored", "unexpected"].map(|key| number(&functions[key]))
}

/// Announcements that were not taken at a switch.
fn foreign(up: &Up, switch: &str) -> u64 {
    number(&up.show(switch, "fabric")["agent"]["functions"]["foreign"])
}

/// While everybody else works: a host, a device and a G-FAM device that say in everybody's name whatever the fabric
/// knows, with a PTH and without. Nothing changes, and each of them is counted.
#[test]
fn whatever_is_said_at_an_edge_nothing_changes() {
    let _alone = alone();
    let test = "whatever_is_said_at_an_edge_nothing_changes";
    let Some(loaded) = Loaded::start(test) else { return };
    let up = &loaded.up;
    let names = Names::of(up);
    let (before, events) = (tables(up), number(&up.fm("status")["events"]));
    let [host, device, gfd] = ["h3", "d1", "g0"].map(|part| Wire::of(up, &names, part));
    let all: Vec<Vec<u8>> = requests(&names).into_iter().chain(answers()).collect();
    for wire in [&host, &device] {
        let had = heard(up, &wire.switch);
        wire.refuses(up, &["pth-at-edge"], &forged(wire, &names, &all, &names.all()));
        assert_eq!(heard(up, &wire.switch), had, "the switch's functions have seen nothing of it");
        wire.send(&without_pth(wire, &all));
    }
    // The G-FAM device has its own name, and answers in it.
    let others: Vec<Pid> =
        names.all().into_iter().filter(|pid| !gfd.own.contains(pid) && !pid.is_none()).collect();
    gfd.refuses(up, &["foreign-spid"], &forged(&gfd, &names, &all, &others));
    let own = forged(&gfd, &names, &requests(&names), &gfd.own);
    gfd.refuses(up, &["not-from-gfd"], &own);
    same("frames at edges", &before, &tables(up));
    // The operator hears of it, and of nothing else.
    let told = up.fm(&format!("events --after {events}"));
    let is_refusal = |event: &Value| event["what"].as_str().unwrap().contains("refused an access");
    assert!(told.as_array().unwrap().iter().all(is_refusal), "{told}");
    announced(&loaded, &names, &device);
    same("announcements", &before, &tables(up));
    loaded.whole(&["h0", "h1", "h2", "d0"]);
}

/// A device that calls itself by the names of others.
fn announced(loaded: &Loaded, names: &Names, device: &Wire) {
    let up = &loaded.up;
    let others: Vec<Pid> =
        names.all().into_iter().filter(|pid| !device.own.contains(pid) && !pid.is_none()).collect();
    let mut want = foreign(up, &device.switch);
    for &other in &others {
        for kind in [PartnerInfo::GFD, PartnerInfo::SWITCH] {
            for spid in [other, Pid::NONE] {
                let mut info = PartnerInfo::new(other, kind);
                info.uuid = [0xBA; 16];
                let pth = Pth { dsar: true, ..Pth::new(spid, Pid::NONE) };
                let frames = device.with_pth(pth, &vdm(VdmOp::LinkPartnerInfo, &info.emit()));
                device.send(&frames);
                want += frames.len() as u64;
            }
        }
        up.until(&format!("{want} announcements are refused"), |up| {
            (foreign(up, &device.switch) == want).then_some(())
        });
        // It has got nothing by that.
        let tlps = [requests(names), answers()].concat();
        let frames: Vec<Vec<u8>> = tlps
            .iter()
            .flat_map(|tlp| device.with_pth(Pth::new(other, names.manager), tlp))
            .collect();
        device.refuses(up, &["pth-at-edge"], &frames);
    }
    let last = format!("{:03x}", others.last().unwrap().bits());
    let fabric = up.show(&device.switch, "fabric");
    let ports = fabric["ports"].as_array().unwrap();
    let port = ports.iter().find(|port| port["name"] == json!(device.port)).unwrap();
    assert_eq!(port["refused_pid"], json!(last), "{port}");
    let says = format!("announces PID {last}");
    up.until("the manager tells of it", |up| {
        let is_said = |what: &str| up.fm(what).to_string().contains(&says);
        (is_said("events") && is_said("status")).then_some(())
    });
}

/// Switches that nobody has claimed yet, and somebody at an edge who is quicker than the manager: claims come to nothing,
/// and the manager finds its fabric as if nothing had been.
#[test]
fn nobody_claims_a_switch_from_an_edge() {
    let _alone = alone();
    let text = r#"
switch = [{ name = "sw0" }, { name = "sw1" }]
link = [{ ends = ["sw0", "sw1"] }]
host = [{ name = "h0", at = "sw0" }, { name = "h1", at = "sw1" }]
device = [{ name = "d0", at = "sw0" }, { name = "d1", at = "sw1" }]
"#;
    let test = "nobody_claims_a_switch_from_an_edge";
    let Some(mut up) = Up::start_text(test, text, &[]) else { return };
    let names = Names::of(&up);
    let routed = |up: &Up| -> Value {
        let of = |switch: &str| {
            let fabric = up.show(switch, "fabric");
            json!([
                fabric["pid"],
                fabric["primary"],
                fabric["ports"],
                fabric["drt"],
                fabric["vcses"]
            ])
        };
        json!([of("sw0"), of("sw1")])
    };
    let managed = routed(&up);
    up.kill("fm");
    for switch in ["sw0", "sw1"] {
        let process = std::fs::read_to_string(up.folder().join(switch).join("pid")).unwrap();
        let process = std::path::Path::new("/proc").join(process.trim());
        let links = up.links(switch, if switch == "sw0" { "sw1" } else { "sw0" });
        up.kill(switch);
        up.until("it has ended, and its links are down", |up| {
            let near = links.first()?;
            let shown = up.net().run("sw", "ip", &format!("-j link show dev {near}"));
            let shown: Value = serde_json::from_slice(&shown.stdout).ok()?;
            let flags = shown[0]["flags"].as_array()?;
            (!process.exists() && !flags.contains(&json!("UP"))).then_some(())
        });
        up.run(switch);
    }
    for switch in ["sw0", "sw1"] {
        up.until("a switch that is nobody's, and all its links", |up| {
            let fabric = up.ask_switch(switch, "fabric")?;
            let ports = fabric["ports"].as_array()?.clone();
            let up = ports.iter().all(|port| port["link_up"] == json!(true));
            (up && fabric["primary"] == json!(null)).then_some(())
        });
    }
    let before = routed(&up);
    let all = requests(&names);
    for part in ["h0", "d0", "h1", "d1"] {
        let wire = Wire::of(&up, &names, part);
        wire.refuses(&up, &["pth-at-edge"], &forged(&wire, &names, &all, &names.all()));
        wire.send(&without_pth(&wire, &all));
    }
    same("claims before the manager's", &before, &routed(&up));
    up.run("fm");
    up.until("the manager has its fabric", |up| {
        let (code, status) = up.ask_fm("status");
        (code == 0 && status["phase"] == json!("up")).then_some(())
    });
    // The entry switch has lost its PID with all else, and may have another one now, which routes follow.
    let owned = |all: &Value| -> Value {
        let of = |at: usize| json!([all[at][1], all[at][2], all[at][4]]);
        json!([of(0), of(1)])
    };
    same("owned, named and bound as before", &owned(&managed), &owned(&routed(&up)));
}
