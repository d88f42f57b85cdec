//! Flow cache: the decision about the last frame that looked like this one.
//!
//! It maps (input, [`FlowKey`]) to a [`CachedVerdict`], in one of two sets, each of two flows and
//! one cache line. Flows for which links were chosen are found by two more words
//! ([`weft_parsers::choice_words`]), each in one of two cache lines. A cache belongs to one worker.
//! A verdict is valid while none of its [`Inputs`] has changed; frames that are not cached go
//! through the tables again.
//!
//! Source: the exact-match cache of Pfaff et al., "The Design and Implementation of Open vSwitch",
//! NSDI 2015; docs/spec/pipeline.md §1 to §3, whose decisions it repeats.

use weft_base::memory::Zeros;
use weft_parsers::FlowKey;
use zerocopy::FromZeros;

use crate::desc::DescMeta;
use crate::queues::QueueId;
use crate::types::{PortId, PortSet};

/// Sets of two flows each, in a cache of full size.
const SETS: usize = 8_192;
/// Flows for which links were chosen, in a cache of full size.
const CHOICES: usize = 4_096;
/// Sets of a cache that uses few of its pages (24).
const FEW_SETS: usize = SETS / 8;
const FEW_CHOICES: usize = CHOICES / 8;
const INPUT_SHIFT: u32 = 58;

const _: () = assert!(FlowKey::REST_BITS <= INPUT_SHIFT, "the input stands above the key");

/// Everything that a verdict depends on beside the frame. When any of it changes, all verdicts
/// become invalid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inputs {
    /// Number of the configuration in force.
    pub epoch: u64,
    /// Version of the forwarding database; it doesn't change when stations are only added.
    pub fdb: u64,
    /// Age stamp that a source would get now. So the source of a cached flow is looked up, and
    /// stamped, once for each age stamp.
    pub tick: u32,
    /// Links that are up and not blocked, as bits.
    pub up: u64,
    /// Links that take flows, of LAGs and to stations behind several ports, as bits.
    pub joined: [u64; 2],
}

/// Decision about the frames of a flow with a known source and a single known destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedVerdict {
    /// The queue that they are put into, for their output and priority.
    pub queue: QueueId,
    /// Their VLAN, 0..=4095.
    pub vid: u16,
    /// Format, priority, flags and input.
    pub meta: DescMeta,
}

/// Stamp 15:0, vid 27:16, queue 36:28, meta 63:40. A stamp of 0 marks an empty place, as it is
/// never in force.
#[derive(Clone, Copy, Debug, FromZeros)]
struct Word(u64);

const STAMP: u64 = (1 << 16) - 1;
const VID_SHIFT: u32 = 16;
const QUEUE_SHIFT: u32 = 28;
const META_SHIFT: u32 = 40;

#[derive(Clone, Copy, Debug, FromZeros)]
struct Flow {
    key: Key,
    word: Word,
}

#[derive(Clone, Copy, Debug, FromZeros)]
#[repr(align(64))]
struct Set([Flow; 2]);

const _: () = assert!(size_of::<Set>() == 64, "a set is a cache line");

/// A flow for which links were chosen.
#[derive(Clone, Copy, Debug, FromZeros)]
#[repr(align(64))]
struct Choice {
    key: Key,
    words: [u64; 2],
    word: Word,
}

const _: () = assert!(size_of::<Choice>() == 64, "a choice is a cache line");

/// The flow cache of one worker.
#[derive(Debug)]
pub struct FlowCache {
    sets: Zeros<[Set; SETS]>,
    choices: Zeros<[Choice; CHOICES]>,
    /// Inputs for whose last frame links were chosen; it is tried first that this is so for the
    /// next one, too.
    chosen: PortSet,
    stamp: u64,
    inputs: Inputs,
    /// Whether it uses few of its pages, as [`FlowCache::few`] makes it.
    is_few: bool,
}

impl Default for FlowCache {
    fn default() -> Self {
        Self::new()
    }
}

/// Key of a flow: the key of its frames with their input, in words that are equal for frames of one
/// flow only.
pub type Key = [u64; 3];

/// A key that no flow has.
pub const NO_KEY: Key = [u64::MAX; 3];

