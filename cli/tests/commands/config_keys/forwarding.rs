//! The rules of `docs/forwarding.md` on formats, tags and learning, on the wire.
//!
//! Sends a few frames through a switch of three ports, and checks the output of each port.
//!
//! Source: docs/spec/pipeline.md §1 to §3; IEEE 802.1Q 6.9, 8.6.3, 8.7; docs/spec/wire-formats.md §1.4.

use weft_hosts::frames::{FrameSpec, Kind, Station};
use weft_parsers::{Dscp, Pcp, Vid};

use super::run::{Arrival, Run, THREE, bytes, run, spec, to_reserved};
use super::with;

/// `frames` from p0, 10 us apart.
fn from_p0(frames: Vec<Vec<u8>>) -> Vec<Arrival> {
    (0..).zip(frames).map(|(n, frame)| (0, n * 10_000, frame)).collect()
}

/// Number of frames that left each port.
fn left(run: &Run) -> Vec<usize> {
    run.sent.iter().map(Vec::len).collect()
}

fn left_by(run: &Run, port: usize) -> Vec<Vec<u8>> {
    run.sent[port].iter().map(|(_, frame)| frame.clone()).collect()
}

/// A Standard frame to station 2 behind p1, with a DSCP.
fn standard(dscp: u8) -> FrameSpec {
    let plain = spec(Kind::Standard, 9, Station::numbered(2));
    FrameSpec { dscp: Dscp::new(dscp).unwrap(), ..plain }
}

const LITE: &str = "\
[[port]]
name = \"p0\"
[[port]]
name = \"p1\"
afh = \"lite\"
[[port]]
name = \"p2\"
afh = \"lite\"
";

#[test]
fn a_lite_port_takes_all_for_lite_and_gets_nothing_else() {
    let lite = bytes(&spec(Kind::Lite, 9, Station::numbered(77)), 0);
    let other = bytes(&standard(0), 0);
    let came = run(vec![(1, 0, lite.clone())], LITE);
    assert_eq!(left(&came), [0, 0, 1], "Lite leaves by Lite ports only");
    let came = run(vec![(0, 0, other.clone())], LITE);
    assert_eq!((left(&came), came.number("/drops/format_filtered")), (vec![0, 0, 0], "1".into()));
    let came = run(vec![(1, 0, other.clone())], LITE);
    assert_eq!(
        came.number("/ports/1/rx_formats"),
        "{\"lite\":1}",
        "a Standard frame is none there"
    );
    assert_eq!(left_by(&came, 2), [other]);
}

#[test]
fn a_tag_of_any_vlan_passes_transparent_ports_as_it_is() {
    for (vid, pvid) in [(5, "1"), (5, "5"), (5, "7"), (0, "1")] {
        let tagged =
            bytes(&standard(0).with_vlan(Pcp::from_low_bits(6), Vid::from_low_bits(vid)), 0);
        let came = run(from_p0(vec![tagged.clone()]), &with(THREE, "port.pvid", pvid));
        let outputs = left(&came);
        assert_eq!(outputs[0] + outputs[1], 1, "VID {vid}, pvid {pvid}");
        assert_eq!(left_by(&came, 1), [tagged], "VID {vid}, pvid {pvid}: not a bit is changed");
    }
}

/// p1 has another pvid than p0: a frame without a VID that goes there gets a tag with p0's.
#[test]
fn an_added_tag_has_the_lowest_pcp_of_the_priority() {
    let text = THREE.replace("name = \"p1\"\n", "name = \"p1\"\npvid = 5\n");
    #[rustfmt::skip] // columns: DSCP of the frame, its priority of four, PCP of the tag
    let cases = [(0, 0, 0), (8, 1, 1), (24, 2, 3), (46, 3, 5)];
    for (dscp, pri, pcp) in cases {
        let plain = bytes(&standard(dscp), 0);
        let came = run(from_p0(vec![plain.clone()]), &text);
        let tag = [0x81, 0, pcp << 5, 1];
        let want = [&plain[..12], &tag, &plain[12..]].concat();
        assert_eq!(left_by(&came, 1), [want], "DSCP {dscp}, priority {pri}");
    }
    // A priority tag becomes one of the VLAN, and keeps its PCP.
    let tagged = bytes(&standard(0).with_vlan(Pcp::from_low_bits(6), Vid::from_low_bits(0)), 0);
    let came = run(from_p0(vec![tagged.clone()]), &text);
    let want = [&tagged[..14], &[6 << 5, 1], &tagged[16..]].concat();
    assert_eq!(left_by(&came, 1), [want]);
}

