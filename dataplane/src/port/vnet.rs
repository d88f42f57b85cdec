//! Bytes in front of a message to a packet socket or tap: its virtio-net header, and the headers of a super-frame.
//!
//! The header has 10 bytes in host order: flags (8 bits), GSO type (8), header length, GSO size, checksum start and
//! checksum offset (16 each). For a tunnel, on taps only, 10 bytes for receivers and two more offsets follow.
//!
//! Source: virtio 1.3, 5.1.6; packet(7), `PACKET_VNET_HDR`; Linux `struct virtio_net_hdr_v1_hash_tunnel` (6.17).

use super::gso::GSO_NONE;
use super::join::{HEADERS_LEN_MAX, Joined, JoinedTunnel, Joint};
use super::sys::VNET_LEN;
use crate::pool::PartialCsum;

/// Bits of `virtio_net_hdr.flags`: the checksum is partial; frames of the tunnel have a UDP checksum.
const NEEDS_CSUM: u8 = 1;
const TUNNEL_CSUM: u8 = 8;
/// Bytes of the header with a tunnel's fields.
pub(super) const TUNNEL_VNET_LEN: usize = 24;

/// The fields of a `virtio_net_hdr` that a packet socket fills in, in host order.
#[derive(Clone, Copy, Debug)]
pub(super) struct VnetHeader {
    pub gso_type: u8,
    pub gso_size: u16,
    pub partial: Option<PartialCsum>,
}

impl VnetHeader {
    /// Reads a header; `moved` bytes were put in front of the data that its offsets refer to.
    pub(super) fn parse(bytes: [u8; VNET_LEN], moved: u16) -> Self {
        // Host order: packet sockets and taps use that of legacy virtio, not the little-endian one of virtio 1.
        let [flags, gso_type, _, _, s0, s1, c0, c1, o0, o1] = bytes;
        let start = u16::from_ne_bytes([c0, c1]).saturating_add(moved);
        let partial = PartialCsum { start, offset: u16::from_ne_bytes([o0, o1]) };
        Self {
            gso_type,
            gso_size: u16::from_ne_bytes([s0, s1]),
            partial: (flags & NEEDS_CSUM != 0).then_some(partial),
        }
    }

    pub(super) fn emit(partial: Option<PartialCsum>) -> [u8; VNET_LEN] {
        let Some(PartialCsum { start, offset }) = partial else { return [0; VNET_LEN] };
        let ([c0, c1], [o0, o1]) = (start.to_ne_bytes(), offset.to_ne_bytes());
        [NEEDS_CSUM, GSO_NONE, 0, 0, 0, 0, c0, c1, o0, o1]
    }

    /// Like [`Self::emit`], but has the kernel copy all `len` bytes of the frame into its buffer. Otherwise it would
    /// copy the headers only and reference the slot's page for the rest, which a veth then copies to new pages.
    pub(super) fn emit_whole(partial: Option<PartialCsum>, len: usize) -> [u8; VNET_LEN] {
        let mut bytes = Self::emit(partial);
        if let Some(header_len) = bytes.get_mut(2..4) {
            header_len.copy_from_slice(&u16::try_from(len).unwrap_or(0).to_ne_bytes());
        }
        bytes
    }

    fn emit_joined(joined: Joined) -> [u8; VNET_LEN] {
        let mut bytes = Self::emit(Some(joined.partial));
        let ([h0, h1], [s0, s1]) = (joined.header_len.to_ne_bytes(), joined.gso_size.to_ne_bytes());
        if let Some(gso) = bytes.get_mut(1..6) {
            gso.copy_from_slice(&[joined.gso_type, h0, h1, s0, s1]);
        }
        bytes
    }

    fn emit_tunnel(joined: Joined, tunnel: JoinedTunnel) -> [u8; TUNNEL_VNET_LEN] {
        let mut bytes = [0; TUNNEL_VNET_LEN];
        let ([u0, u1], [i0, i1]) = (tunnel.udp.to_ne_bytes(), tunnel.inner_ip.to_ne_bytes());
        if let Some((front, offsets)) = bytes.split_first_chunk_mut() {
            *front = Self::emit_joined(joined);
            front[0] |= if tunnel.has_csum { TUNNEL_CSUM } else { 0 };
            if let Some(offsets) = offsets.last_chunk_mut() {
                *offsets = [u0, u1, i0, i1];
            }
        }
        bytes
    }
}

/// The bytes in front of a message to send, and the number of frames in the message.
#[derive(Clone, Copy)]
pub(super) struct Lead {
    bytes: [u8; TUNNEL_VNET_LEN + HEADERS_LEN_MAX],
    len: usize,
    pub frames: usize,
}

