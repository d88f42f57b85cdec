//! VLAN tags that a device took out of a frame's data, put back.
//!
//! A tag is four bytes, TPID and TCI, between addresses and type.
//!
//! Source: IEEE 802.1Q clause 9; docs/spec/pipeline.md §11.

/// A VLAN tag that a device took out of a frame's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// EtherType of the tag (0x8100, 0x88A8), in host order.
    pub tpid: u16,
    /// PCP, DEI and VID, in host order.
    pub tci: u16,
}

/// Puts a tag back into a frame at `start`, and returns the frame's new start, four bytes earlier.
pub(super) fn put_tag(bytes: &mut [u8], start: usize, Tag { tpid, tci }: Tag) -> usize {
    let to = start - 4;
    // The 12 bytes of addresses move to the front, instead of the whole payload to the back.
    bytes.copy_within(start..start + 12, to);
    let [t0, t1] = tpid.to_be_bytes();
    let [c0, c1] = tci.to_be_bytes();
    if let Some(tag) = bytes.get_mut(to + 12..to + 16) {
        tag.copy_from_slice(&[t0, t1, c0, c1]);
    }
    to
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_goes_between_addresses_and_type() {
        let mut bytes: Vec<u8> = (0..40).collect();
        let start = put_tag(&mut bytes, 8, Tag { tpid: 0x88A8, tci: 0x6123 });
        assert_eq!(start, 4);
        assert_eq!(bytes[4..16], (8..20).collect::<Vec<u8>>());
        assert_eq!(bytes[16..22], [0x88, 0xA8, 0x61, 0x23, 20, 21]);
    }
}