const _: () = assert!(FlowKey::REST_BITS < INPUT_SHIFT, "no key has all bits set");

/// The key of a frame that came in by `input`.
#[inline]
#[must_use]
pub const fn key_of(input: PortId, key: FlowKey) -> Key {
    let [a, b, c] = key.words();
    [a, b, c | (input.get() as u64) << INPUT_SHIFT]
}

/// Two of `PLACES` places (a power of two), by one wide multiplication whose halves are folded.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "bits above the mask do not matter")]
const fn homes<const PLACES: usize>([a, b, c]: Key) -> (usize, usize) {
    let a = a ^ c.rotate_left(24) ^ 0x9E37_79B9_7F4A_7C15;
    let wide = (a as u128) * ((b ^ 0xD6E8_FEB8_6659_FD93) as u128);
    let hash = (wide >> 64) as u64 ^ wide as u64;
    // Addresses of stations are often consecutive, for which the product alone spreads badly.
    let hash = hash ^ hash >> 32;
    let again = hash.wrapping_mul(0x9E37_79B9_7F4A_7C15); // its upper bits depend on all of `hash`
    (hash as usize % PLACES, (again >> 40) as usize % PLACES)
}

/// The places of a flow, in a cache of few pages or not.
#[inline]
const fn homes_of<const FEW: bool>(key: Key) -> (usize, usize) {
    if FEW { homes::<FEW_SETS>(key) } else { homes::<SETS>(key) }
}

/// The places of a flow for which links were chosen, in a cache of few pages or not.
#[inline]
const fn homes_of_choice<const FEW: bool>(
    [a, b, c]: Key,
    [first, second]: [u64; 2],
) -> (usize, usize) {
    let key = [a ^ second.rotate_left(29), b ^ first.rotate_left(43), c];
    if FEW { homes::<FEW_CHOICES>(key) } else { homes::<CHOICES>(key) }
}

impl FlowCache {
    /// An empty cache of three quarters of a mebibyte. All of its pages are touched here, so that no frame
    /// waits for a page fault.
    ///
    /// # Panics
    /// When there is no memory.
    #[must_use]
    pub fn new() -> Self {
        let mut cache = Self::few();
        cache.is_few = false;
        cache.sets.touch();
        cache.choices.touch();
        cache
    }

    /// Like [`Self::new`], but uses an eighth of the places, on pages that become real as flows
    /// come: in virtual time there may be many switches. Call [`Self::lookup`] and
    /// [`Self::lookup_spread`] of it with `FEW`.
    ///
    /// # Panics
    /// As [`Self::new`].
    #[must_use]
    pub fn few() -> Self {
        let sets = Zeros::new().expect("half a mebibyte");
        let choices = Zeros::new().expect("a quarter of a mebibyte");
        let (chosen, inputs) = (PortSet::EMPTY, Inputs::default());
        Self { sets, choices, chosen, stamp: 1, inputs, is_few: true }
    }

    /// Whether it was made by [`Self::few`].
    #[inline]
    #[must_use]
    pub const fn is_few(&self) -> bool {
        self.is_few
    }

    /// Called before a burst: invalidates all verdicts if any of their inputs has changed.
    #[inline]
    pub fn begin(&mut self, inputs: Inputs) {
        if inputs != self.inputs {
            self.renew(inputs);
        }
    }

    #[cold]
    fn renew(&mut self, inputs: Inputs) {
        self.inputs = inputs;
        // Verdicts of older stamps no longer match, so the cache need not be cleared.
        self.stamp += 1;
        if self.stamp > STAMP {
            // Stamps have 16 bits and start over: a verdict of an old stamp would become valid again.
            self.sets.zero();
            self.choices.zero();
            self.stamp = 1;
        }
    }

    /// The cached decision about a frame with `key`.
    #[expect(clippy::inline_always, reason = "once a frame; its answer is to stay in registers")]
    #[inline(always)]
    #[must_use]
    pub fn lookup<const FEW: bool>(&self, key: Key) -> Option<CachedVerdict> {
        debug_assert_eq!(FEW, self.is_few, "asked as it was made");
        let (first, second) = homes_of::<FEW>(key);
        match self.find(first, key) {
            Some(verdict) => Some(verdict),
            None => self.find(second, key),
        }
    }