impl Default for Lead {
    fn default() -> Self {
        Self { bytes: [0; TUNNEL_VNET_LEN + HEADERS_LEN_MAX], len: VNET_LEN, frames: 1 }
    }
}

impl Lead {
    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// Sets the lead of a single frame.
    pub(super) fn set_one(&mut self, partial: Option<PartialCsum>) {
        (self.len, self.frames) = (VNET_LEN, 1);
        if let Some(header) = self.bytes.first_chunk_mut() {
            *header = VnetHeader::emit(partial);
        }
    }

    /// Sets the lead of joined frames; false if their headers do not fit.
    pub(super) fn set_many(&mut self, joint: &Joint<'_>, frames: usize) -> bool {
        let header_len = if joint.is_in_tunnel() { TUNNEL_VNET_LEN } else { VNET_LEN };
        let Some((header, headers)) = self.bytes.split_at_mut_checked(header_len) else {
            return false;
        };
        let Some(joined) = joint.emit(headers) else { return false };
        match joined.tunnel {
            Some(tunnel) => header.copy_from_slice(&VnetHeader::emit_tunnel(joined, tunnel)),
            None => header.copy_from_slice(&VnetHeader::emit_joined(joined)),
        }
        (self.len, self.frames) = (header_len + usize::from(joined.header_len), frames);
        true
    }

    /// Sets the lead of a super-frame that stands for `frames` frames and has its headers in its data.
    pub(super) fn set_whole(&mut self, joined: Joined, frames: usize) {
        let header = match joined.tunnel {
            Some(tunnel) => &VnetHeader::emit_tunnel(joined, tunnel)[..],
            None => &VnetHeader::emit_joined(joined)[..],
        };
        (self.len, self.frames) = (header.len(), frames);
        if let Some(to) = self.bytes.get_mut(..header.len()) {
            to.copy_from_slice(header);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtio_headers_are_read_and_made() {
        let partial = Some(PartialCsum { start: 34, offset: 16 });
        let bytes = VnetHeader::emit(partial);
        assert_eq!(VnetHeader::parse(bytes, 0).partial, partial);
        let moved = Some(PartialCsum { start: 38, offset: 16 });
        assert_eq!(VnetHeader::parse(bytes, 4).partial, moved);
        assert_eq!(VnetHeader::emit(None), [0; VNET_LEN]);
        assert_eq!(VnetHeader::parse([0; VNET_LEN], 4).partial, None);
    }

    #[test]
    fn the_header_of_a_whole_frame_says_how_much_is_copied() {
        let partial = Some(PartialCsum { start: 34, offset: 16 });
        let bytes = VnetHeader::emit_whole(partial, 1_514);
        assert_eq!(VnetHeader::parse(bytes, 0).partial, partial);
        assert_eq!((bytes[1], u16::from_ne_bytes([bytes[2], bytes[3]])), (GSO_NONE, 1_514));
    }

    #[test]
    fn the_header_of_a_super_frame_says_how_it_splits() {
        let partial = PartialCsum { start: 38, offset: 16 };
        let joined =
            Joined { gso_type: 0x81, gso_size: 1_448, header_len: 70, partial, tunnel: None };
        let bytes = VnetHeader::emit_joined(joined);
        let header = VnetHeader::parse(bytes, 0);
        assert_eq!((header.gso_type, header.gso_size), (0x81, 1_448));
        assert_eq!((header.partial, bytes[0]), (Some(partial), NEEDS_CSUM));
        assert_eq!(u16::from_ne_bytes([bytes[2], bytes[3]]), 70);
    }

    #[test]
    fn the_header_of_a_tunnel_says_where_both_layers_are() {
        let partial = PartialCsum { start: 84, offset: 16 };
        let tunnel = JoinedTunnel { has_csum: true, udp: 34, inner_ip: 64 };
        let joined = Joined {
            gso_type: 0x21,
            gso_size: 1_398,
            header_len: 116,
            partial,
            tunnel: Some(tunnel),
        };
        let bytes = VnetHeader::emit_tunnel(joined, tunnel);
        assert_eq!(bytes[..10], [9, 0x21, 116, 0, 0x76, 5, 84, 0, 16, 0]);
        assert_eq!(bytes[10..20], [0; 10], "for receivers");
        assert_eq!(bytes[20..], [34, 0, 64, 0]);
        let bytes = VnetHeader::emit_tunnel(joined, JoinedTunnel { has_csum: false, ..tunnel });
        assert_eq!(bytes[0], NEEDS_CSUM);
    }
}
