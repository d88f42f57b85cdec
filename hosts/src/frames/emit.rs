//! Writes the bytes of a frame in place, layer by layer, from a [`FrameSpec`] and a [`Stamp`].
//!
//! Source: docs/spec/wire-formats.md §1.2 to §1.5, §2.1 to §2.3.

use weft_parsers::afh::{Gen1Repr, Gen2Repr, LiteRepr};
use weft_parsers::bth::BthRepr;
use weft_parsers::crc::{self, Transport, icrc_afh, icrc_ip};
use weft_parsers::ipv4::{DONT_FRAGMENT, Ipv4Repr};
use weft_parsers::ipv6::Ipv6Repr;
use weft_parsers::rh::RhRepr;
use weft_parsers::udp::{STANDARD_CHECKSUM, UdpRepr};
use weft_parsers::{RhOpcode, bth, ether_type, ip_proto, ipv4, ipv6, rh, udp};

use super::{FrameSpec, Kind, PayloadBits};
use crate::stamp::{self, Extras, Stamp};

/// UDP checksum of RoCEv2 over IPv6: none (IBTA annex A17), as the ICRC covers the packet.
const ROCE6_CHECKSUM: u16 = 0;

/// The part of a frame that is still to be written.
struct Rest<'a>(&'a mut [u8]);

impl<'a> Rest<'a> {
    fn take<const N: usize>(&mut self) -> Option<&'a mut [u8; N]> {
        let (part, tail) = core::mem::take(&mut self.0).split_first_chunk_mut()?;
        self.0 = tail;
        Some(part)
    }
}

/// Fills `out` with a frame of `len` bytes, or with its front; `None` if the format cannot have that length, which
/// callers check first.
pub(super) fn emit(spec: &FrameSpec, stamp: &Stamp, len: usize, out: &mut [u8]) -> Option<()> {
    match spec.kind {
        Kind::Pfc => spec.pfc.emit(spec.src.mac, out.first_chunk_mut()?),
        Kind::Pause => spec.pause.emit(spec.src.mac, out.first_chunk_mut()?),
        _ => return emit_data(spec, stamp, len, out),
    }
    Some(())
}

fn emit_data(spec: &FrameSpec, stamp: &Stamp, len: usize, out: &mut [u8]) -> Option<()> {
    let ends = spec.header_len() + spec.trailer_len();
    let payload_len = len.checked_sub(ends)?;
    let is_whole = out.len() == len;
    // The ICRC covers the headers from IP on, or the RH alone where there is no IP (docs/spec/wire-formats.md §2.2).
    let protected_at = spec.header_len() - protected_header_len(spec.kind);
    let mut rest = Rest(&mut *out);
    emit_front(spec, stamp, &mut rest)?;
    match spec.kind {
        Kind::Standard => {
            // Lengths in IP and UDP count the ICRC, as in RoCEv2.
            let udp_len = udp::LEN + rh::LEN + payload_len + spec.trailer_len();
            ipv4_of(spec, udp_len)?.emit(rest.take()?);
            udp_of(spec, udp_len, STANDARD_CHECKSUM)?.emit(rest.take()?);
            rh_of(spec, stamp, payload_len).emit(rest.take()?);
        }
        Kind::Gen1 | Kind::Gen2 => rh_of(spec, stamp, payload_len).emit(rest.take()?),
        Kind::Roce6 => {
            let udp_len = udp::LEN + bth::LEN + payload_len + spec.trailer_len();
            ipv6_of(spec, udp_len)?.emit(rest.take()?);
            udp_of(spec, udp_len, ROCE6_CHECKSUM)?.emit(rest.take()?);
            bth_of(spec, stamp).emit(rest.take()?);
        }
        Kind::Lite | Kind::Ethernet | Kind::Pfc | Kind::Pause => {}
    }
    let bits = spec.kind == Kind::Gen2 && spec.payload_bits == PayloadBits::Varied;
    let extras = Extras { icrc: spec.icrc, bits };
    // A front ends before the ICRC and has nothing to check behind the mark.
    if !is_whole {
        let front = stamp::LEN.min(payload_len);
        let (payload, others) = rest.0.split_at_mut_checked(front)?;
        others.fill(0);
        stamp::write_front(payload, payload_len, spec.tells_len(), stamp, extras);
        return Some(());
    }
    let (payload, _) = rest.0.split_at_mut_checked(payload_len)?;
    if spec.stamped {
        stamp::write(payload, spec.tells_len(), stamp, extras);
    } else {
        payload.fill(0);
    }
    if spec.icrc {
        let (front, icrc) = out.split_last_chunk_mut::<{ crc::LEN }>()?;
        let protected = front.get(protected_at..)?;
        *icrc = match spec.kind {
            Kind::Standard => icrc_ip(protected, Transport::RcLink).ok()?,
            Kind::Roce6 => icrc_ip(protected, Transport::Roce).ok()?,
            _ => icrc_afh(protected),
        };
    }
    Some(())
}

/// Bytes of headers, counted from the payload back, that the ICRC covers.
const fn protected_header_len(kind: Kind) -> usize {
    match kind {
        Kind::Standard => ipv4::LEN + udp::LEN + rh::LEN,
        Kind::Roce6 => ipv6::LEN + udp::LEN + bth::LEN,
        Kind::Gen1 | Kind::Gen2 => rh::LEN,
        Kind::Lite | Kind::Ethernet | Kind::Pfc | Kind::Pause => 0,
    }
}