    /// The cached decision about a frame that came in by `input`, where links may have been chosen
    /// for it by `words`.
    #[inline]
    pub fn lookup_spread<const FEW: bool>(
        &mut self,
        input: PortId,
        key: Key,
        words: impl Fn() -> Option<[u64; 2]>,
    ) -> Option<CachedVerdict> {
        let choice = |flows: &Self| flows.find_choice::<FEW>(key, words()?);
        if self.chosen.contains(input) {
            return choice(self).or_else(|| {
                let sole = self.lookup::<FEW>(key)?;
                self.chosen.remove(input);
                Some(sole)
            });
        }
        self.lookup::<FEW>(key).or_else(|| {
            let chosen = choice(self)?;
            self.chosen.insert(input);
            Some(chosen)
        })
    }

    #[inline]
    fn find_choice<const FEW: bool>(&self, key: Key, words: [u64; 2]) -> Option<CachedVerdict> {
        let (first, second) = homes_of_choice::<FEW>(key, words);
        [first, second].into_iter().find_map(|home| {
            let choice = self.choices.get(home)?;
            self.is_choice(choice, key, words).then(|| choice.word.verdict())
        })
    }

    #[inline]
    fn is_choice(&self, choice: &Choice, key: Key, words: [u64; 2]) -> bool {
        choice.key == key && choice.words == words && (choice.word.0 ^ self.stamp) & STAMP == 0
    }

    /// Caches the decision about a frame for which links were chosen.
    #[inline(never)] // once a flow and tick
    pub fn insert_choice(&mut self, key: Key, words: [u64; 2], verdict: CachedVerdict) {
        let new = Choice { key, words, word: Word::new(self.stamp, verdict) };
        let homes = if self.is_few { homes_of_choice::<true> } else { homes_of_choice::<false> };
        let (first, second) = homes(key, words);
        let is_free = |home: &usize| {
            self.choices.get(*home).is_some_and(|it| {
                it.word.0 & STAMP != self.stamp || (it.key, it.words) == (key, words)
            })
        };
        // Both may be taken by live flows: one gives way, and its next frame takes the full path
        // again.
        let home = [first, second].into_iter().find(is_free).unwrap_or(first);
        if let Some(place) = self.choices.get_mut(home) {
            *place = new;
        }
    }

    #[inline]
    fn find(&self, home: usize, key: Key) -> Option<CachedVerdict> {
        let Set([first, second]) = self.sets.get(home)?;
        if self.holds(first, key) {
            Some(first.word.verdict())
        } else {
            self.holds(second, key).then(|| second.word.verdict())
        }
    }

    #[inline]
    const fn holds(&self, flow: &Flow, [a, b, c]: Key) -> bool {
        // Without branches: one comparison at the end instead of one for each word.
        let key = (flow.key[0] ^ a) | (flow.key[1] ^ b) | (flow.key[2] ^ c);
        key | ((flow.word.0 ^ self.stamp) & STAMP) == 0
    }

    /// Caches the decision about a frame.
    #[inline(never)] // once a flow and tick
    pub fn insert(&mut self, key: Key, verdict: CachedVerdict) {
        let flow = Flow { key, word: Word::new(self.stamp, verdict) };
        let homes = if self.is_few { homes_of::<true> } else { homes_of::<false> };
        let (first, second) = homes(key);
        let stamp = self.stamp;
        for home in [first, second] {
            let Some(Set(flows)) = self.sets.get_mut(home) else { return };
            let free = |at: &&mut Flow| at.key == key || at.word.0 & STAMP != stamp;
            if let Some(place) = flows.iter_mut().find(free) {
                *place = flow;
                return;
            }
        }
        // All four places are taken by live flows: the older one of the first set goes.
        if let Some(Set([newer, older])) = self.sets.get_mut(first) {
            *older = core::mem::replace(newer, flow);
        }
    }
}

