//! One FDB entry: a key word and a value word that are read together without a lock.
//!
//! [`FdbKey`] = valid(63), 0(62), vid(61:50), space(49:48), address(47:0); [`Value`] = version(63:32), tick(31:7),
//! static(6), port(5:0).
//!
//! A tick is 2^39 ps, 0.55 s; 2^25 of them wrap exactly when [`Instant`] does.
//!
//! Source: docs/spec/pipeline.md §3; Boehm, "Can seqlocks get along with programming language memory models?".

#![expect(clippy::cast_possible_truncation, reason = "fields are cut out of words")]

use weft_base::sync::{AtomicU64, Ordering};

use crate::time::{Instant, Span};
use crate::types::PortId;
use core::fmt;
use weft_parsers::{AddrKey, Vid};

const VALID: u64 = 1 << 63;
const VID_SHIFT: u32 = 50;
const ADDR_MASK: u64 = (1 << VID_SHIFT) - 1;

/// Key of the forwarding database: VLAN, address space and address in one word that is never 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FdbKey(u64);

impl FdbKey {
    /// VLAN 0, address 0: a filler for arrays before use.
    pub(super) const EMPTY: Self = Self(VALID);

    /// Key of `addr` in VLAN `vid`.
    #[inline]
    #[must_use]
    pub const fn new(vid: Vid, addr: AddrKey) -> Self {
        const { assert!(AddrKey::BITS <= VID_SHIFT, "an address does not reach the VLAN's bits") };
        Self(VALID | (vid.get() as u64) << VID_SHIFT | addr.to_bits())
    }

    /// VLAN of the key.
    #[inline]
    #[must_use]
    pub const fn vid(self) -> Vid {
        Vid::from_low_bits((self.0 >> VID_SHIFT) as u16)
    }

    /// Address space and address of the key.
    #[inline]
    #[must_use]
    pub fn addr(self) -> AddrKey {
        AddrKey::from_bits(self.0 & ADDR_MASK).unwrap_or_default() // it was one in `new`
    }

    /// The key as a word; never 0.
    #[inline]
    pub(super) const fn word(self) -> u64 {
        self.0
    }
}

impl fmt::Display for FdbKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in VLAN {}", self.addr(), self.vid().get())
    }
}

impl fmt::Debug for FdbKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A coarse point in time for age stamps: [`Instant`] >> 39, 25 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tick(u32);

impl Tick {
    /// log2 of a tick in picoseconds.
    pub const SHIFT: u32 = 39;
    const BITS: u32 = 64 - Self::SHIFT;
    const MASK: u32 = (1 << Self::BITS) - 1;
    /// Stamps up to this many ticks ahead count as now: workers read their clocks one after the other.
    const AHEAD: u32 = 1 << 10;

    #[inline]
    pub const fn at(now: Instant) -> Self {
        Self((now.as_ps() >> Self::SHIFT) as u32)
    }

    pub const fn start(self) -> Instant {
        Instant::from_ps((self.0 as u64) << Self::SHIFT)
    }

    pub const fn plus(self, ticks: u32) -> Self {
        Self(self.0.wrapping_add(ticks) & Self::MASK)
    }

    /// Ticks since `earlier`; 0 if that is a little ahead.
    #[inline]
    pub const fn since(self, earlier: Self) -> u32 {
        let d = self.0.wrapping_sub(earlier.0) & Self::MASK;
        // The difference is modular: a stamp slightly in the future would otherwise look 213 days old, and the entry
        // would age out.
        if d > Self::MASK - Self::AHEAD { 0 } else { d }
    }

    pub const fn bits(self) -> u32 {
        self.0
    }

    pub const fn from_bits(bits: u32) -> Self {
        Self(bits & Self::MASK)
    }

    /// Ticks after which at least `span` has passed since any instant of the first tick; 0 for zero.
    pub const fn cover(span: Span) -> u32 {
        if span.as_ps() == 0 {
            return 0;
        }
        let whole = span.as_ps().div_ceil(1 << Self::SHIFT);
        let most = (Self::MASK - Self::AHEAD) as u64;
        // One more than the whole ticks: the stamp may have been set at the end of its tick.
        if whole >= most { most as u32 } else { whole as u32 + 1 }
    }

    pub const fn span(ticks: u32) -> Span {
        Span::from_ps((ticks as u64) << Self::SHIFT)
    }
}

/// The value word of an entry, unpacked by its methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Value(u64);

impl Value {
    const PORT: u64 = 0x3F;
    const STATIC: u64 = 1 << 6;
    const TICK_SHIFT: u32 = 7;
    const TICK: u64 = (Tick::MASK as u64) << Self::TICK_SHIFT;
    const VERSION_SHIFT: u32 = 32;

