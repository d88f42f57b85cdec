//! How payloads are laid out: fixed records, and lists behind a fixed head.
//!
//! [`Wire`] is a value of fixed size, [`Payload`] a whole payload. A [`List`] is either bytes of a
//! message, each entry checked once when the payload is parsed, or a slice of values to send. All
//! integers are little-endian.
//!
//! Source: docs/spec/wire-formats.md §4.

use core::cmp::Ordering;
use core::fmt;

use crate::fabric::entries::EntryError;
use crate::fabric::{Dpa, DrtEntry, FastEntry, Hpa, LdstEntry, Pid, ReRouterEntry, RgtEntry};
use crate::{Field, Layer, ParseError};

/// UUID or tag, as its bytes stand on the wire.
pub type Uuid = [u8; 16];

/// A value of fixed size in a payload: read from bytes and written to them.
pub trait Wire: Copy {
    /// Bytes on the wire.
    const LEN: usize;

    /// Reads the first [`Wire::LEN`] bytes.
    ///
    /// # Errors
    /// [`ParseError::Short`], or [`ParseError::Value`] for a reserved code.
    fn read(bytes: &[u8]) -> Result<Self, ParseError>;

    /// Writes to the front of `bytes`, which the caller has zeroed: reserved bits are left alone.
    /// Writes nothing when it does not fit.
    fn write(&self, bytes: &mut [u8]);
}

/// The payload of a CCI message: read from bytes and written to them.
pub trait Payload<'a>: Sized {
    /// Reads a payload that ends where `payload` does.
    ///
    /// # Errors
    /// [`ParseError::Short`] or a [`Field::Length`] when the bytes are too few or too many; another
    /// [`ParseError::Value`] for a code that is reserved.
    fn parse(payload: &'a [u8]) -> Result<Self, ParseError>;

    /// Writes the payload to the front of `out`, reserved bits zero, and returns its length.
    ///
    /// `None` when it does not fit, or a list has more entries than its count can say.
    fn emit(&self, out: &mut [u8]) -> Option<usize>;
}

impl<T: Wire> Payload<'_> for T {
    fn parse(payload: &[u8]) -> Result<Self, ParseError> {
        exact(payload, T::LEN)?;
        T::read(payload)
    }

    fn emit(&self, out: &mut [u8]) -> Option<usize> {
        self.write(room(out, T::LEN)?);
        Some(T::LEN)
    }
}

/// Error for a field with a refused value.
pub(super) const fn refused(field: Field, value: u16) -> ParseError {
    ParseError::Value { layer: Layer::CciPayload, field, value }
}

/// Refuses `bytes` unless there are exactly `need` of them.
pub(super) fn exact(bytes: &[u8], need: usize) -> Result<(), ParseError> {
    let had = bytes.len();
    match had.cmp(&need) {
        Ordering::Less => Err(ParseError::short(Layer::CciPayload, need, had)),
        Ordering::Equal => Ok(()),
        Ordering::Greater => Err(refused(Field::Length, u16::try_from(had).unwrap_or(u16::MAX))),
    }
}

/// The first `len` bytes of `out`, set to zero: [`Wire::write`] leaves reserved bits alone.
pub(super) fn room(out: &mut [u8], len: usize) -> Option<&mut [u8]> {
    let part = out.get_mut(..len)?;
    part.fill(0);
    Some(part)
}

/// Reads the value at offset `at`.
pub(super) fn get<T: Wire>(bytes: &[u8], at: usize) -> Result<T, ParseError> {
    let short = || ParseError::short(Layer::CciPayload, at + T::LEN, bytes.len());
    T::read(bytes.get(at..).filter(|rest| rest.len() >= T::LEN).ok_or_else(short)?)
}

/// Writes `value` at offset `at`; nothing when it does not fit.
pub(super) fn set<T: Wire>(bytes: &mut [u8], at: usize, value: &T) {
    if let Some(place) = bytes.get_mut(at..) {
        value.write(place);
    }
}

/// Cuts `payload` into head, list and tail; returns the last two.
pub(super) fn split_list(
    payload: &[u8],
    head: usize,
    tail: usize,
) -> Result<(&[u8], &[u8]), ParseError> {
    let short = || ParseError::short(Layer::CciPayload, head + tail, payload.len());
    let rest = payload.get(head..).ok_or_else(short)?;
    let list = rest.len().checked_sub(tail).ok_or_else(short)?;
    rest.split_at_checked(list).ok_or_else(short)
}

