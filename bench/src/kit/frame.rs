//! Frames that the kit sends: Ethernet, IPv4, UDP without checksum, so that ports and payload may change.
//!
//! [`template`] makes one of a length, without FCS.
//!
//! Source: RFC 791 (header and its checksum), RFC 768 (checksum 0 is none).

use super::KitError;

/// Shortest frame: Ethernet's 64 without FCS.
pub const LEN_MIN: usize = 60;
/// Longest frame that a test run of XDP takes, with room for the kernel's part of a page.
pub const LEN_MAX: usize = 3_400;

/// Offset of the destination MAC's last two bytes, which generators count.
pub const DST_NUMBER: i16 = 4;
/// Offset of the source MAC's last two bytes, which generators count.
pub const SRC_NUMBER: i16 = 10;
/// Offset of the EtherType.
pub const ETHER_TYPE: i16 = 12;
/// Offset of the UDP source port.
pub const SRC_PORT: i16 = 34;
/// Offset of a prober's time of sending, in the payload.
pub const STAMP: u8 = 42;
/// Offset of a prober's mark, behind the time.
pub const MARK: u8 = 50;
/// Value of the mark: only frames of the prober have it.
pub const MARK_VALUE: u64 = 0x7765_6674_6c61_7431;

/// From 02:00:00:01:00:00 to 02:00:00:02:00:00, 10.0.0.1 to 10.1.0.2, port 1024 to 2000.
///
/// # Errors
/// A length below [`LEN_MIN`] or above [`LEN_MAX`].
pub fn template(len: usize) -> Result<Vec<u8>, KitError> {
    if !(LEN_MIN..=LEN_MAX).contains(&len) {
        return Err(KitError::Usage(format!(
            "a frame has {LEN_MIN} to {LEN_MAX} bytes, not {len}"
        )));
    }
    let ip_len = u16::try_from(len - 14).unwrap_or(u16::MAX);
    let mut ip = [0; 20];
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&ip_len.to_be_bytes());
    ip[8] = 64;
    ip[9] = 17;
    ip[12..16].copy_from_slice(&[10, 0, 0, 1]);
    ip[16..20].copy_from_slice(&[10, 1, 0, 2]);
    let sum = checksum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let mut frame = vec![2, 0, 0, 2, 0, 0, 2, 0, 0, 1, 0, 0, 8, 0];
    frame.extend(ip);
    // no checksum: ports and payload are changed later
    for field in [1_024, 2_000, ip_len - 20, 0] {
        frame.extend(field.to_be_bytes());
    }
    frame.resize(len, 0);
    Ok(frame)
}

/// The header's checksum; its own field must be 0.
fn checksum(header: &[u8; 20]) -> u16 {
    let (pairs, _) = header.as_chunks::<2>();
    let sum: u32 = pairs.iter().map(|pair| u32::from(u16::from_be_bytes(*pair))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !u16::try_from(folded).expect("ten words fold at once")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_bounds() {
        for (len, good) in [(59, false), (60, true), (1_406, true), (3_400, true), (3_401, false)] {
            assert_eq!(template(len).ok().map(|f| f.len()), good.then_some(len), "{len}");
        }
    }

    /// Over a whole header the checksum comes out as 0: RFC 791.
    #[test]
    fn the_header_sums_to_zero() {
        for len in [60, 64, 1_406] {
            let frame = template(len).unwrap();
            let header: [u8; 20] = frame[14..34].try_into().unwrap();
            assert_eq!(checksum(&header), 0, "{len}");
        }
    }
}
