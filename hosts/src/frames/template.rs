//! Frames of one sender that differ in little: written once, and of each frame only what is its own.
//!
//! Shape: [`Template`] has the front of a frame; [`Template::write`] copies it and fills in [`Own`] and the mark.
//! Units: bytes without FCS.
//! Source: docs/spec/wire-formats.md §1.1, §1.3, §1.5, §2.1.

use weft_dataplane::pool::FRONT_LEN;
use weft_parsers::checksum::Sum;
use weft_parsers::rh::RhRepr;
use weft_parsers::{RhOpcode, ethernet, ipv4, rh, udp, vlan};

use super::{FrameError, FrameSpec, Kind, RhSpec, Station};
use crate::stamp::{self, Extras, Stamp};

/// Offsets in an IPv4 header.
const TOTAL_LEN: usize = 2;
const CHECKSUM: usize = 10;
const DST: usize = 16;
/// Offset in a UDP header.
const UDP_LEN: usize = 4;

/// What a frame of a sender has of its own beside its length and its mark.
#[derive(Clone, Copy, Debug)]
pub struct Own {
    /// Receiver.
    pub dst: Station,
    /// Opcode of the RC Link header.
    pub opcode: RhOpcode,
    /// Packet sequence number.
    pub psn: u16,
    /// Of an ACK.
    pub syndrome: u8,
    /// Timestamp, if there is one.
    pub timestamp: Option<u16>,
}

impl Own {
    fn put_on(&self, spec: &mut FrameSpec) {
        let Self { dst, opcode, psn, syndrome, timestamp } = *self;
        spec.dst = dst;
        spec.rh = RhSpec { opcode, psn: Some(psn), syndrome, timestamp, ..spec.rh };
    }
}

/// Frames of a sender that are alike.
#[derive(Clone, Debug)]
pub struct Template {
    spec: FrameSpec,
    /// The front of one, with zeros for what differs; `None` where frames are written one by one.
    front: Option<Box<Front>>,
}

#[derive(Clone, Debug)]
struct Front {
    bytes: [u8; FRONT_LEN],
    /// Of the words of the IPv4 header that do not differ.
    sum: Sum,
    /// Where the IPv4 header is; 0 for none.
    ip: usize,
    /// Where the RC Link header is.
    rh: usize,
    tells_len: bool,
}

impl Template {
    /// Of frames like `spec`, which has been checked.
    #[must_use]
    pub fn new(spec: FrameSpec) -> Self {
        let front = Front::of(&spec).map(Box::new);
        Self { spec, front }
    }

    /// What its frames are like.
    #[must_use]
    pub const fn spec(&self) -> &FrameSpec {
        &self.spec
    }

    /// Has frames be like others.
    pub fn change(&mut self, change: impl FnOnce(&mut FrameSpec)) {
        change(&mut self.spec);
        self.front = Front::of(&self.spec).map(Box::new);
    }

    /// Writes a frame of `len` bytes, or the front of it, as [`FrameSpec::emit_front`] with what is its `own`: all of `out`.
    ///
    /// # Errors
    /// As [`FrameSpec::emit`].
    #[inline]
    pub fn write(
        &mut self,
        own: &Own,
        stamp: &Stamp,
        len: usize,
        out: &mut [u8],
    ) -> Result<(), FrameError> {
        let is_whole = out.len() == len;
        if let Some(front) = &self.front
            && is_whole != self.spec.stamped
            && front.write(&self.spec, own, stamp, len, out).is_some()
        {
            return Ok(());
        }
        own.put_on(&mut self.spec);
        self.spec.emit_front(stamp, len, out)
    }
}

impl Front {
    /// The front of frames like `spec`; `None` where more differs than is known here.
    fn of(spec: &FrameSpec) -> Option<Self> {
        if !matches!(spec.kind, Kind::Standard | Kind::Gen1) || spec.icrc && !spec.stamped {
            return None;
        }
        let mut spec = spec.clone();
        spec.dst = Station { ip4: core::net::Ipv4Addr::UNSPECIFIED, ..spec.dst };
        let mut bytes = [0; FRONT_LEN];
        let stamp = Stamp { stream: 0, seq: 0, sent: weft_dataplane::time::Instant::ZERO };
        // long enough that no more than the front is written
        let len = FRONT_LEN + 2 * stamp::LEN;
        let sizes = if spec.stamped { len } else { spec.header_len().max(ethernet::MIN_FRAME_LEN) };
        let written = bytes.get_mut(..sizes.min(FRONT_LEN))?;
        spec.emit_front(&stamp, sizes, written).ok()?;
        let header = spec.header_len();
        bytes.get_mut(header..)?.fill(0);
        let l2 = ethernet::LEN + if spec.vlan.is_some() { vlan::TAG_LEN } else { 0 };
        let mut sum = Sum::ZERO;
        let is_ip = spec.kind == Kind::Standard;
        if is_ip {
            let ip = bytes.get_mut(l2..l2 + ipv4::LEN)?;
            ip.get_mut(TOTAL_LEN..TOTAL_LEN + 2)?.fill(0);
            ip.get_mut(CHECKSUM..CHECKSUM + 2)?.fill(0);
            sum = sum.with(ip);
        }
        let ip = if is_ip { l2 } else { 0 };
        Some(Self { bytes, sum, ip, rh: header - rh::LEN, tells_len: spec.tells_len() })
    }

