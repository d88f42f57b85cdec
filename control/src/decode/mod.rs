//! Frames as fields by name: what `weft decode` prints.
//!
//! Bytes and how the port reads them in, [`Decoded`] out; never refuses a frame, an error of
//! a layer is one of its fields.
//!
//! Units: bytes without FCS; times in ns.
//! Source: docs/spec/wire-formats.md §1 to §3.

mod line;
mod spans;
#[cfg(test)]
mod tests;
mod tlp;

use serde::Serialize;
use weft_parsers::afh::{Gen1, Gen2, Lite};
use weft_parsers::bth::{self, Bth};
use weft_parsers::cc_update::CcUpdate;
use weft_parsers::ipv4::Ipv4;
use weft_parsers::ipv6::Ipv6;
use weft_parsers::mac_control::{MacControl, opcode};
use weft_parsers::mpls::{LabelEntry, LabelRepr};
use weft_parsers::rh::Rh;
use weft_parsers::udp::{self, Udp};
use weft_parsers::vlan::VlanTag;
use weft_parsers::{
    AfhMode, Format, Gen2Order, HEAD_LEN, Head, IpVersion, KeyWords, MacAddr, ParseConfig,
    ParseError, Pause, Pfc, RhOpcode, TrafficClass, ether_type, ethernet, ip_proto, parse_head,
};

pub use spans::{FieldSpan, field_spans};
pub use tlp::{PthFields, TlpFields};

/// A frame as fields; those that it does not have are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Decoded {
    /// Bytes that were captured.
    pub len: usize,
    /// `standard`, `gen1`, `gen2`, `lite`, `pbr` (TLPs of any kind), `mac_control`, `other`; none of a malformed
    /// frame.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<&'static str>,
    /// Destination in its address space.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dst: Option<String>,
    /// Source in its address space.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub src: Option<String>,
    /// Whether the destination is a group.
    pub is_group: bool,
    /// Outer tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<VlanFields>,
    /// Top label, behind EtherType 0x8847 and 0x8848.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mpls: Option<MplsFields>,
    /// EtherType behind the tag, as `0x0800`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ether_type: Option<String>,
    /// IPv4 or IPv6.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip: Option<IpFields>,
    /// UDP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub udp: Option<UdpFields>,
    /// AFH.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub afh: Option<AfhFields>,
    /// RC Link header.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rh: Option<RhFields>,
    /// Base transport header of RoCEv2 over IPv6.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bth: Option<BthFields>,
    /// MAC control.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac_control: Option<MacControlFields>,
    /// A TLP and what stands in front of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tlp: Option<TlpFields>,
    /// Bytes behind the headers, padding and ICRC included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload_len: Option<usize>,
    /// Bytes behind what the headers' lengths claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub padding_len: Option<usize>,
    /// What is wrong with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct VlanFields {
    /// Priority code point.
    pub pcp: u8,
    /// Drop eligible.
    pub dei: bool,
    /// VLAN; 0 is priority-tagged.
    pub vid: u16,
}

/// The top entry of an MPLS label stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MplsFields {
    /// Label.
    pub label: u32,
    /// EXP: the Traffic Class of RFC 5462.
    pub exp: u8,
    /// The last label of the stack.
    pub is_bottom: bool,
    /// Time to live.
    pub ttl: u8,
}

/// An IP header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct IpFields {
    /// 4 or 6.
    pub version: u8,
    /// Source.
    pub src: String,
    /// Destination.
    pub dst: String,
    /// Differentiated services code point.
    pub dscp: u8,
    /// Congestion codepoint: 0 not ECT, 1 ECT(1), 2 ECT(0), 3 CE.
    pub ecn: u8,
    /// Time to live, or hop limit.
    pub ttl: u8,
    /// Protocol, or next header.
    pub proto: u8,
    /// Bytes that the packet claims, its header included.
    pub total_len: usize,
    /// Whether the header checksum is right; IPv4 only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_checksum_ok: Option<bool>,
}

/// A UDP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct UdpFields {
    /// Source port.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
    /// Bytes that it claims, its header included.
    pub len: u16,
    /// Checksum as it stands.
    pub checksum: u16,
}

