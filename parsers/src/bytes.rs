//! Reads and writes of big-endian fields at constant offsets of fixed-size arrays.
//! Shape: `(&[u8; LEN], OFF)` to integer; an offset out of range fails the build, not the run.
//! Units: octets.
//! Source: none of its own; every layout on Ethernet is big-endian (wire-formats.md, preamble).

/// One octet at `OFF`.
#[inline]
pub(crate) const fn octet<const OFF: usize, const LEN: usize>(bytes: &[u8; LEN]) -> u8 {
    let [only] = *window::<OFF, 1, LEN>(bytes);
    only
}

/// Big-endian 16 bits at `OFF`.
#[inline]
pub(crate) const fn be16<const OFF: usize, const LEN: usize>(bytes: &[u8; LEN]) -> u16 {
    u16::from_be_bytes(*window::<OFF, 2, LEN>(bytes))
}

/// Big-endian 64 bits at `OFF`.
#[inline]
pub(crate) const fn be64<const OFF: usize, const LEN: usize>(bytes: &[u8; LEN]) -> u64 {
    u64::from_be_bytes(*window::<OFF, 8, LEN>(bytes))
}

/// The `N` octets at `OFF`.
#[inline]
pub(crate) const fn window<const OFF: usize, const N: usize, const LEN: usize>(
    bytes: &[u8; LEN],
) -> &[u8; N] {
    const { assert!(OFF + N <= LEN) };
    // the assertion holds, so neither `None` is reached; written so that nothing here can panic
    if let Some((_, rest)) = bytes.split_at_checked(OFF)
        && let Some(part) = rest.first_chunk()
    {
        return part;
    }
    const { &[0; N] }
}
