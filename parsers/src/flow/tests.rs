//! A key holds all that a frame's classification depends on.
//! Random frames, each with one byte after the other changed.
//!
//! Units: bytes.
//! Source: docs/spec/wire-formats.md §1.8.

extern crate std;

use super::*;
use crate::addr::MacAddr;
use crate::parse_head;
use crate::testing::Rng;
use crate::types::Vid;
use crate::vlan::Tpids;

const OWN: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xAA]);

/// One of `all`.
fn pick<T: Copy>(rng: &mut Rng, all: &[T]) -> T {
    all[usize::try_from(rng.below(all.len() as u64)).unwrap()]
}

/// A head in which the values that decide something are likely.
fn likely(rng: &mut Rng) -> [u8; HEAD_LEN] {
    let mut head: [u8; HEAD_LEN] = rng.bytes();
    let kinds =
        [0x0800_u16, 0x0800, 0x86DD, 0x8100, 0x88B5, 0x88B6, 0x8808, 0x0806, 0x8847, 0x8848];
    head[0] = pick(rng, &[2, 1, head[0]]);
    head[12..14].copy_from_slice(&pick(rng, &kinds).to_be_bytes());
    head[16..18].copy_from_slice(&pick(rng, &kinds).to_be_bytes());
    for ip in [14, 18] {
        if !rng.bool() {
            continue;
        }
        head[ip] = pick(rng, &[0x45, 0x45, 0x60, 0x46]);
        head[ip + 2..ip + 4].copy_from_slice(&pick(rng, &[19_u16, 20, 27, 28, 40]).to_be_bytes());
        head[ip + 4..ip + 6].copy_from_slice(&pick(rng, &[7_u16, 8, 40]).to_be_bytes());
        head[ip + 6..ip + 8].copy_from_slice(&pick(rng, &[0_u16, 0x4000, 0x2000]).to_be_bytes());
        head[ip + 6] = pick(rng, &[head[ip + 6], 17, 6]); // IPv6's next header
        head[ip + 9] = pick(rng, &[17, 17, 6]);
        let port = pick(rng, &[4_791_u16, 4_791, 9]);
        let udp_len = pick(rng, &[8_u16, 15, 16, 24]);
        head[ip + 22..ip + 24].copy_from_slice(&port.to_be_bytes());
        head[ip + 24..ip + 26].copy_from_slice(&udp_len.to_be_bytes());
        head[ip + 42..ip + 44].copy_from_slice(&port.to_be_bytes());
    }
    head
}

/// One TPID, or several.
fn tpids(rng: &mut Rng) -> Tpids {
    Tpids::new(pick(rng, &[&[0x8100][..], &[0x0806, 0x8100], &[0x88A8, 0x8100, 0x0806]])).unwrap()
}

#[test]
fn equal_keys_mean_equal_heads() {
    let mut rng = Rng::new(31);
    let modes = [AfhMode::None, AfhMode::Gen1, AfhMode::Gen2, AfhMode::Lite, AfhMode::Auto];
    let (mut alike, mut parsed) = ([0_u32; HEAD_LEN], 0);
    for _ in 0..40_000 {
        let cfg = ParseConfig {
            port_mac: OWN,
            afh: pick(&mut rng, &modes),
            udp_type2: 9 * u16::from(rng.bool()),
            tpids: tpids(&mut rng),
            ..ParseConfig::DEFAULT
        };
        let len = usize::try_from(58 + rng.below(20)).unwrap();
        let mut head = likely(&mut rng);
        head[len.min(HEAD_LEN)..].fill(0);
        let Some(key) = flow_key(&head, len, &cfg) else {
            continue;
        };
        let want = parse_head(&head, len, &cfg);
        assert!(want.is_ok(), "{want:?}: long enough for every header that has a key");
        parsed += 1;
        for (at, alike) in alike.iter_mut().enumerate() {
            let mut other = head;
            other[at] = pick(&mut rng, &[rng_byte(at, &head), !head[at], head[at] ^ 1]);
            let len = usize::try_from(58 + rng.below(20)).unwrap();
            if len > at && flow_key(&other, len, &cfg) == Some(key) {
                *alike += 1;
                assert_eq!(parse_head(&other, len, &cfg), want, "byte {at} of {head:02x?}");
            }
        }
    }
    assert!(parsed > 20_000, "{parsed}");
    // Where addresses and EtherType are, a change is another flow, but for the type of Lite frames.
    assert!(alike[..12].iter().all(|&n| n == 0), "{alike:?}");
    // Payload is not looked at: byte 57 lies behind everything that is.
    assert!(alike[57] > 10_000, "{alike:?}");
}

