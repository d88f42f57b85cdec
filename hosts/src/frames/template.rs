//! Writes many similar frames of one sender quickly: the common part once, then only the fields that differ.
//!
//! [`Template`] holds the front of a frame; [`Template::write`] copies it and fills in [`Own`] and the mark. The bytes
//! are those that [`FrameSpec::emit_front`] writes; frames that do not fit the template are written by that function.
//! Lengths are without FCS.
//!
//! Source: docs/spec/wire-formats.md §1.1, §1.3, §1.5, §2.1.

use weft_dataplane::pool::FRONT_LEN;
use weft_dataplane::time::Instant;
use weft_parsers::checksum::Sum;
use weft_parsers::rh::RhRepr;
use weft_parsers::{RhOpcode, ethernet, ipv4, rh, udp, vlan};

use super::{FrameError, FrameSpec, Kind, RhSpec, Station};
use crate::stamp::{self, Extras, Stamp};

/// Offsets of fields in an IPv4 header.
const TOTAL_LEN: usize = 2;
const CHECKSUM: usize = 10;
const DST: usize = 16;
/// Bytes of IPv4 and UDP headers together, and the offset of UDP's length in them.
const HEADERS: usize = ipv4::LEN + udp::LEN;
const UDP_LEN: usize = ipv4::LEN + 4;
/// The shortest frame on a wire, without FCS.
const SHORTEST: usize = ethernet::MIN_FRAME_LEN;

/// Fields of one frame that the template does not fix, beside length and mark.
#[derive(Clone, Copy, Debug)]
pub struct Own<'a> {
    /// Receiver, of which MAC and IPv4 address are used.
    pub dst: &'a Station,
    /// Opcode of the RC Link header.
    pub opcode: RhOpcode,
    /// Packet sequence number, 12 bits.
    pub psn: u16,
    /// AETH syndrome, used if the opcode is ACK.
    pub syndrome: u8,
    /// Timestamp of the RC Link header, if it is to have one.
    pub timestamp: Option<u16>,
}

impl Own<'_> {
    fn put_on(&self, spec: &mut FrameSpec) {
        let Self { dst, opcode, psn, syndrome, timestamp } = *self;
        spec.dst = *dst;
        spec.rh = RhSpec { opcode, psn: Some(psn), syndrome, timestamp, ..spec.rh };
    }
}

/// A sender's frames that differ only in the fields of [`Own`], length and mark.
#[derive(Clone, Debug)]
pub struct Template {
    spec: FrameSpec,
    /// Common front of the frames; `None` if frames of this kind are written field by field.
    front: Option<Box<Front>>,
}

#[derive(Clone, Debug)]
struct Front {
    bytes: [u8; FRONT_LEN],
    /// Partial checksum over the words of the IPv4 header that are the same in all frames.
    sum: Sum,
    /// RC Link header with the fixed fields filled in and zeros elsewhere.
    rh: u64,
    layers: Layers,
    is_stamped: bool,
    has_icrc: bool,
    trailer: usize,
}

/// Headers in front of the RC Link header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layers {
    Ip,
    TaggedIp,
    Gen1,
    TaggedGen1,
}

impl Template {
    /// A template of frames like `spec`, which has passed [`FrameSpec::check`].
    #[must_use]
    pub fn new(spec: FrameSpec) -> Self {
        let front = Front::of(&spec).map(Box::new);
        Self { spec, front }
    }

    /// Description of the frames, with the receiver of the last one written field by field.
    #[must_use]
    pub const fn spec(&self) -> &FrameSpec {
        &self.spec
    }

    /// Changes the description of all further frames.
    pub fn change(&mut self, change: impl FnOnce(&mut FrameSpec)) {
        change(&mut self.spec);
        self.front = Front::of(&self.spec).map(Box::new);
    }

    /// Writes a frame of `len` bytes with its `own` fields, whole or its front, as [`FrameSpec::emit_front`] does:
    /// fills `out`.
    ///
    /// # Errors
    /// Those of [`FrameSpec::emit_front`].
    #[inline]
    pub fn write(
        &mut self,
        own: &Own<'_>,
        stamp: &Stamp,
        len: usize,
        out: &mut [u8],
    ) -> Result<(), FrameError> {
        if let Some(front) = &self.front
            && front.write(own, stamp, len, out).is_some()
        {
            return Ok(());
        }
        own.put_on(&mut self.spec);
        self.spec.emit_front(stamp, len, out)
    }
}

