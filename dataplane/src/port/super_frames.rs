//! Super-frames that pass through the switch whole: what one port has received as one piece, another sends as one piece.
//!
//! They stand for the frames that they split into, and the pipeline counts these. It hands a super-frame on whole only if
//! each of these frames would leave at once and unchanged; else the receiving port splits it (docs/spec/pipeline.md §11).
//!
//! Source: virtio 1.3, 5.1.6 (`virtio_net_hdr`).

use weft_parsers::HEAD_LEN;
use weft_parsers::encap::{Header, Kind};
use weft_parsers::partial::UDP_FIELD;

use super::field::be16;
use super::gso::{
    GSO_ECN, GSO_TCPV4, GSO_TCPV6, GSO_UDP_TUNNEL_IPV4, GSO_UDP_TUNNEL_IPV6, Splitter,
};
use super::join::{Joined, JoinedTunnel, OUTER_IP};
use super::vnet::VnetHeader;
use crate::time::Instant;

/// A received super-frame, tags in the data.
pub struct SuperFrame<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) header: VnetHeader,
    pub(super) splitter: &'a Splitter,
}

/// Frames that a super-frame splits into: all have `len` bytes but the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segments {
    /// Number of frames, 1 or more.
    pub count: usize,
    /// Bytes of each frame but the last, without FCS; the last has no more.
    pub len: usize,
    /// Bytes of the last frame.
    pub last_len: usize,
}

impl Segments {
    /// Bytes of all frames.
    #[must_use]
    pub const fn bytes(self) -> usize {
        (self.count - 1) * self.len + self.last_len
    }
}

impl SuperFrame<'_> {
    /// The header with which it is sent as it is. `None` if its checksum is complete, if it has other headers than those
    /// that the kernel can split again, or if its frames are longer than an MTU of `mtu` bytes allows.
    pub(super) fn joined(&self, mtu: usize) -> Option<Joined> {
        let Self { bytes, header, splitter } = self;
        let headers = splitter.headers();
        let l3 = headers.first()?.at;
        if self.segments().len > l3 + mtu {
            return None;
        }
        let (around, tunnel) = match *headers {
            [Header { kind: Kind::Ipv4 | Kind::Ipv6, .. }] => (0, None),
            // As in `join`: one tunnel over UDP, without tags in front, around TCP.
            [around, Header { kind: Kind::Udp, at: udp }, inner]
                if l3 == OUTER_IP && is_tcp(header.gso_type) =>
            {
                let kind = match around.kind {
                    Kind::Ipv4 => GSO_UDP_TUNNEL_IPV4,
                    Kind::Ipv6 => GSO_UDP_TUNNEL_IPV6,
                    Kind::Udp | Kind::Gre => return None,
                };
                let has_csum = be16(bytes, udp + UDP_FIELD)? != 0;
                let half = |n: usize| u16::try_from(n).ok();
                (kind, Some(JoinedTunnel { has_csum, udp: half(udp)?, inner_ip: half(inner.at)? }))
            }
            _ => return None,
        };
        Some(Joined {
            gso_type: header.gso_type | around,
            gso_size: header.gso_size,
            header_len: u16::try_from(splitter.payload_at()).ok()?,
            partial: header.partial?,
            tunnel,
        })
    }

    /// The first 64 bytes of each of its frames, but for lengths, ids, sequence numbers and checksums; `None` if it has
    /// fewer.
    #[must_use]
    pub fn head(&self) -> Option<&[u8; HEAD_LEN]> {
        self.bytes.first_chunk()
    }

    /// The frames that it splits into.
    #[must_use]
    pub const fn segments(&self) -> Segments {
        let (count, len) = (self.splitter.left(), self.splitter.next_len());
        Segments { count, len, last_len: self.bytes.len() - (count - 1) * self.splitter.size() }
    }
}

/// Whether a GSO type is of TCP.
const fn is_tcp(gso_type: u8) -> bool {
    matches!(gso_type & !GSO_ECN, GSO_TCPV4 | GSO_TCPV6)
}