/// Each byte of the head is changed in turn: where key and words stay, the hash stays. A byte of the
/// payload changes none of them.
#[test]
fn equal_words_mean_equal_hashes() {
    let mut rng = Rng::new(37);
    let modes = [AfhMode::None, AfhMode::Gen1, AfhMode::Gen2, AfhMode::Lite, AfhMode::Auto];
    let (mut alike, mut with_words) = ([0_u32; HEAD_LEN], 0);
    for _ in 0..40_000 {
        let cfg = ParseConfig {
            port_mac: OWN,
            afh: pick(&mut rng, &modes),
            udp_type2: 9 * u16::from(rng.bool()),
            tpids: tpids(&mut rng),
            ..ParseConfig::DEFAULT
        };
        let len = usize::try_from(60 + rng.below(20)).unwrap();
        let mut head = likely(&mut rng);
        head[len.min(HEAD_LEN)..].fill(0);
        // the bytes behind the head differ: the hash must not depend on them
        let hash = |head: &[u8; HEAD_LEN], rest: u8| {
            let mut frame = std::vec![rest; len.max(HEAD_LEN)];
            frame[..HEAD_LEN].copy_from_slice(head);
            frame.truncate(len);
            crate::flow_hash(&frame, &parse_head(head, len, &cfg).unwrap(), Vid::from_low_bits(1))
        };
        let words =
            |head: &_| flow_key(head, len, &cfg).and_then(|key| choice_words(head, key, &cfg));
        let Some(own) = words(&head) else {
            continue;
        };
        with_words += 1;
        for (at, alike) in alike.iter_mut().enumerate().take(len) {
            let mut other = head;
            other[at] = pick(&mut rng, &[rng_byte(at, &head), !head[at], head[at] ^ 1]);
            let is_same_key = flow_key(&other, len, &cfg) == flow_key(&head, len, &cfg);
            if is_same_key && words(&other) == Some(own) {
                *alike += 1;
                assert_eq!(hash(&other, 1), hash(&head, 2), "byte {at} of {head:02x?}");
            }
        }
    }
    assert!(with_words > 15_000, "{with_words}");
    assert!(alike[57] > 10_000, "{alike:?}");
}

/// The byte before, so that neighbours swap places now and then; never the byte itself.
fn rng_byte(at: usize, head: &[u8; HEAD_LEN]) -> u8 {
    let before = head[at.saturating_sub(1)];
    if before == head[at] { !before } else { before }
}

#[test]
fn what_is_not_remembered_has_no_key() {
    let mut head = [0; HEAD_LEN];
    head[12..18].copy_from_slice(&[8, 0, 0x45, 0, 0, 20]);
    assert!(flow_key(&head, 60, &ParseConfig::DEFAULT).is_some());
    assert!(flow_key(&head, 59, &ParseConfig::DEFAULT).is_none(), "shorter than on any wire");
    #[rustfmt::skip] // columns: name, bytes 12 to 14
    let cases = [
        ("MAC control",       [0x88, 0x08, 0]),
        ("IP options",        [0x08, 0x00, 0x46]),
        ("version 6 in 0800", [0x08, 0x00, 0x60]),
        ("version 4 in 86dd", [0x86, 0xDD, 0x45]),
    ];
    for (name, bytes) in cases {
        head[12..15].copy_from_slice(&bytes);
        assert_eq!(flow_key(&head, 64, &ParseConfig::DEFAULT), None, "{name}");
    }
    head[12..18].copy_from_slice(&[8, 0, 0x45, 0, 0, 19]);
    assert_eq!(flow_key(&head, 64, &ParseConfig::DEFAULT), None, "no room for the IP header");
}