impl Front {
    /// The common front of frames like `spec`; `None` if they differ in more fields than a template fills in.
    fn of(spec: &FrameSpec) -> Option<Self> {
        let layers = match (spec.kind, spec.vlan.is_some()) {
            (Kind::Standard, false) => Layers::Ip,
            (Kind::Standard, true) => Layers::TaggedIp,
            (Kind::Gen1, false) => Layers::Gen1,
            (Kind::Gen1, true) => Layers::TaggedGen1,
            _ => return None,
        };
        // An ICRC covers the payload, so a frame without a mark, which is written whole here, cannot have one.
        if spec.icrc && !spec.stamped {
            return None;
        }
        let mut spec = spec.clone();
        // Its address is added to the checksum of each frame; here it must count as zero.
        spec.dst = Station { ip4: core::net::Ipv4Addr::UNSPECIFIED, ..spec.dst };
        let mut bytes = [0; FRONT_LEN];
        let stamp = Stamp { stream: 0, seq: 0, sent: Instant::ZERO };
        // long enough that no more than the front is written
        let len = FRONT_LEN + 2 * stamp::LEN;
        let sizes = if spec.stamped { len } else { spec.header_len().max(SHORTEST) };
        let written = bytes.get_mut(..sizes.min(FRONT_LEN))?;
        spec.emit_front(&stamp, sizes, written).ok()?;
        let header = spec.header_len();
        // The mark is written for each frame; the bytes behind it are zeros in a front.
        bytes.get_mut(header..)?.fill(0);
        let mut sum = Sum::ZERO;
        if spec.kind == Kind::Standard {
            let ip = header - rh::LEN - udp::LEN - ipv4::LEN;
            let ip = bytes.get_mut(ip..)?.first_chunk_mut::<{ ipv4::LEN }>()?;
            // Length and checksum come with each frame: as zeros they add nothing to the sum.
            put::<TOTAL_LEN, 2, _>(ip, [0; 2]);
            put::<CHECKSUM, 2, _>(ip, [0; 2]);
            sum = sum.with(ip);
        }
        let fixed = RhRepr {
            opcode: RhOpcode::Send,
            fack: spec.rh.fack,
            pad: spec.rh.pad,
            p_key: spec.rh.p_key,
            dest_qp: spec.rh.dest_qp,
            ..RhRepr::default()
        };
        let mut rh = [0; rh::LEN];
        fixed.emit(&mut rh);
        let (rh, is_stamped, has_icrc) = (u64::from_be_bytes(rh), spec.stamped, spec.icrc);
        let trailer = spec.trailer_len();
        Some(Self { bytes, sum, rh, layers, is_stamped, has_icrc, trailer })
    }

    /// [`Template::write`] from the template; `None` if this frame has to be written field by field.
    #[inline]
    fn write(&self, own: &Own<'_>, stamp: &Stamp, len: usize, out: &mut [u8]) -> Option<()> {
        // Frames with a mark are kept by their front; those without, ACKs and CNPs, are the shortest on a wire.
        if self.is_stamped {
            let out: &mut [u8; FRONT_LEN] = out.try_into().ok()?;
            // Such a frame is whole, and needs its payload and ICRC.
            if len == FRONT_LEN {
                return None;
            }
            *out = self.bytes;
            self.fill(own, stamp, len, out)
        } else {
            let out: &mut [u8; SHORTEST] = out.try_into().ok()?;
            if len != SHORTEST {
                return None;
            }
            *out = *self.bytes.first_chunk()?;
            self.fill(own, stamp, len, out)
        }
    }

    #[inline]
    fn fill<const N: usize>(
        &self,
        own: &Own<'_>,
        stamp: &Stamp,
        len: usize,
        out: &mut [u8; N],
    ) -> Option<()> {
        const TAGGED: usize = ethernet::LEN + vlan::TAG_LEN;
        const TAGGED_L4: usize = TAGGED + ipv4::LEN + udp::LEN;
        const L4: usize = ethernet::LEN + ipv4::LEN + udp::LEN;
        put::<0, 6, N>(out, own.dst.mac.0);
        match self.layers {
            Layers::Ip => {
                self.fill_ip::<{ ethernet::LEN }, N>(own, len, out);
                self.fill_rh::<L4, N>(own, stamp, len, out)
            }
            Layers::TaggedIp => {
                self.fill_ip::<TAGGED, N>(own, len, out);
                self.fill_rh::<TAGGED_L4, N>(own, stamp, len, out)
            }
            Layers::Gen1 => self.fill_rh::<{ ethernet::LEN }, N>(own, stamp, len, out),
            Layers::TaggedGen1 => self.fill_rh::<TAGGED, N>(own, stamp, len, out),
        }
    }

