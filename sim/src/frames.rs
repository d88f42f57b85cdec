//! Frames between the stations of a world, in every format, addressed by the stations' numbers.
//!
//! A [`FrameSpec`] gives bytes; [`stations_known`] gives a switch static entries for all addresses. Lengths are without
//! FCS.
//!
//! Source: docs/spec/wire-formats.md §1; docs/spec/pipeline.md §2 (which field gives which priority).

use core::net::Ipv4Addr;

use weft_dataplane::config::SwitchConfig;
use weft_dataplane::fdb::{FdbKey, StaticEntry};
use weft_dataplane::types::{PortId, Pri};
use weft_parsers::afh::{Gen1Repr, Gen2Repr, LiteRepr};
use weft_parsers::frame::{FrameRepr, HeaderRepr, StandardRepr};
use weft_parsers::rh::RhRepr;
use weft_parsers::udp::PORT_ROCE;
use weft_parsers::{
    AddrKey, Format, Gen2Order, KeyWords, MacAddr, Pcp, RhOpcode, Tci, TrafficClass, Vid,
    ether_type,
};

/// Description of a frame from one station to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameSpec {
    /// Format; any other than the four RC Link formats is sent as plain Ethernet.
    pub format: Format,
    /// Number of the sending station.
    pub src: usize,
    /// Number of the receiving station.
    pub dst: usize,
    /// Length of the frame in bytes; raised to the least that its format needs.
    pub len: usize,
    /// PCP of a tag in VLAN 0; `None`: no tag. Lite never has one.
    pub pcp: Option<u8>,
    /// DSCP of Standard frames.
    pub dscp: u8,
    /// ECN codepoint of Standard frames, as two bits.
    pub ecn: u8,
    /// Traffic Class octet of AFH frames.
    pub tc: u8,
    /// Payload bits in the header of GEN2, which must not matter to a switch.
    pub payload_bits: u32,
}

impl FrameSpec {
    /// A frame of `len` bytes that a switch with `pris` priorities classifies as `pri` by its default maps: by DSCP
    /// (Standard), by a tag (all other formats but Lite), or by Traffic Class (Lite).
    #[must_use]
    pub fn new(format: Format, src: usize, dst: usize, len: usize, pri: Pri, pris: usize) -> Self {
        let pcp = pcp_of(pri, pris);
        // Flow bits TC[4:2] decide with 4 priorities, the VC in TC[7:5] with 8 (docs/spec/pipeline.md §2).
        let tc = match (pris <= 4, pri.get()) {
            (true, 3) => 1 << 2,
            (true, 2) => 0,
            (true, _) => 2 << 2,
            (false, pri) => pri << 5,
        };
        let tagged = !matches!(format, Format::Standard | Format::AfhLite);
        Self {
            format,
            src,
            dst,
            len,
            pcp: tagged.then_some(pcp),
            // Switches take the top three bits of a DSCP as a PCP.
            dscp: pcp << 3,
            ecn: 0b10,
            tc,
            payload_bits: 0,
        }
    }

    /// The bytes of the frame, 60 at least.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let order = Gen2Order::default();
        let (key_words, tc) = (KeyWords::UNICAST, TrafficClass(self.tc));
        let header = match self.format {
            Format::Standard => HeaderRepr::Standard(StandardRepr {
                dst: mac(self.dst),
                src: mac(self.src),
                tos: self.dscp << 2 | self.ecn & 3,
                id: 1,
                ttl: 64,
                ip_src: ip(self.src),
                ip_dst: ip(self.dst),
                sport: 49_152,
                dport: PORT_ROCE,
            }),
            Format::AfhGen1 => HeaderRepr::Gen1(
                Gen1Repr { dst: gen1(self.dst), tc, src: gen1(self.src).to_bits() },
                ether_type::MAC_TYPE1,
            ),
            Format::AfhGen2 => HeaderRepr::Gen2(
                Gen2Repr {
                    order,
                    key_words,
                    tc,
                    dst: id16(self.dst),
                    src: id16(self.src),
                    payload_hi: self.payload_bits,
                    payload_lo: !self.payload_bits,
                },
                ether_type::MAC_TYPE1,
            ),
            Format::AfhLite => HeaderRepr::Lite(LiteRepr {
                order,
                key_words,
                tc,
                dst: id16(self.dst),
                src: id16(self.src),
                xpu_id: 7,
            }),
            _ => return self.plain(),
        };
        let rh = RhRepr {
            opcode: RhOpcode::Send,
            fack: false,
            pad: 0,
            timestamp_en: false,
            timestamp: 0,
            p_key: 1,
            len_or_syndrome: 0,
            psn: 1,
            dest_qp: 1,
        };
        let tag = self.tag().filter(|_| self.format != Format::AfhLite);
        let tag = tag.map(|tci| (ether_type::CTAG, tci));
        let mut repr = FrameRepr { header, tag, rh, payload: &[], icrc: false };
        let payload = vec![0; self.len.max(60).saturating_sub(repr.header_len())];
        repr.payload = &payload;
        let mut out = vec![0; repr.len()];
        let len = repr.emit(&mut out).unwrap_or(0); // out is as long as the frame
        out.truncate(len);
        out
    }

    fn tag(&self) -> Option<Tci> {
        self.pcp.map(|pcp| Tci::new(Pcp::from_low_bits(pcp), false, Vid::from_low_bits(0)))
    }

    fn plain(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len.max(60));
        out.extend_from_slice(&mac(self.dst).0);
        out.extend_from_slice(&mac(self.src).0);
        if let Some(tci) = self.tag() {
            out.extend_from_slice(&ether_type::CTAG.to_be_bytes());
            out.extend_from_slice(&tci.0.to_be_bytes());
        }
        out.extend_from_slice(&PLAIN.to_be_bytes());
        out.resize(self.len.max(60), 0);
        out
    }
}