/// An AFH header.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AfhFields {
    /// Traffic Class byte.
    pub tc: u8,
    /// Its virtual channel.
    pub vc: u8,
    /// Its flow.
    pub flow: u8,
    /// All 48 bits of the destination, of GEN1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub da: Option<String>,
    /// `Key_words`, of GEN2 and Lite.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_words: Option<u8>,
    /// Payload bits in the destination half, of GEN2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload_hi: Option<u32>,
    /// Payload bits in the source half, of GEN2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload_lo: Option<u32>,
    /// XPU id, of Lite.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xpu_id: Option<u16>,
}

/// An RC Link header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RhFields {
    /// `send`, `ack`, `cnp` or `reserved`.
    pub opcode: &'static str,
    /// A request that wants an ACK at once.
    pub fack: bool,
    /// Pad count.
    pub pad: u8,
    /// Timestamp, where its bit says that it counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<u16>,
    /// Partition key.
    pub p_key: u8,
    /// Of a request: header and payload bytes up to 127, else 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pkt_len: Option<u8>,
    /// Of an ACK.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub syndrome: Option<u8>,
    /// Packet sequence number.
    pub psn: u16,
    /// Destination queue pair.
    pub dest_qp: u16,
}

/// A base transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct BthFields {
    /// Opcode.
    pub opcode: u8,
    /// Its name, where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<&'static str>,
    /// Partition key.
    pub p_key: u16,
    /// Destination queue pair.
    pub dest_qp: u32,
    /// Packet sequence number.
    pub psn: u32,
}

/// MAC control.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MacControlFields {
    /// Opcode.
    pub opcode: u16,
    /// Its name, where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<&'static str>,
    /// Of PFC: the classes whose enable bit is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub classes: Option<Vec<ClassFields>>,
    /// Of PAUSE.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quanta: Option<u16>,
    /// Of UEC `CC_Update`: credits consumed of 16 virtual channels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consumed: Option<Vec<u32>>,
    /// Of UEC `CC_Update`: the first of these channels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_vc: Option<u8>,
}

/// One class of PFC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ClassFields {
    /// The class.
    pub class: u8,
    /// Its time in quanta of 512 bit times; 0 is resume.
    pub quanta: u16,
}

/// Reads `frame` as a port with `config` does.
#[must_use]
pub fn decode(frame: &[u8], config: &ParseConfig) -> Decoded {
    let mut decoded = Decoded { len: frame.len(), ..Decoded::default() };
    let mut front = [0; HEAD_LEN];
    for (to, from) in front.iter_mut().zip(frame) {
        *to = *from;
    }
    let read = parse_head(&front, frame.len(), config)
        .and_then(|head| fill(&mut decoded, frame, &head, config));
    if let Err(error) = read {
        decoded.error = Some(error.to_string());
    }
    decoded
}