/// Super-frames of a port.
pub trait SuperFrames {
    /// The super-frame that is received next. `None` if there is none, if a frame comes before it, or if part of it was
    /// handed on as frames.
    fn front(&mut self) -> Option<SuperFrame<'_>>;

    /// Ends the reception of the super-frame that [`Self::front`] returned.
    fn pop(&mut self);

    /// Sends a super-frame, which the kernel splits into the same frames where it has to. False, and nothing sent, if
    /// this port cannot now.
    fn send(&mut self, now: Instant, frame: &SuperFrame<'_>) -> bool;
}

#[cfg(test)]
pub(crate) mod testing {
    //! A port in memory that receives super-frames of TCP, and keeps what is sent by it.

    use std::collections::VecDeque;
    use std::sync::{Arc, Mutex, MutexGuard};

    use etherparse::PacketBuilder;

    use super::{SuperFrame, SuperFrames};
    use crate::batch::Batch;
    use crate::pool::{Bufs, PartialCsum};
    use crate::port::gso::{GSO_TCPV4, Splitter};
    use crate::port::vnet::VnetHeader;
    use crate::port::{Port, PortCaps, PortError};
    use crate::time::{Instant, LinkRate};

    const FRAME_LEN_MAX: usize = 1_518;
    const SIZE: u16 = 1_448;
    /// Where the TCP header of a frame without a tag begins.
    const L4: u16 = 34;

    /// What a test puts into a port and finds in it.
    #[derive(Default)]
    pub struct State {
        arriving: VecDeque<Vec<u8>>,
        /// Whether it has super-frames.
        pub has_whole: bool,
        /// Whether it takes nothing now.
        pub is_full: bool,
        /// Frames that were sent, those of super-frames included, without their TCP checksums.
        pub sent: Vec<Vec<u8>>,
        /// Super-frames sent whole.
        pub whole: usize,
    }

    /// The port; a test shares its state.
    pub struct Memory {
        caps: PortCaps,
        state: Arc<Mutex<State>>,
        /// The super-frame that comes next.
        front: Option<(Vec<u8>, Splitter)>,
    }

    /// A stream's super-frame with `len` bytes of payload, or its first frame if that holds all of them.
    pub fn tcp(from: u8, to: u8, sequence: u32, len: usize, tag: Option<[u8; 4]>) -> Vec<u8> {
        let payload: Vec<u8> = (0..len).map(|i| u8::try_from(i * 7 % 251).unwrap()).collect();
        let mut frame = Vec::new();
        PacketBuilder::ethernet2([2, 0, 0, 0, 0, from], [2, 0, 0, 0, 0, to])
            .ipv4([10, 0, 0, from], [10, 0, 0, to], 64)
            .tcp(1, 2, sequence, 4)
            .ack(5)
            .write(&mut frame, &payload)
            .unwrap();
        if let Some(tag) = tag {
            frame.splice(12..12, tag);
        }
        frame
    }

    impl Memory {
        pub fn new(name: &str) -> (Self, Arc<Mutex<State>>) {
            let state = Arc::new(Mutex::new(State { has_whole: true, ..State::default() }));
            let caps = PortCaps {
                kind: "memory",
                device: name.to_owned(),
                frame_len_max: FRAME_LEN_MAX,
                rate: LinkRate::gbps(100),
                tx_partial_csum: true,
                virtual_time: false,
            };
            (Self { caps, state: state.clone(), front: None }, state)
        }

        fn state(&self) -> MutexGuard<'_, State> {
            self.state.lock().unwrap()
        }

        /// Makes the next frame the front if it is a super-frame.
        fn advance(&mut self) {
            if self.front.is_some() {
                return;
            }
            let frame = {
                let arriving = &mut self.state().arriving;
                let is_super = arriving.front().is_some_and(|frame| frame.len() > FRAME_LEN_MAX);
                if is_super { arriving.pop_front() } else { None }
            };
            self.front = frame.map(|frame| {
                let start = header_of(&frame).partial.map(|partial| partial.start);
                let splitter = Splitter::new(&frame, GSO_TCPV4, SIZE, start).unwrap();
                (frame, splitter)
            });
        }
    }

