//! Reads and writes of big-endian fields at constant offsets of fixed-size arrays.
//!
//! An offset out of range fails the build, not the run. Every layout on Ethernet is big-endian
//! (docs/spec/wire-formats.md, preamble).

/// One byte at `OFF`.
#[inline]
pub(crate) const fn byte<const OFF: usize, const LEN: usize>(bytes: &[u8; LEN]) -> u8 {
    let [only] = *window::<OFF, 1, LEN>(bytes);
    only
}

/// Big-endian 16 bits at `OFF`.
#[inline]
pub(crate) const fn be16<const OFF: usize, const LEN: usize>(bytes: &[u8; LEN]) -> u16 {
    u16::from_be_bytes(*window::<OFF, 2, LEN>(bytes))
}

/// Big-endian 24 bits at `OFF`.
#[inline]
pub(crate) const fn be24<const OFF: usize, const LEN: usize>(bytes: &[u8; LEN]) -> u32 {
    let [high, mid, low] = *window::<OFF, 3, LEN>(bytes);
    u32::from_be_bytes([0, high, mid, low])
}

/// Big-endian 32 bits at `OFF`.
#[inline]
pub(crate) const fn be32<const OFF: usize, const LEN: usize>(bytes: &[u8; LEN]) -> u32 {
    u32::from_be_bytes(*window::<OFF, 4, LEN>(bytes))
}

/// Big-endian 64 bits at `OFF`.
#[inline]
pub(crate) const fn be64<const OFF: usize, const LEN: usize>(bytes: &[u8; LEN]) -> u64 {
    u64::from_be_bytes(*window::<OFF, 8, LEN>(bytes))
}

/// The `N` bytes at `OFF`.
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

/// Writes `value` at `OFF`.
#[inline]
pub(crate) const fn put<const OFF: usize, const N: usize, const LEN: usize>(
    bytes: &mut [u8; LEN],
    value: [u8; N],
) {
    const { assert!(OFF + N <= LEN) };
    // as in `window`: the assertion holds, and this form cannot panic
    if let Some((_, rest)) = bytes.split_at_mut_checked(OFF)
        && let Some(part) = rest.first_chunk_mut()
    {
        *part = value;
    }
}

/// Low 24 bits of `value`, big-endian.
#[inline]
pub(crate) const fn low24(value: u32) -> [u8; 3] {
    let [_, high, mid, low] = value.to_be_bytes();
    [high, mid, low]
}

/// Cuts the first `N` bytes off `bytes`.
#[inline]
pub(crate) const fn cut<const N: usize>(
    bytes: &[u8],
    layer: crate::Layer,
) -> Result<(&[u8; N], &[u8]), crate::ParseError> {
    match bytes.split_first_chunk() {
        Some(parts) => Ok(parts),
        None => Err(crate::ParseError::short(layer, N, bytes.len())),
    }
}

/// Cuts the first `N` bytes off `bytes`, writable.
#[inline]
pub(crate) const fn cut_mut<const N: usize>(
    bytes: &mut [u8],
    layer: crate::Layer,
) -> Result<(&mut [u8; N], &mut [u8]), crate::ParseError> {
    let had = bytes.len();
    match bytes.split_first_chunk_mut() {
        Some(parts) => Ok(parts),
        None => Err(crate::ParseError::short(layer, N, had)),
    }
}