impl Word {
    const fn new(stamp: u64, verdict: CachedVerdict) -> Self {
        Self(
            stamp
                | (verdict.vid as u64 & 0xFFF) << VID_SHIFT
                | (verdict.queue.get() as u64) << QUEUE_SHIFT
                | (verdict.meta.bits() as u64) << META_SHIFT,
        )
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "fields are cut out of the word")]
    const fn verdict(self) -> CachedVerdict {
        CachedVerdict {
            queue: QueueId::from_low_bits((self.0 >> QUEUE_SHIFT) as u16),
            vid: (self.0 >> VID_SHIFT) as u16 & 0xFFF,
            meta: DescMeta::from_bits((self.0 >> META_SHIFT) as u32),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desc::Desc;
    use crate::types::Pri;
    use weft_parsers::{Format, HEAD_LEN, ParseConfig, flow_key};

    fn port(index: usize) -> PortId {
        PortId::new(index).unwrap()
    }

    /// The key of a plain frame from station `src` that came in by port `input`.
    fn key(input: usize, src: u32) -> Key {
        let mut head = [0; HEAD_LEN];
        head[0] = 2;
        head[8..12].copy_from_slice(&src.to_be_bytes());
        key_of(port(input), flow_key(&head, 64, &ParseConfig::DEFAULT).unwrap())
    }

    fn verdict(output: usize) -> CachedVerdict {
        let mut desc = Desc::new(0, 128);
        let pri = Pri::from_low_bits(3);
        desc.classify(port(9), Format::Standard, pri, true, true);
        let queue = QueueId::new(port(output), pri);
        CachedVerdict { queue, vid: 4_095, meta: desc.meta() }
    }

    fn inputs(fdb: u64) -> Inputs {
        Inputs { fdb, ..Inputs::default() }
    }

    /// A cache of few pages finds the flows that were inserted, as far as it has room.
    #[test]
    fn a_cache_of_few_flows_finds_them() {
        let mut cache = FlowCache::few();
        cache.begin(inputs(1));
        let flows = 2 * u32::try_from(FEW_SETS).unwrap();
        for flow in 0..flows {
            cache.insert(key(0, flow), verdict(flow as usize % 64));
            cache.insert_choice(key(1, flow), [flow.into(), 7], verdict(flow as usize % 64));
        }
        let found = (0..flows).filter_map(|flow| {
            let verdict = cache.lookup::<true>(key(0, flow))?;
            assert_eq!(verdict.queue.output(), port(flow as usize % 64));
            Some(())
        });
        assert!((flows / 2..flows).contains(&u32::try_from(found.count()).unwrap()), "not all");
        let last = flows - 1;
        let words = || Some([last.into(), 7]);
        let verdict = cache.lookup_spread::<true>(port(1), key(1, last), words).unwrap();
        assert_eq!(verdict.queue.output(), port(last as usize % 64));
    }

    #[test]
    fn a_verdict_is_of_one_flow_and_input() {
        let mut cache = FlowCache::new();
        cache.begin(inputs(1));
        assert_eq!(cache.lookup::<false>(key(0, 1)), None, "empty");
        cache.insert(key(0, 1), verdict(63));
        cache.insert(key(0, 3), verdict(0));
        #[rustfmt::skip] // columns: name, input, source, want
        let cases = [
            ("as it was",     0, 1, Some(verdict(63))),
            ("the other one", 0, 3, Some(verdict(0))),
            ("another input", 1, 1, None),
            ("another flow",  0, 2, None),
        ];
        for (name, input, src, want) in cases {
            assert_eq!(cache.lookup::<false>(key(input, src)), want, "{name}");
        }
        cache.insert(key(0, 1), verdict(5));
        assert_eq!(cache.lookup::<false>(key(0, 1)), Some(verdict(5)), "the last one counts");
    }

    #[test]
    fn every_change_voids_all_also_when_stamps_come_round() {
        let mut cache = FlowCache::new();
        cache.begin(inputs(1));
        cache.insert(key(0, 1), verdict(1));
        for n in 2..=2 * STAMP + 3 {
            cache.begin(inputs(n));
            assert_eq!(cache.lookup::<false>(key(0, 1)), None, "change {n}");
            if n % 100 == 0 {
                cache.insert(key(0, 1), verdict(2));
            }
        }
        let changes = [
            Inputs { epoch: 1, ..Inputs::default() },
            Inputs { tick: 1, ..Inputs::default() },
            Inputs { up: 1, ..Inputs::default() },
            Inputs { joined: [1, 0], ..Inputs::default() },
            Inputs { joined: [0, 1], ..Inputs::default() },
            Inputs::default(),
        ];
        for change in changes {
            cache.insert(key(0, 1), verdict(3));
            cache.begin(change);
            assert_eq!(cache.lookup::<false>(key(0, 1)), None, "{change:?}");
        }
    }

    /// A choice is of its key and its words, and void as all others when anything has changed.
    #[test]
    fn a_choice_is_of_a_flow_and_its_words() {
        let mut cache = FlowCache::new();
        let inputs = Inputs { joined: [3, 0], ..Inputs::default() };
        cache.begin(inputs);
        let look = |cache: &mut FlowCache, input: usize, src, words| {
            cache.lookup_spread::<false>(port(input), key(input, src), || words)
        };
        cache.insert_choice(key(0, 1), [7, 9], verdict(4));
        cache.insert_choice(key(0, 1), [9, 7], verdict(5));
        cache.insert(key(0, 2), verdict(6));
        for _ in 0..2 {
            #[rustfmt::skip] // columns: name, input, source, words, want; after each other, as the last one decides what is looked at first
            let cases = [
                ("as it was",            0, 1, Some([7, 9]), Some(verdict(4))),
                ("other words",          0, 1, Some([9, 7]), Some(verdict(5))),
                ("the other way round",  0, 1, Some([7, 7]), None),
                ("without words",        0, 1, None,         None),
                ("without a choice",     0, 2, Some([7, 9]), Some(verdict(6))),
                ("without either",       0, 2, None,         Some(verdict(6))),
                ("another input",        1, 1, Some([7, 9]), None),
                ("another flow",         0, 3, Some([7, 9]), None),
            ];
            for (name, input, src, words, want) in cases {
                assert_eq!(look(&mut cache, input, src, words), want, "{name}");
            }
        }
        cache.insert_choice(key(0, 1), [7, 9], verdict(8));
        assert_eq!(look(&mut cache, 0, 1, Some([7, 9])), Some(verdict(8)), "the last one counts");
        cache.begin(Inputs { joined: [3, 1], ..inputs });
        assert_eq!(look(&mut cache, 0, 1, Some([7, 9])), None, "another link takes flows");
        for n in 0..2 * STAMP {
            cache.begin(Inputs { fdb: n + 1, ..inputs });
            assert_eq!(look(&mut cache, 0, 1, Some([7, 9])), None, "change {n}");
            if n % 1_000 == 0 {
                cache.insert_choice(key(0, 1), [7, 9], verdict(8));
            }
        }
    }

    #[test]
    fn as_many_choices_as_half_the_places_stay() {
        let mut cache = FlowCache::new();
        cache.begin(inputs(1));
        let flows = u64::try_from(CHOICES / 2).unwrap();
        let words = |flow: u64| [0x0200_000A_0100_000A ^ flow << 56, flow << 8 | 0xB712];
        for flow in 0..flows {
            cache.insert_choice(
                key(0, 1),
                words(flow),
                verdict(usize::try_from(flow % 64).unwrap()),
            );
        }
        let held = (0..flows).filter(|&flow| {
            let found = cache.find_choice::<false>(key(0, 1), words(flow));
            let want = verdict(usize::try_from(flow % 64).unwrap());
            assert!(found.is_none_or(|found| found == want), "{flow}");
            found.is_some()
        });
        let held = held.count() as u64;
        assert!(held > flows * 80 / 100, "{held} of {flows}");
    }

    #[test]
    fn as_many_flows_as_half_the_sets_stay() {
        let mut cache = FlowCache::new();
        cache.begin(inputs(1));
        let flows = u32::try_from(SETS / 2).unwrap();
        for src in 0..flows {
            cache.insert(key(0, src), verdict(usize::try_from(src % 64).unwrap()));
        }
        let mut held = 0;
        for src in 0..flows {
            if let Some(found) = cache.lookup::<false>(key(0, src)) {
                assert_eq!(found, verdict(usize::try_from(src % 64).unwrap()), "{src}");
                held += 1;
            }
        }
        assert!(held > flows * 99 / 100, "{held} of {flows}");
    }
}
