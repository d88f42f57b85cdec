//! Marks of every length, both ways; every flipped bit is noticed.

use super::*;

fn stamp(seq: u64) -> Stamp {
    Stamp { stream: 0x1234, seq, sent: Instant::from_ps(987_654_321_012_345) }
}

fn marked(len: usize, told: bool, seq: u64, extras: Extras) -> Vec<u8> {
    let mut payload = vec![0xEE; len];
    write(&mut payload, told, &stamp(seq), extras);
    payload
}

#[test]
fn marks_come_back() {
    let seqs = [0, 1, SHORT_SEQS - 1, SHORT_SEQS, u64::MAX];
    for len in (SHORT_LEN..130).chain([1344, 9000]) {
        for (icrc, bits) in [(false, false), (true, false), (false, true), (true, true)] {
            for seq in seqs {
                let extras = Extras { icrc, bits: bits && len >= LEN };
                let payload = marked(len, true, seq, extras);
                let told = len + if icrc { ICRC_LEN } else { 0 };
                let Reading::Mark(mark) = read(&payload, Some(told)) else {
                    panic!("{len} {extras:?}: {:?}", read(&payload, Some(told)));
                };
                assert_eq!((mark.stream, mark.len, mark.extras), (0x1234, len, extras), "{len}");
                assert_eq!(mark.seq.near(seq), seq, "{len}");
                assert_eq!(mark.sent.is_some(), len >= LEN, "{len}");
                assert!(mark.sent.is_none_or(|sent| sent == stamp(seq).sent));
                assert!(is_intact(&payload, &mark), "{len}");
            }
        }
    }
}

/// Flips each bit of payloads with both marks: the reading is never an intact, equal mark.
#[test]
fn every_flipped_bit_is_seen() {
    for len in [SHORT_LEN, 10, 23, LEN, 25, 40, 111] {
        let payload = marked(len, true, 77, Extras::default());
        let mut misread = 0;
        for bit in 0..len * 8 {
            let mut broken = payload.clone();
            broken[bit / 8] ^= 1 << (bit % 8);
            if let Reading::Mark(mark) = read(&broken, Some(len))
                && is_intact(&broken, &mark)
            {
                misread += 1;
            }
        }
        // The 8-bit check of the short mark lets about one in 256 pass, of 40 bits with no bytes after them.
        assert!(misread <= usize::from(len < LEN), "{len}: {misread}");
    }
}

#[test]
fn other_payloads_are_foreign_or_broken() {
    #[rustfmt::skip] // columns: name, payload, length told, want
    let cases: [(_, &[u8], _, _); 6] = [
        ("empty",             &[],          None,     Reading::Foreign),
        ("zeros",             &[0; 46],     None,     Reading::Foreign),
        ("ipv4",              &[0x45; 46],  None,     Reading::Foreign),
        ("untold and short",  &[0; 10],     None,     Reading::Foreign),
        ("told and empty",    &[0; 10],     Some(0),  Reading::Broken),
        ("shorter than told", &[0; 5],      Some(10), Reading::Foreign),
    ];
    for (name, payload, told, want) in cases {
        assert_eq!(read(payload, told), want, "{name}");
    }
    let payload = marked(40, true, 1, Extras::default());
    assert_eq!(read(&payload, Some(41)), Reading::Broken, "length told otherwise");
    assert!(matches!(read(&payload, None), Reading::Mark(_)));
}

#[test]
fn too_short_payloads_are_zeros() {
    assert_eq!(marked(5, true, 1, Extras::default()), [0; 5]);
    assert_eq!(marked(23, false, 1, Extras::default()), [0; 23]);
    assert_eq!((len_for(5, true), len_for(6, true), len_for(23, false)), (None, Some(6), None));
}

#[test]
fn low_bits_find_the_nearest_number() {
    let half = SHORT_SEQS / 2;
    #[rustfmt::skip] // columns: name, low bits, expected, want
    let cases = [
        ("equal",             5,              5,              5),
        ("a few lost",        9,              5,              9),
        ("late",              3,              5,              3),
        ("across the wrap",   2,              SHORT_SEQS - 1, SHORT_SEQS + 2),
        ("late, across it",   SHORT_SEQS - 1, SHORT_SEQS + 1, SHORT_SEQS - 1),
        ("never below zero",  SHORT_SEQS - 1, 1,              SHORT_SEQS - 1),
        ("far ahead",         half,           0,              half),
    ];
    for (name, low, expected, want) in cases {
        assert_eq!(Seq::Low(low).near(expected), want, "{name}");
    }
}

#[test]
fn header_bits_differ_from_frame_to_frame() {
    let (hi, lo) = header_bits(1, 0);
    assert!(hi < 1 << 24 && lo < 1 << 24);
    assert_ne!(header_bits(1, 0), header_bits(1, 1));
    assert_ne!(header_bits(1, 0), header_bits(2, 0));
}