    impl State {
        pub fn arrives(&mut self, frame: Vec<u8>) {
            self.arriving.push_back(frame);
        }

        fn keep(&mut self, mut frame: Vec<u8>, partial: Option<PartialCsum>) {
            if let Some(PartialCsum { start, offset }) = partial {
                let at = usize::from(start + offset);
                frame[at..at + 2].fill(0);
            }
            self.sent.push(frame);
        }
    }

    fn header_of(frame: &[u8]) -> VnetHeader {
        let start = if frame[12..14] == [0x81, 0] { L4 + 4 } else { L4 };
        let partial = Some(PartialCsum { start, offset: 16 });
        VnetHeader { gso_type: GSO_TCPV4, gso_size: SIZE, partial }
    }

    /// The next frame of `splitter`.
    fn split(splitter: &mut Splitter, whole: &[u8]) -> (Vec<u8>, PartialCsum) {
        let mut frame = vec![0; splitter.next_len()];
        let (len, partial) = splitter.emit(whole, &mut frame).unwrap();
        assert_eq!(len, frame.len());
        (frame, partial)
    }

    impl Port for Memory {
        fn caps(&self) -> &PortCaps {
            &self.caps
        }

        fn rx(&mut self, _now: Instant, bufs: &mut Bufs, batch: &mut Batch) -> usize {
            let before = batch.len();
            while !batch.is_full() {
                self.advance();
                let (frame, partial) = match self.front.take() {
                    Some((whole, mut splitter)) => {
                        let (frame, partial) = split(&mut splitter, &whole);
                        self.front = (splitter.left() > 0).then_some((whole, splitter));
                        (frame, Some(partial))
                    }
                    None => match self.state().arriving.pop_front() {
                        Some(frame) => (frame, None),
                        None => break,
                    },
                };
                let mut desc = bufs.alloc_from(&frame).unwrap();
                bufs.set_partial_csum(&mut desc, partial);
                batch.push(desc);
            }
            batch.len() - before
        }

        fn tx_room(&mut self, _now: Instant) -> usize {
            if self.state().is_full { 0 } else { 64 }
        }

        fn tx(&mut self, _now: Instant, bufs: &mut Bufs, batch: &mut Batch) -> usize {
            let taken = batch.len();
            for desc in batch.drain(..) {
                self.state().keep(bufs.bytes(&desc).to_vec(), bufs.partial_csum(&desc));
                bufs.free(desc);
            }
            taken
        }

        fn service(&mut self, _now: Instant, _bufs: &mut Bufs) -> Result<(), PortError> {
            Ok(())
        }

        fn super_frames(&mut self) -> Option<&mut dyn SuperFrames> {
            let has_whole = self.state().has_whole;
            if has_whole { Some(self) } else { None }
        }

        fn release(&mut self, _bufs: &mut Bufs) {}
    }

    impl SuperFrames for Memory {
        fn front(&mut self) -> Option<SuperFrame<'_>> {
            self.advance();
            let (bytes, splitter) = self.front.as_ref().filter(|(_, s)| s.is_at_start())?;
            Some(SuperFrame { bytes, header: header_of(bytes), splitter })
        }

        fn pop(&mut self) {
            self.front = None;
        }

        fn send(&mut self, _now: Instant, frame: &SuperFrame<'_>) -> bool {
            let mut state = self.state.lock().unwrap();
            if state.is_full {
                return false;
            }
            let mut splitter = *frame.splitter;
            while splitter.left() > 0 {
                let (frame, partial) = split(&mut splitter, frame.bytes);
                state.keep(frame, Some(partial));
            }
            state.whole += 1;
            true
        }
    }
}
