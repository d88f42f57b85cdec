//! Fields of a frame at computed offsets: `None` if the field is outside the frame.

pub(super) fn byte(frame: &[u8], at: usize) -> Option<u8> {
    frame.get(at).copied()
}

pub(super) fn be16(frame: &[u8], at: usize) -> Option<u16> {
    frame.get(at..)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}

pub(super) fn be32(frame: &[u8], at: usize) -> Option<u32> {
    frame.get(at..)?.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

/// Writes a field; does nothing if it is outside the frame.
pub(super) fn put<const N: usize>(frame: &mut [u8], at: usize, bytes: [u8; N]) {
    if let Some(to) = frame.get_mut(at..at + N) {
        to.copy_from_slice(&bytes);
    }
}