/// Reads all of a fixed-size array off the front.
pub(super) fn front<const N: usize>(bytes: &[u8]) -> Result<[u8; N], ParseError> {
    let short = || ParseError::short(Layer::CciPayload, N, bytes.len());
    bytes.first_chunk().copied().ok_or_else(short)
}

/// Writes an array to the front.
pub(super) fn put_front<const N: usize>(bytes: &mut [u8], value: [u8; N]) {
    if let Some(place) = bytes.first_chunk_mut() {
        *place = value;
    }
}

/// Bit 0; the others are reserved.
impl Wire for bool {
    const LEN: usize = 1;

    fn read(bytes: &[u8]) -> Result<Self, ParseError> {
        let [byte] = front(bytes)?;
        Ok(byte & 1 == 1)
    }

    fn write(&self, bytes: &mut [u8]) {
        put_front(bytes, [u8::from(*self)]);
    }
}

impl<const N: usize> Wire for [u8; N] {
    const LEN: usize = N;

    fn read(bytes: &[u8]) -> Result<Self, ParseError> {
        front(bytes)
    }

    fn write(&self, bytes: &mut [u8]) {
        put_front(bytes, *self);
    }
}

macro_rules! integers {
    ($($int:ty)*) => { $(
        impl Wire for $int {
            const LEN: usize = size_of::<$int>();

            fn read(bytes: &[u8]) -> Result<Self, ParseError> {
                Ok(Self::from_le_bytes(front(bytes)?))
            }

            fn write(&self, bytes: &mut [u8]) {
                put_front(bytes, self.to_le_bytes());
            }
        }
    )* };
}
integers!(u8 u16 u32 u64);

impl<const N: usize> Wire for [u64; N] {
    const LEN: usize = 8 * N;

    fn read(bytes: &[u8]) -> Result<Self, ParseError> {
        let mut all = [0; N];
        for (at, one) in all.iter_mut().enumerate() {
            *one = get(bytes, 8 * at)?;
        }
        Ok(all)
    }

    fn write(&self, bytes: &mut [u8]) {
        for (at, one) in self.iter().enumerate() {
            set(bytes, 8 * at, one);
        }
    }
}

/// Bits 11:0 of two bytes; the others are reserved.
impl Wire for Pid {
    const LEN: usize = 2;

    fn read(bytes: &[u8]) -> Result<Self, ParseError> {
        Ok(Self::from_low_bits(u16::read(bytes)?))
    }

    fn write(&self, bytes: &mut [u8]) {
        self.bits().write(bytes);
    }
}

impl Wire for Hpa {
    const LEN: usize = 8;

    fn read(bytes: &[u8]) -> Result<Self, ParseError> {
        u64::read(bytes).map(Self)
    }

    fn write(&self, bytes: &mut [u8]) {
        self.0.write(bytes);
    }
}

impl Wire for Dpa {
    const LEN: usize = 8;

    fn read(bytes: &[u8]) -> Result<Self, ParseError> {
        u64::read(bytes).map(Self)
    }

    fn write(&self, bytes: &mut [u8]) {
        self.0.write(bytes);
    }
}

/// Names the field of an entry that was refused; `at` is the byte it stands in.
fn of_entry(error: EntryError, bytes: &[u8]) -> ParseError {
    let (field, at) = match error {
        EntryError::Interleave => (Field::Interleave, 1),
        EntryError::Kind => (Field::Kind, 0),
        EntryError::Mode => (Field::Mode, 9),
        EntryError::Primary => (Field::Primary, 8),
    };
    refused(field, bytes.get(at).copied().map_or(0, u16::from))
}

macro_rules! entries {
    ($($entry:ty, $len:expr, $decode:expr, $emit:expr;)*) => { $(
        impl Wire for $entry {
            const LEN: usize = $len;

            fn read(bytes: &[u8]) -> Result<Self, ParseError> {
                $decode(front(bytes)?).map_err(|error| of_entry(error, bytes))
            }

            fn write(&self, bytes: &mut [u8]) {
                put_front(bytes, $emit(*self));
            }
        }
    )* };
}
entries! {
    DrtEntry, DrtEntry::LEN, DrtEntry::decode, DrtEntry::emit;
    RgtEntry, RgtEntry::LEN, RgtEntry::decode, RgtEntry::emit;
    Option<FastEntry>, FastEntry::LEN, FastEntry::decode, FastEntry::emit;
    Option<LdstEntry>, LdstEntry::LEN, LdstEntry::decode, LdstEntry::emit;
    ReRouterEntry, ReRouterEntry::LEN, |bytes| Ok(ReRouterEntry::decode(bytes)), ReRouterEntry::emit;
}