    pub const fn new(version: u32, port: PortId, tick: Tick, is_static: bool) -> Self {
        let fixed = if is_static { Self::STATIC } else { 0 };
        Self(
            (version as u64) << Self::VERSION_SHIFT
                | (tick.0 as u64) << Self::TICK_SHIFT
                | fixed
                | port.get() as u64,
        )
    }

    #[inline]
    pub const fn port(self) -> PortId {
        PortId::from_low_bits((self.0 & Self::PORT) as u8)
    }

    #[inline]
    pub const fn is_static(self) -> bool {
        self.0 & Self::STATIC != 0
    }

    #[inline]
    pub const fn tick(self) -> Tick {
        Tick(((self.0 & Self::TICK) >> Self::TICK_SHIFT) as u32)
    }

    #[inline]
    pub const fn version(self) -> u32 {
        (self.0 >> Self::VERSION_SHIFT) as u32
    }

    #[inline]
    pub const fn with_tick(self, tick: Tick) -> Self {
        Self(self.0 & !Self::TICK | (tick.0 as u64) << Self::TICK_SHIFT)
    }

    pub const fn with_port(self, port: PortId) -> Self {
        Self(self.0 & !Self::PORT | port.get() as u64)
    }

    pub const fn with_static(self, is_static: bool) -> Self {
        let fixed = if is_static { Self::STATIC } else { 0 };
        Self(self.0 & !Self::STATIC | fixed)
    }
}

/// Two words; the key word is 0 while the entry is empty or being filled.
///
/// A version belongs to one key (until 2^32 others have come), which lets a reader tell whether the key and the value
/// that it has read belong together. Only the holder of the writer's lock calls `fill`, `clear` and `set`; any thread
/// may `refresh`.
#[derive(Debug)]
pub(super) struct Entry {
    key: AtomicU64,
    value: AtomicU64,
}

impl Default for Entry {
    fn default() -> Self {
        Self { key: AtomicU64::new(0), value: AtomicU64::new(0) }
    }
}

impl Entry {
    /// Whether the entry has `key`.
    #[inline]
    pub fn holds(&self, key: FdbKey) -> bool {
        self.key.load(Ordering::Acquire) == key.word() // pairs with the last store in `fill`
    }

    /// The packed key (0 if the entry is empty), read alone: it says nothing about the value beside it.
    #[inline]
    pub fn key_word(&self) -> u64 {
        self.key.load(Ordering::Relaxed) // nothing is read through it
    }

    /// The value of `key`, after `holds(key)`; `None` if the entry was given to another key in between.
    #[inline]
    pub fn read(&self, key: FdbKey) -> Option<Value> {
        let value = Value(self.value.load(Ordering::Acquire)); // pairs with the stores in `fill`, `set`
        // If the value is a later fill's, its Release has made that fill's key 0 visible, so the key below differs. If
        // the same key was filled again since, the Acquire below makes the newer value visible, whose version differs.
        let held = self.key.load(Ordering::Acquire) == key.word(); // pairs with the last store in `fill`
        let last = Value(self.value.load(Ordering::Relaxed)); // ordered by the two loads above
        (held && last.version() == value.version()).then_some(value)
    }

    /// Key and value, unless the entry is empty.
    pub fn both(&self) -> Option<(FdbKey, Value)> {
        let word = self.key.load(Ordering::Acquire); // pairs with the last store in `fill`
        let key = (word != 0).then_some(FdbKey(word))?;
        Some((key, self.read(key)?))
    }

    /// Changes only the age stamp of `seen`, unless the entry has changed since it was read.
    #[inline]
    pub fn refresh(&self, seen: Value, tick: Tick) {
        let new = seen.with_tick(tick);
        // A read-modify-write continues the writer's release sequence, so that Relaxed is enough; it
        // fails when the writer was faster, and the station's next frame refreshes again.
        let _ = self.value.compare_exchange(seen.0, new.0, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Gives the entry to `key`, with `value`.
    pub fn fill(&self, key: FdbKey, value: Value) {
        self.key.store(0, Ordering::Relaxed); // ordered by the next store
        self.value.swap(value.0, Ordering::Release); // pairs with the first load in `read`
        self.key.store(key.word(), Ordering::Release); // pairs with `holds`, `read` and `both`
    }

    /// Changes the value under the same key.
    pub fn set(&self, value: Value) {
        // A swap instead of a store, as in `fill`: loom orders plain stores more coarsely than a machine, and would
        // report failures that cannot happen.
        self.value.swap(value.0, Ordering::Release); // pairs with the first load in `read`
    }

    /// Empties the entry.
    pub fn clear(&self) {
        self.key.store(0, Ordering::Relaxed); // a reader may still use what it has just read
    }
}