/// C-tags and S-tags name VLANs of one space; one that is put in has the first TPID, one that stays has its own.
#[test]
fn any_of_several_tpids_is_a_tag_and_the_first_is_put_in() {
    const TRUNKS: &str = "\
[[port]]
name = \"p0\"
vlan = \"trunk\"
native = 7
[[port]]
name = \"p1\"
vlan = \"access\"
pvid = 5
[[port]]
name = \"p2\"
vlan = \"trunk\"
allowed = [\"5-7\"]
";
    let tagged = |tpid: u16, vid: u16| {
        let plain = standard(0).with_vlan(Pcp::from_low_bits(3), Vid::from_low_bits(vid));
        bytes(&FrameSpec { tpid, ..plain }, 0)
    };
    let plain = bytes(&standard(0), 0);
    let text = with(TRUNKS, "formats.tpid", "[0x88a8, 0x8100, 0x9100]");
    for tpid in [0x88A8, 0x8100, 0x9100] {
        let frame = tagged(tpid, 5);
        let came = run(from_p0(vec![frame.clone()]), &text);
        assert_eq!(
            left_by(&came, 1),
            [[&frame[..12], &frame[16..]].concat()],
            "{tpid:#x}: taken out"
        );
        assert_eq!(left_by(&came, 2), [frame], "{tpid:#x}: as it came");
        // A priority tag gets the native VLAN, and keeps TPID and PCP.
        let frame = tagged(tpid, 0);
        let came = run(from_p0(vec![frame.clone()]), &text);
        let want = [&frame[..14], &[0x60, 7], &frame[16..]].concat();
        assert_eq!(left_by(&came, 2), [want], "{tpid:#x}: another VID");
        assert_eq!(came.number("/ports/2/priorities/2/dequeued"), "1", "{tpid:#x}: by its PCP");
    }
    let came = run(from_p0(vec![plain.clone()]), &text);
    let want = [&plain[..12], &[0x88, 0xA8, 0, 7], &plain[12..]].concat();
    assert_eq!(left_by(&came, 2), [want], "the first is put in");
    let came = run(from_p0(vec![tagged(0x9200, 5)]), &text);
    assert_eq!(left(&came), [0, 0, 1], "another EtherType is none: the frame is untagged");
}

#[test]
fn who_speaks_to_a_reserved_group_is_learnt() {
    let hello = to_reserved(0x0E);
    let answer = bytes(&spec(Kind::Ethernet, 9, Station::numbered(100)), 0);
    let came = run(vec![(0, 0, bytes(&hello, 0)), (2, 1_000_000, answer.clone())], THREE);
    assert_eq!((left(&came), came.number("/drops/reserved_group")), (vec![1, 0, 0], "1".into()));
    let came = run(vec![(2, 1_000_000, answer)], THREE);
    assert_eq!(left(&came), [1, 1, 0], "without it the station is not known");
}

#[test]
fn a_reserved_group_is_forwarded_where_its_own_key_says_so() {
    let all: Vec<Vec<u8>> = (0..16).map(|digit| bytes(&to_reserved(digit), 0)).collect();
    #[rustfmt::skip] // columns: value of the key, last digits of what is forwarded
    let cases: [(&str, &[usize]); 5] = [
        ("[]", &[]),
        ("[\"stp\"]", &[0]),
        ("[\"lacp\", \"eapol\", \"lldp\"]", &[2, 3, 14]),
        ("[\"01:80:C2:00:00:0F\"]", &[15]),
        ("[\"stp\",\"lacp\",\"eapol\",\"01:80:c2:00:00:04\",\"01:80:c2:00:00:05\",\"01:80:c2:00:00:06\",\"01:80:c2:00:00:07\",\
           \"01:80:c2:00:00:08\",\"01:80:c2:00:00:09\",\"01:80:c2:00:00:0a\",\"01:80:c2:00:00:0b\",\"01:80:c2:00:00:0c\",\
           \"01:80:c2:00:00:0d\",\"lldp\",\"01:80:c2:00:00:0f\"]", &[0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]),
    ];
    for (value, forwarded) in cases {
        let came = run(from_p0(all.clone()), &with(THREE, "fdb.reserved_groups", value));
        let want: Vec<_> = forwarded.iter().map(|&digit| all[digit].clone()).collect();
        assert_eq!(left(&came), [0, want.len(), want.len()], "{value}: to all of the VLAN");
        assert_eq!(left_by(&came, 1), want, "{value}");
        let dropped = 16 - forwarded.len();
        assert_eq!(came.number("/drops/reserved_group"), dropped.to_string(), "{value}");
    }
    // A configured group gives its ports; a storm limit holds; a Lite port's frames are read as Lite.
    let lldp = with(THREE, "fdb.reserved_groups", "[\"lldp\"]");
    let group = "[[group]]\naddr = \"01:80:c2:00:00:0e\"\nports = [\"p2\"]\n";
    let came = run(from_p0(all.clone()), &format!("{lldp}{group}"));
    assert_eq!(left(&came), [0, 0, 1]);
    let came = run(from_p0(all.clone()), &with(&lldp, "port.storm_multicast", "0"));
    assert_eq!(came.number("/drops/storm_multicast"), "1");
    for order in ["slap", "as_documented"] {
        let text = with(LITE, "fdb.reserved_groups", "[\"lldp\"]");
        let text = with(&text, "formats.gen2_order", &format!("\"{order}\""));
        let came = run(all.iter().map(|frame| (1, 0, frame.clone())).collect(), &text);
        assert_eq!(left_by(&came, 2), [all[14].clone()], "{order}");
    }
}

#[test]
fn byte_6_tells_gen2_from_gen1_under_auto() {
    #[rustfmt::skip] // columns: byte 6, mode of the port, format
    let cases = [
        (0x20, "auto", "gen1"), (0x80, "auto", "gen1"), (0x81, "auto", "gen1"),
        (0x82, "auto", "gen2"), (0x83, "auto", "gen2"), (0xB2, "auto", "gen2"),
        (0x82, "gen1", "gen1"), (0x83, "gen1", "gen1"),
    ];
    for (byte, mode, format) in cases {
        let mut frame = bytes(&spec(Kind::Gen1, 9, Station::numbered(2)), 0);
        frame[6] = byte;
        let text = with(THREE, "port.afh", &format!("\"{mode}\""));
        let got = run(from_p0(vec![frame]), &text).number("/ports/0/rx_formats");
        assert_eq!(got, format!("{{\"{format}\":1}}"), "{byte:#x} on {mode}");
    }
}

/// p1 puts a tag in, so that four bytes more leave than came.
#[test]
fn bytes_are_counted_as_received_and_as_sent() {
    let text = THREE.replace("name = \"p1\"\n", "name = \"p1\"\npvid = 5\n");
    let plain = bytes(&standard(0), 0);
    let came = run(from_p0(vec![plain.clone(), plain.clone()]), &text);
    assert_eq!(left_by(&came, 1).iter().map(Vec::len).collect::<Vec<_>>(), [plain.len() + 4; 2]);
    assert_eq!(came.number("/ports/0/rx_bytes"), (2 * plain.len()).to_string());
    assert_eq!(came.number("/ports/1/tx_bytes"), (2 * (plain.len() + 4)).to_string());
}