/// The low `N` bits of a byte; the others are reserved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bits<const N: u32>(u8);

impl<const N: u32> Bits<N> {
    const MASK: u8 = {
        assert!(N > 0 && N <= 8);
        u8::MAX >> (8 - N)
    };

    /// The low bits of `byte`.
    #[must_use]
    pub const fn from_low_bits(byte: u8) -> Self {
        Self(byte & Self::MASK)
    }

    /// The bits, at most 2^N - 1.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }
}

impl<const N: u32> Wire for Bits<N> {
    const LEN: usize = 1;

    fn read(bytes: &[u8]) -> Result<Self, ParseError> {
        Ok(Self::from_low_bits(u8::read(bytes)?))
    }

    fn write(&self, bytes: &mut [u8]) {
        self.0.write(bytes);
    }
}

/// Entries of a list: read from a message, or about to be sent.
///
/// Two lists are equal when their entries are.
#[derive(Clone, Copy)]
pub struct List<'a, T>(Source<'a, T>);

#[derive(Clone, Copy)]
enum Source<'a, T> {
    /// Each entry was read once without an error.
    Bytes(&'a [u8]),
    Items(&'a [T]),
}

impl<'a, T: Wire> List<'a, T> {
    /// A list to be sent.
    #[must_use]
    pub const fn of(items: &'a [T]) -> Self {
        Self(Source::Items(items))
    }

    /// Reads a list of `count` entries that fills `bytes`; errors count bytes from `at`.
    pub(super) fn parse(bytes: &'a [u8], at: usize, count: usize) -> Result<Self, ParseError> {
        let need = count.saturating_mul(T::LEN);
        let had = bytes.len();
        if had < need {
            return Err(ParseError::short(Layer::CciPayload, at.saturating_add(need), at + had));
        }
        exact(bytes, need)?;
        // read once here, so that later reads cannot fail and need no error of their own
        for entry in bytes.chunks_exact(T::LEN.max(1)) {
            T::read(entry)?;
        }
        Ok(Self(Source::Bytes(bytes)))
    }

    /// Number of entries in the list.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self.0 {
            Source::Bytes(bytes) => bytes.len() / if T::LEN == 0 { 1 } else { T::LEN },
            Source::Items(items) => items.len(),
        }
    }

    /// Whether the list has no entry.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entry at `index`.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<T> {
        match self.0 {
            Source::Bytes(bytes) => {
                bytes.chunks_exact(T::LEN.max(1)).nth(index).and_then(|entry| T::read(entry).ok())
            }
            Source::Items(items) => items.get(index).copied(),
        }
    }

    /// The entries in order.
    pub fn iter(&self) -> impl Iterator<Item = T> + use<'a, T> {
        let (bytes, items) = match self.0 {
            Source::Bytes(bytes) => (bytes, &[][..]),
            Source::Items(items) => (&[][..], items),
        };
        // one chain of two halves, of which one is empty, gives both sources one iterator type
        let read = bytes.chunks_exact(T::LEN.max(1)).filter_map(|entry| T::read(entry).ok());
        read.chain(items.iter().copied())
    }

    /// Writes the entries at `at` and returns where they end; bytes before `at` are untouched.
    pub(super) fn emit(&self, out: &mut [u8], at: usize) -> Option<usize> {
        let len = self.len().checked_mul(T::LEN)?;
        let place = room(out.get_mut(at..)?, len)?;
        for (place, entry) in place.chunks_exact_mut(T::LEN.max(1)).zip(self.iter()) {
            entry.write(place);
        }
        at.checked_add(len)
    }
}

impl<'a> List<'a, u8> {
    /// The bytes of the list, from either source.
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        match self.0 {
            Source::Bytes(bytes) | Source::Items(bytes) => bytes,
        }
    }
}

impl<T: Wire + PartialEq> PartialEq for List<'_, T> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl<T: Wire + Eq> Eq for List<'_, T> {}

impl<T: Wire + fmt::Debug> fmt::Debug for List<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