fn fill(
    decoded: &mut Decoded,
    frame: &[u8],
    head: &Head,
    config: &ParseConfig,
) -> Result<(), ParseError> {
    decoded.format = Some(head.format().name());
    decoded.dst = Some(head.dst().to_string());
    decoded.src = Some(head.src().to_string());
    decoded.is_group = head.group();
    if head.format() == Format::AfhLite {
        return lite(decoded, frame, config);
    }
    let (ethernet, mut rest) = ethernet::Ethernet::parse(frame)?;
    let mut kind = ethernet.ether_type();
    if head.tagged() {
        // The tag's own EtherType is the one that was just read.
        let (tag, behind) = VlanTag::parse(rest)?;
        let (pcp, vid) = (tag.pcp().get(), tag.vid().get());
        decoded.vlan = Some(VlanFields { pcp, dei: tag.dei(), vid });
        (kind, rest) = (tag.ether_type(), behind);
    }
    if head.exp().is_some() {
        let top = LabelEntry::parse(rest)?.0.repr();
        let LabelRepr { label, is_bottom, ttl, .. } = top;
        decoded.mpls = Some(MplsFields { label, exp: top.exp.get(), is_bottom, ttl });
    }
    decoded.ether_type = Some(format!("{kind:#06x}"));
    decoded.payload_len = Some(rest.len());
    let from_type = frame.get(frame.len() - rest.len() - 2..).unwrap_or_default();
    if head.format() == Format::Other
        && let Some((fields, read)) = tlp::read(from_type)
    {
        decoded.format = Some(Format::Pbr.name());
        decoded.tlp = Some(fields);
        let (payload, behind) = read?;
        decoded.payload_len = Some(payload);
        decoded.padding_len = Some(behind).filter(|len| *len > 0);
        return Ok(());
    }
    match head.format() {
        Format::MacControl => mac_control(decoded, frame),
        Format::AfhGen1 => {
            let (gen1, _) = Gen1::parse(frame)?;
            // A station is known by 40 bits of it.
            decoded.afh =
                Some(AfhFields { da: Some(gen1.dst().to_string()), ..afh_fields(gen1.tc()) });
            rc_link(decoded, rest)
        }
        Format::AfhGen2 => {
            let (gen2, _) = Gen2::parse(frame, order_of(frame, config))?;
            decoded.afh = Some(AfhFields {
                key_words: Some(gen2.key_words().0),
                payload_hi: Some(gen2.payload_hi()),
                payload_lo: Some(gen2.payload_lo()),
                ..afh_fields(gen2.tc())
            });
            rc_link(decoded, rest)
        }
        _ if head.has_ip() => ip(decoded, frame, head),
        _ => whole_ip(kind, rest),
    }
}

/// Tells of an IP header that ends before it is whole: to a port such a frame is one without IP.
///
/// Another version behind the EtherType is no error, as that says nothing of a length.
fn whole_ip(kind: u16, packet: &[u8]) -> Result<(), ParseError> {
    let found = match kind {
        ether_type::IPV4 => Ipv4::parse(packet).map(|_| ()),
        ether_type::IPV6 => Ipv6::parse(packet).map(|_| ()),
        _ => return Ok(()),
    };
    if let Err(ParseError::Value { .. }) = found { Ok(()) } else { found }
}

/// The byte order that a port takes a GEN2 frame for: mode `auto` looks which fits.
fn order_of(frame: &[u8], config: &ParseConfig) -> Gen2Order {
    let fits = |order: Gen2Order| {
        let byte = match order {
            Gen2Order::Slap => 0,
            Gen2Order::AsDocumented => 6,
        };
        frame.get(byte).is_some_and(|byte| KeyWords(*byte).looks_like_gen2())
    };
    let own = config.gen2_order;
    if config.afh == AfhMode::Auto && !fits(own) && fits(own.other()) { own.other() } else { own }
}

fn afh_fields(tc: TrafficClass) -> AfhFields {
    AfhFields { tc: tc.0, vc: tc.vc(), flow: tc.flow(), ..AfhFields::default() }
}

fn lite(decoded: &mut Decoded, frame: &[u8], config: &ParseConfig) -> Result<(), ParseError> {
    let (lite, payload) = Lite::parse(frame, config.gen2_order)?;
    decoded.afh = Some(AfhFields {
        key_words: Some(lite.key_words().0),
        xpu_id: Some(lite.xpu_id()),
        ..afh_fields(lite.tc())
    });
    decoded.payload_len = Some(payload.len());
    Ok(())
}

fn rc_link(decoded: &mut Decoded, bytes: &[u8]) -> Result<(), ParseError> {
    let (rh, payload) = Rh::parse(bytes)?;
    let opcode = rh.opcode();
    let of = |is: bool| is.then(|| rh.len_or_syndrome());
    decoded.rh = Some(RhFields {
        opcode: opcode.name(),
        fack: rh.fack(),
        pad: rh.pad(),
        timestamp: rh.timestamp_en().then(|| rh.timestamp()),
        p_key: rh.p_key(),
        pkt_len: of(opcode == RhOpcode::Send),
        syndrome: of(opcode == RhOpcode::Ack),
        psn: rh.psn(),
        dest_qp: rh.dest_qp(),
    });
    decoded.payload_len = Some(payload.len());
    Ok(())
}