    /// As [`Template::write`]; `None` where it is not this that is to be written.
    #[inline]
    fn write(
        &self,
        spec: &FrameSpec,
        own: &Own,
        stamp: &Stamp,
        len: usize,
        out: &mut [u8],
    ) -> Option<()> {
        let payload_at = self.rh + rh::LEN;
        let trailer = spec.trailer_len();
        let payload_len = len.checked_sub(payload_at + trailer)?;
        if out.len() == FRONT_LEN {
            *out.first_chunk_mut::<FRONT_LEN>()? = self.bytes;
        } else {
            out.copy_from_slice(self.bytes.get(..out.len())?);
        }
        *out.first_chunk_mut::<6>()? = own.dst.mac.0;
        if self.ip != 0 {
            let udp_len = u16::try_from(udp::LEN + rh::LEN + payload_len + trailer).ok()?;
            let total_len = udp_len + 20;
            let headers = out.get_mut(self.ip..)?.first_chunk_mut::<{ ipv4::LEN + udp::LEN }>()?;
            let dst = own.dst.ip4.octets();
            let [d0, d1, d2, d3] = dst;
            let sum = self.sum.with16(total_len);
            let sum = sum.with16(u16::from_be_bytes([d0, d1])).with16(u16::from_be_bytes([d2, d3]));
            put(headers, TOTAL_LEN, total_len.to_be_bytes());
            put(headers, CHECKSUM, sum.finish().to_be_bytes());
            put(headers, DST, dst);
            put(headers, ipv4::LEN + UDP_LEN, udp_len.to_be_bytes());
        }
        let header = RhRepr {
            opcode: own.opcode,
            fack: spec.rh.fack,
            pad: spec.rh.pad,
            timestamp_en: own.timestamp.is_some(),
            timestamp: own.timestamp.unwrap_or_default(),
            p_key: spec.rh.p_key,
            len_or_syndrome: match own.opcode {
                RhOpcode::Send | RhOpcode::Reserved => RhRepr::len_field(payload_len),
                RhOpcode::Ack => own.syndrome,
                RhOpcode::Cnp => 0,
            },
            psn: own.psn,
            dest_qp: spec.rh.dest_qp,
        };
        header.emit(out.get_mut(self.rh..)?.first_chunk_mut()?);
        if spec.stamped {
            let payload = out.get_mut(payload_at..)?;
            let extras = Extras { icrc: spec.icrc, bits: false };
            stamp::write_front(payload, payload_len, self.tells_len, stamp, extras);
        }
        Some(())
    }
}

/// Puts bytes at an offset that the caller's constants have inside.
#[inline]
fn put<const N: usize, const LEN: usize>(out: &mut [u8; LEN], at: usize, bytes: [u8; N]) {
    if let Some(to) = out.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
        *to = bytes;
    }
}

#[cfg(test)]
mod tests {
    use weft_base::rng::Rng;
    use weft_dataplane::time::Instant;
    use weft_parsers::{Dscp, Ecn, Pcp, TrafficClass, Vid};

    use super::*;

    fn low16(value: u64) -> u16 {
        u16::try_from(value & 0xFFFF).unwrap()
    }

    fn draw(rng: &mut Rng, kind: Kind) -> FrameSpec {
        let station = |rng: &mut Rng| Station::numbered(low16(rng.next_u64()));
        let mut spec = FrameSpec::new(kind, station(rng), station(rng));
        if kind != Kind::Lite && rng.chance(1, 2) {
            spec =
                spec.with_vlan(Pcp::from_low_bits(3), Vid::from_low_bits(low16(rng.below(4_096))));
        }
        spec.icrc = kind != Kind::Lite && rng.chance(1, 2);
        spec.stamped = rng.chance(2, 3);
        spec.dscp = Dscp::from_tos(rng.next_u64().to_le_bytes()[0]);
        spec.tc = TrafficClass(rng.next_u64().to_le_bytes()[0]);
        spec.ecn = if rng.chance(1, 2) { Ecn::Ect0 } else { Ecn::NotEct };
        spec.rh.dest_qp = low16(rng.below(1_024));
        spec.rh.fack = rng.chance(1, 4);
        spec
    }

    /// Whatever the frames, they are those that are written one by one.
    #[test]
    fn frames_are_those_that_are_written_one_by_one() {
        let mut rng = Rng::new(3);
        for round in 0..4_000 {
            let kinds = [Kind::Standard, Kind::Gen1, Kind::Gen2, Kind::Lite];
            let spec = draw(&mut rng, kinds[round % 4]);
            let mut template = Template::new(spec.clone());
            for _ in 0..4 {
                let opcodes = [RhOpcode::Send, RhOpcode::Ack, RhOpcode::Cnp];
                let own = Own {
                    dst: Station::numbered(low16(rng.next_u64())),
                    opcode: opcodes[usize::try_from(rng.below(3)).unwrap()],
                    psn: low16(rng.below(4_096)),
                    syndrome: low16(rng.below(128)).to_le_bytes()[0],
                    timestamp: rng.chance(1, 2).then(|| low16(rng.next_u64())),
                };
                let stamp = Stamp {
                    stream: low16(rng.next_u64()),
                    seq: rng.next_u64(),
                    sent: Instant::from_ps(rng.next_u64()),
                };
                let least = spec.len_min().max(60);
                let len = least
                    + usize::try_from(rng.below((spec.len_max() - least) as u64 + 1)).unwrap();
                let kept = if rng.chance(1, 3) { len } else { len.min(FRONT_LEN) };
                let (mut had, mut want) = (vec![7; kept], vec![0; kept]);
                let mut one = spec.clone();
                own.put_on(&mut one);
                let expected = one.emit_front(&stamp, len, &mut want);
                assert_eq!(template.write(&own, &stamp, len, &mut had), expected, "{own:?} {len}");
                assert_eq!(had, want, "{spec:?} {own:?} {len} {kept}");
                if rng.chance(1, 8) {
                    template.change(|spec| spec.rh.p_key ^= 1);
                    template.change(|spec| spec.rh.p_key ^= 1);
                }
            }
        }
    }
}
