//! Decodes frames to named fields, as `weft decode` prints them.
//!
//! [`decode`] takes bytes and the settings by which the port parses them, and returns a [`Decoded`]. It refuses no
//! frame: the error of a layer is one of the fields.
//!
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

/// A frame as fields; fields that it does not have are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Decoded {
    pub len: usize,
    /// `standard`, `gen1`, `gen2`, `lite`, `pbr` (TLPs of any kind), `mac_control`, `other`; `None` for a malformed
    /// frame.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<&'static str>,
    /// Destination, in its address space.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dst: Option<String>,
    /// Source, in its address space.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub src: Option<String>,
    /// Whether the destination is a group address.
    pub is_group: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<VlanFields>,
    /// Top label of the stack, behind EtherType 0x8847 or 0x8848.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mpls: Option<MplsFields>,
    /// EtherType behind the tag, as `0x0800`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ether_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip: Option<IpFields>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub udp: Option<UdpFields>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub afh: Option<AfhFields>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rh: Option<RhFields>,
    /// Base transport header of RoCEv2 over IPv6.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bth: Option<BthFields>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac_control: Option<MacControlFields>,
    /// A TLP, with the headers in front of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tlp: Option<TlpFields>,
    /// Bytes behind the headers, including padding and ICRC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload_len: Option<usize>,
    /// Bytes beyond the lengths in the headers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub padding_len: Option<usize>,
    /// The first problem that was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// An 802.1Q tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct VlanFields {
    pub pcp: u8,
    /// Drop Eligible Indicator: dropped first in congestion.
    pub dei: bool,
    /// VLAN; 0 means priority-tagged.
    pub vid: u16,
}

/// The top entry of an MPLS label stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MplsFields {
    pub label: u32,
    /// EXP, called Traffic Class by RFC 5462.
    pub exp: u8,
    /// Whether it is the last label of the stack.
    pub is_bottom: bool,
    pub ttl: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct IpFields {
    /// IP version: 4 or 6.
    pub version: u8,
    pub src: String,
    pub dst: String,
    pub dscp: u8,
    /// ECN field: 0 not ECT, 1 ECT(1), 2 ECT(0), 3 CE.
    pub ecn: u8,
    /// Time to live, or hop limit.
    pub ttl: u8,
    /// Protocol, or next header.
    pub proto: u8,
    /// Length in the header, which counts the header itself.
    pub total_len: usize,
    /// Whether the header checksum is right; `None` for IPv6.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_checksum_ok: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct UdpFields {
    pub sport: u16,
    pub dport: u16,
    /// Length in the header, which counts the header itself.
    pub len: u16,
    /// Checksum field; it is not checked.
    pub checksum: u16,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AfhFields {
    /// Traffic Class byte: virtual channel and flow.
    pub tc: u8,
    /// Virtual channel of the Traffic Class.
    pub vc: u8,
    /// Flow of the Traffic Class.
    pub flow: u8,
    /// All 48 bits of the destination; GEN1 only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub da: Option<String>,
    /// `Key_words`; GEN2 and Lite only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_words: Option<u8>,
    /// Payload bits in the destination half; GEN2 only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload_hi: Option<u32>,
    /// Payload bits in the source half; GEN2 only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload_lo: Option<u32>,
    /// XPU id; Lite only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xpu_id: Option<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RhFields {
    /// `send`, `ack`, `cnp` or `reserved`.
    pub opcode: &'static str,
    /// Whether a request wants an ACK at once.
    pub fack: bool,
    pub pad: u8,
    /// Timestamp; `None` where its valid bit is clear.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<u16>,
    pub p_key: u8,
    /// Header and payload bytes of a request up to 127, else 0; `None` for other opcodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pkt_len: Option<u8>,
    /// `None` for all but an ACK.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub syndrome: Option<u8>,
    /// Packet sequence number, 12 bits.
    pub psn: u16,
    pub dest_qp: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct BthFields {
    pub opcode: u8,
    /// Name of the opcode, where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<&'static str>,
    pub p_key: u16,
    pub dest_qp: u32,
    /// Packet sequence number, 24 bits.
    pub psn: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MacControlFields {
    pub opcode: u16,
    /// Name of the opcode, where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<&'static str>,
    /// PFC: the classes whose enable bit is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub classes: Option<Vec<ClassFields>>,
    /// PAUSE: its time in quanta of 512 bit times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quanta: Option<u16>,
    /// UEC `CC_Update`: credits consumed by 16 virtual channels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consumed: Option<Vec<u32>>,
    /// UEC `CC_Update`: the first of these channels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_vc: Option<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ClassFields {
    pub class: u8,
    /// Time in quanta of 512 bit times; 0 means resume.
    pub quanta: u16,
}

/// Decodes `frame` as a port with `config` parses it.
#[must_use]
pub fn decode(frame: &[u8], config: &ParseConfig) -> Decoded {
    let mut decoded = Decoded { len: frame.len(), ..Decoded::default() };
    // The parser reads a fixed-size head; a shorter frame is filled up with zeros, and its true length passed beside
    // it.
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
    // Lite has no EtherType, so nothing below applies.
    if head.format() == Format::AfhLite {
        return lite(decoded, frame, config);
    }
    let (ethernet, mut rest) = ethernet::Ethernet::parse(frame)?;
    let mut kind = ethernet.ether_type();
    if head.tagged() {
        // `parse_head` has checked the tag's own EtherType, which is the one just read.
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
    // From the EtherType on: the TLP parser starts with it.
    let from_type = frame.get(frame.len() - rest.len() - 2..).unwrap_or_default();
    // `parse_head` leaves TLPs among `Other`; only ports with a role look into them, and this does.
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
            // An address is 40 bits of it; here all 48 are shown.
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

/// Reports an IP header that is cut off. A port treats such a frame as one without IP.
///
/// Another version behind the EtherType is no error, as it does not tell a length.
fn whole_ip(kind: u16, packet: &[u8]) -> Result<(), ParseError> {
    let found = match kind {
        ether_type::IPV4 => Ipv4::parse(packet).map(|_| ()),
        ether_type::IPV6 => Ipv6::parse(packet).map(|_| ()),
        _ => return Ok(()),
    };
    if let Err(ParseError::Value { .. }) = found { Ok(()) } else { found }
}

/// The byte order by which a port parses a GEN2 frame: in mode `auto`, the one that fits.
fn order_of(frame: &[u8], config: &ParseConfig) -> Gen2Order {
    let fits = |order: Gen2Order| {
        let byte = match order {
            Gen2Order::Slap => 0,
            Gen2Order::AsDocumented => 6,
        };
        frame.get(byte).is_some_and(|byte| KeyWords(*byte).looks_like_gen2())
    };
    // The configured order wins where both fit.
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
    // More is claimed than is there: a frame that was cut off, or a wrong length.
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
        // Enough bytes by UDP's own length: padding must not be read as a BTH.
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
    // A bridge forwards a frame to any other address: only the reserved one stays on the link (IEEE 802.1Q).
    if matches!(control.opcode(), opcode::PFC | opcode::PAUSE) && control.dst() != MacAddr::PAUSE {
        decoded.error = Some(format!("mac control: not to {}", MacAddr::PAUSE));
    }
    decoded.mac_control = Some(fields);
    read
}