/// EtherType of plain frames, which is no format that the switch knows.
const PLAIN: u16 = 0x9000;

/// A PCP that the default maps lead to `pri`.
#[must_use]
pub const fn pcp_of(pri: Pri, pris: usize) -> u8 {
    match (pris <= 4, pri.get()) {
        (true, 0) => 0,
        (true, 1) => 1,
        (true, 2) => 3,
        (true, _) => 5,
        (false, pri) => pri,
    }
}

/// Ethernet address of a station, by number.
#[must_use]
pub fn mac(station: usize) -> MacAddr {
    MacAddr([0x02, 0, 0, 0, 0x10, low(station)])
}

/// GEN1 address of a station, by number.
#[must_use]
pub fn gen1(station: usize) -> MacAddr {
    MacAddr([0x02, 0, 0, 0, 0x20, low(station)])
}

/// Id of a station in GEN2 and Lite, by number.
#[must_use]
pub fn id16(station: usize) -> u16 {
    0x0100 | u16::from(low(station))
}

fn ip(station: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, low(station))
}

fn low(station: usize) -> u8 {
    // A switch has 64 ports at most; no address ends in 0.
    u8::try_from(station & 63).unwrap_or(0) + 1
}

/// Adds static entries for the addresses of the station at each port, so that nothing is flooded. `vid` is the VLAN of
/// untagged frames.
pub fn stations_known(config: &mut SwitchConfig, vid: Vid) {
    for station in 0..config.ports.len() {
        let Some(port) = PortId::new(station) else { continue };
        let addresses = [
            AddrKey::ethernet(mac(station)),
            AddrKey::gen1(gen1(station).to_bits()),
            AddrKey::id16(id16(station)),
        ];
        let entries = addresses.map(|addr| StaticEntry::new(FdbKey::new(vid, addr), port));
        config.forward.static_entries.extend(entries);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_dataplane::classify::Classifier;
    use weft_dataplane::config::PriMaps;
    use weft_dataplane::types::PriSet;
    use weft_parsers::{AfhMode, HEAD_LEN, ParseConfig, parse_head};

    #[test]
    fn frames_are_what_they_say() {
        use weft_dataplane::config::PriSource::{Dscp, Pcp, Tc};
        for pris in [4, 8] {
            let maps = PriMaps::for_pris(pris);
            let classifier = Classifier::new(&[Pcp, Dscp, Tc], Pri::default(), &maps);
            for format in Format::ALL {
                if matches!(format, Format::MacControl | Format::Pbr) {
                    continue;
                }
                for pri in PriSet::first(pris).iter() {
                    if format == Format::AfhLite && pris == 4 && pri.get() == 1 {
                        continue; // no Traffic Class means that
                    }
                    let spec = FrameSpec::new(format, 1, 2, 100, pri, pris);
                    let frame = spec.to_vec();
                    assert_eq!(frame.len(), 100, "{format:?}");
                    let mut head = [0; HEAD_LEN];
                    head.copy_from_slice(&frame[..HEAD_LEN]);
                    let afh = match format {
                        Format::AfhLite => AfhMode::Lite,
                        _ => AfhMode::Auto,
                    };
                    let parse = ParseConfig { afh, ..ParseConfig::DEFAULT };
                    let parsed = parse_head(&head, frame.len(), &parse).unwrap();
                    assert_eq!(parsed.format(), format);
                    assert_eq!(classifier.pri(&parsed).0, pri, "{format:?} of {pris}");
                }
            }
        }
    }
}