/// Writes addresses, tag and EtherType; of Lite the addresses alone, as it has neither tag nor type.
fn emit_front(spec: &FrameSpec, stamp: &Stamp, rest: &mut Rest<'_>) -> Option<()> {
    let (order, key_words, tc) = (spec.gen2_order, spec.key_words, spec.tc);
    let (dst, src) = (spec.dst.id, spec.src.id);
    let addresses = rest.take::<{ weft_parsers::afh::LEN }>()?;
    let kind = match spec.kind {
        Kind::Lite => {
            LiteRepr { order, key_words, tc, dst, src, xpu_id: spec.xpu_id }.emit(addresses);
            return Some(());
        }
        Kind::Gen1 => {
            Gen1Repr { dst: spec.dst.mac, tc, src: spec.src.mac.to_bits() }.emit(addresses);
            spec.ether_type
        }
        Kind::Gen2 => {
            let (payload_hi, payload_lo) = match spec.payload_bits {
                PayloadBits::Fixed(high, low) => (high, low),
                PayloadBits::Varied => stamp::header_bits(stamp.stream, stamp.seq),
            };
            Gen2Repr { order, key_words, tc, dst, src, payload_hi, payload_lo }.emit(addresses);
            spec.ether_type
        }
        Kind::Standard | Kind::Roce6 | Kind::Ethernet | Kind::Pfc | Kind::Pause => {
            let (to, from) = addresses.split_at_mut(6);
            to.copy_from_slice(&spec.dst.mac.0);
            from.copy_from_slice(&spec.src.mac.0);
            match spec.kind {
                Kind::Standard => ether_type::IPV4,
                Kind::Roce6 => ether_type::IPV6,
                _ => spec.ether_type,
            }
        }
    };
    if let Some(tci) = spec.vlan {
        *rest.take()? = spec.tpid.to_be_bytes();
        *rest.take()? = tci.0.to_be_bytes();
    }
    *rest.take()? = kind.to_be_bytes();
    Some(())
}

fn ipv4_of(spec: &FrameSpec, udp_len: usize) -> Option<Ipv4Repr> {
    Some(Ipv4Repr {
        tos: spec.dscp.get() << 2 | spec.ecn as u8,
        total_len: u16::try_from(ipv4::LEN + udp_len).ok()?,
        id: spec.ip_id,
        fragment: DONT_FRAGMENT,
        ttl: spec.ttl,
        proto: ip_proto::UDP,
        src: spec.src.ip4,
        dst: spec.dst.ip4,
    })
}

fn ipv6_of(spec: &FrameSpec, udp_len: usize) -> Option<Ipv6Repr> {
    Some(Ipv6Repr {
        traffic_class: spec.dscp.get() << 2 | spec.ecn as u8,
        flow_label: 0,
        payload_len: u16::try_from(udp_len).ok()?,
        next_header: ip_proto::UDP,
        hop_limit: spec.ttl,
        src: spec.src.ip6,
        dst: spec.dst.ip6,
    })
}

fn udp_of(spec: &FrameSpec, udp_len: usize, checksum: u16) -> Option<UdpRepr> {
    let len = u16::try_from(udp_len).ok()?;
    Some(UdpRepr { sport: spec.sport, dport: spec.dport, len, checksum })
}

/// The low 16 bits of a sequence number; the header's PSN takes 12 of them (24 in a BTH).
const fn low16(seq: u64) -> u16 {
    let [.., high, low] = seq.to_be_bytes();
    u16::from_be_bytes([high, low])
}

fn rh_of(spec: &FrameSpec, stamp: &Stamp, payload_len: usize) -> RhRepr {
    let rh = spec.rh;
    RhRepr {
        opcode: rh.opcode,
        fack: rh.fack,
        pad: rh.pad,
        timestamp_en: rh.timestamp.is_some(),
        timestamp: rh.timestamp.unwrap_or_default(),
        p_key: rh.p_key,
        // One field for three uses, by opcode (docs/spec/wire-formats.md §1.5).
        len_or_syndrome: match rh.opcode {
            RhOpcode::Send | RhOpcode::Reserved => RhRepr::len_field(payload_len),
            RhOpcode::Ack => rh.syndrome,
            RhOpcode::Cnp => 0,
        },
        psn: rh.psn.unwrap_or(low16(stamp.seq)),
        dest_qp: rh.dest_qp,
    }
}

/// BTH of an RC SEND only, or of a CNP.
fn bth_of(spec: &FrameSpec, stamp: &Stamp) -> BthRepr {
    let rh = spec.rh;
    let cnp = rh.opcode == RhOpcode::Cnp;
    BthRepr {
        // 0x04 is RC SEND only, 0xFFFF the default partition (docs/spec/wire-formats.md §2.1).
        opcode: if cnp { bth::OPCODE_CNP } else { 0x04 },
        solicited: false,
        mig_req: false,
        pad: rh.pad & 3,
        t_ver: 0,
        p_key: 0xFFFF,
        fecn: false,
        becn: cnp,
        dest_qp: u32::from(rh.dest_qp),
        ack_req: rh.fack,
        psn: u32::from(rh.psn.unwrap_or(low16(stamp.seq))),
    }
}