    #[inline]
    fn fill_ip<const IP: usize, const N: usize>(
        &self,
        own: &Own<'_>,
        len: usize,
        out: &mut [u8; N],
    ) {
        let total_len = low16(len - IP);
        let dst = own.dst.ip4.octets();
        // One's complement sums commute: the fixed words are summed once, in `Front::of`.
        let sum = self.sum.with16(total_len).with64(u64::from(u32::from_be_bytes(dst)));
        let Some(headers) = out.get_mut(IP..).and_then(<[u8]>::first_chunk_mut) else { return };
        put::<TOTAL_LEN, 2, HEADERS>(headers, total_len.to_be_bytes());
        put::<CHECKSUM, 2, HEADERS>(headers, sum.finish().to_be_bytes());
        put::<DST, 4, HEADERS>(headers, dst);
        put::<UDP_LEN, 2, HEADERS>(headers, low16(len - IP - ipv4::LEN).to_be_bytes());
    }

    #[inline]
    fn fill_rh<const RH: usize, const N: usize>(
        &self,
        own: &Own<'_>,
        stamp: &Stamp,
        len: usize,
        out: &mut [u8; N],
    ) -> Option<()> {
        let payload_len = len.checked_sub(RH + rh::LEN + self.trailer)?;
        let told = match own.opcode {
            RhOpcode::Send | RhOpcode::Reserved => RhRepr::len_field(payload_len),
            RhOpcode::Ack => own.syndrome,
            RhOpcode::Cnp => 0,
        };
        let rest = RhRepr {
            opcode: own.opcode,
            timestamp_en: own.timestamp.is_some(),
            timestamp: own.timestamp.unwrap_or_default(),
            len_or_syndrome: told,
            psn: own.psn,
            ..RhRepr::default()
        };
        let mut word = [0; rh::LEN];
        rest.emit(&mut word);
        let tail = out.get_mut(RH..)?;
        let (header, payload) = tail.split_first_chunk_mut::<{ rh::LEN }>()?;
        // Fixed and own fields of the header do not overlap, so that OR puts them together.
        *header = (self.rh | u64::from_be_bytes(word)).to_be_bytes();
        if self.is_stamped {
            let extras = Extras { icrc: self.has_icrc, bits: false };
            stamp::write_long(payload.first_chunk_mut()?, payload_len, stamp, extras)?;
        }
        Some(())
    }
}

/// Low 16 bits of a length; frames are shorter than 2^16.
#[inline]
const fn low16(len: usize) -> u16 {
    let [.., high, low] = len.to_be_bytes();
    u16::from_be_bytes([high, low])
}

/// Writes `bytes` at offset `AT`, which is checked when the code is compiled.
#[inline]
fn put<const AT: usize, const LEN: usize, const N: usize>(out: &mut [u8; N], bytes: [u8; LEN]) {
    const { assert!(AT + LEN <= N) };
    if let Some(to) = out.get_mut(AT..).and_then(<[u8]>::first_chunk_mut) {
        *to = bytes;
    }
}

#[cfg(test)]
mod tests {
    use weft_base::rng::Rng;
    use weft_parsers::{Dscp, Ecn, Pcp, TrafficClass, Vid};

    use super::*;

    fn low(value: u64) -> u16 {
        u16::try_from(value & 0xFFFF).unwrap()
    }

    fn draw(rng: &mut Rng, kind: Kind) -> FrameSpec {
        let station = |rng: &mut Rng| Station::numbered(low(rng.next_u64()));
        let mut spec = FrameSpec::new(kind, station(rng), station(rng));
        if kind != Kind::Lite && rng.chance(1, 2) {
            spec = spec.with_vlan(Pcp::from_low_bits(3), Vid::from_low_bits(low(rng.below(4_096))));
        }
        spec.icrc = kind != Kind::Lite && rng.chance(1, 2);
        spec.stamped = rng.chance(2, 3);
        spec.dscp = Dscp::from_tos(rng.next_u64().to_le_bytes()[0]);
        spec.tc = TrafficClass(rng.next_u64().to_le_bytes()[0]);
        spec.ecn = if rng.chance(1, 2) { Ecn::Ect0 } else { Ecn::NotEct };
        spec.rh.dest_qp = low(rng.below(1_024));
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
                    dst: &Station::numbered(low(rng.next_u64())),
                    opcode: opcodes[usize::try_from(rng.below(3)).unwrap()],
                    psn: low(rng.below(4_096)),
                    syndrome: low(rng.below(128)).to_le_bytes()[0],
                    timestamp: rng.chance(1, 2).then(|| low(rng.next_u64())),
                };
                let stamp = Stamp {
                    stream: low(rng.next_u64()),
                    seq: rng.next_u64(),
                    sent: Instant::from_ps(rng.next_u64()),
                };
                let least = spec.len_min().max(60);
                let is_shortest = !spec.stamped && rng.chance(3, 4);
                let len = if is_shortest {
                    least
                } else {
                    least + usize::try_from(rng.below((spec.len_max() - least) as u64 + 1)).unwrap()
                };
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