fn ip(decoded: &mut Decoded, frame: &[u8], head: &Head) -> Result<(), ParseError> {
    let offset = head.ip_offset().map_or(frame.len(), usize::from);
    let packet = frame.get(offset..).unwrap_or_default();
    let (fields, payload) = if let Some(IpVersion::V4) = head.ip_version() {
        let (ip, payload) = Ipv4::parse(packet)?;
        let fields = IpFields {
            version: 4,
            src: ip.src().to_string(),
            dst: ip.dst().to_string(),
            dscp: ip.dscp().get(),
            ecn: ip.ecn() as u8,
            ttl: ip.ttl(),
            proto: ip.proto(),
            total_len: ip.total_len().into(),
            is_checksum_ok: Some(ip.is_checksum_ok()),
        };
        (fields, payload)
    } else {
        let (ip, payload) = Ipv6::parse(packet)?;
        let fields = IpFields {
            version: 6,
            src: ip.src().to_string(),
            dst: ip.dst().to_string(),
            dscp: ip.dscp().get(),
            ecn: ip.ecn() as u8,
            ttl: ip.hop_limit(),
            proto: ip.next_header(),
            total_len: usize::from(ip.payload_len()) + weft_parsers::ipv6::LEN,
            is_checksum_ok: None,
        };
        (fields, payload)
    };
    decoded.payload_len = Some(payload.len());
    let padding = packet.len().checked_sub(fields.total_len);
    decoded.padding_len = padding.filter(|len| *len > 0);
    if padding.is_none() {
        decoded.error =
            Some(format!("ip: claims {} bytes, has {}", fields.total_len, packet.len()));
    }
    decoded.ip = Some(fields);
    let l4 = head.l4_offset().filter(|_| head.ip_proto() == ip_proto::UDP);
    let Some(datagram) = l4.and_then(|l4| frame.get(usize::from(l4)..)) else { return Ok(()) };
    let (udp, payload) = Udp::parse(datagram)?;
    decoded.udp = Some(UdpFields {
        sport: udp.sport(),
        dport: udp.dport(),
        len: udp.len(),
        checksum: udp.checksum(),
    });
    decoded.payload_len = Some(payload.len());
    let claimed = usize::from(udp.len());
    if head.rh_opcode().is_some() {
        rc_link(decoded, payload)?;
    } else if head.to_standard_port() && claimed >= udp::LEN + bth::LEN {
        let (bth, payload) = Bth::parse(payload)?;
        let (fields, name) = (bth.repr(), bth.opcode_name());
        let (opcode, p_key) = (fields.opcode, fields.p_key);
        let (dest_qp, psn) = (fields.dest_qp, fields.psn);
        decoded.bth = Some(BthFields { opcode, name, p_key, dest_qp, psn });
        decoded.payload_len = Some(payload.len());
    }
    Ok(())
}

fn mac_control(decoded: &mut Decoded, frame: &[u8]) -> Result<(), ParseError> {
    let (control, rest) = MacControl::parse(frame)?;
    decoded.payload_len = Some(rest.len());
    let mut fields = MacControlFields {
        opcode: control.opcode(),
        name: opcode::name(control.opcode()),
        ..MacControlFields::default()
    };
    let read = match control.opcode() {
        opcode::PFC => Pfc::parse(frame).map(|pfc| {
            let class = |class| pfc.class(class).map(|quanta| ClassFields { class, quanta });
            fields.classes = Some((0..8).filter_map(class).collect());
        }),
        opcode::PAUSE => Pause::parse(frame).map(|pause| fields.quanta = Some(pause.quanta)),
        opcode::EXTENSION => CcUpdate::parse(frame).map(|update| {
            fields.consumed = Some(update.consumed.to_vec());
            fields.first_vc = Some(if update.upper { 16 } else { 0 });
        }),
        _ => Ok(()),
    };
    if matches!(control.opcode(), opcode::PFC | opcode::PAUSE) && control.dst() != MacAddr::PAUSE {
        decoded.error = Some(format!("mac control: not to {}", MacAddr::PAUSE));
    }
    decoded.mac_control = Some(fields);
    read
}
