//! The search for the longest burst of back-to-back frames that arrives whole.
//!
//! Bisects the burst's length in frames, between the longest that passed and the shortest that lost a frame.
//!
//! Source: RFC 2544 §26.4.

/// The longest burst of at most `frames_max` frames that passes `trial`, to within `resolution` frames; 0 if even the
/// shortest one tried fails.
///
/// # Errors
/// The first trial that could not be run.
pub fn longest<E>(
    frames_max: u64,
    resolution: u64,
    mut trial: impl FnMut(u64) -> Result<bool, E>,
) -> Result<u64, E> {
    // A device that passes the longest burst needs no search.
    if trial(frames_max)? {
        return Ok(frames_max);
    }
    let (mut low, mut high) = (0, frames_max);
    // `low` passed (or is 0), and `high` lost frames.
    while high - low > resolution.max(1) {
        let middle = low.midpoint(high);
        if trial(middle)? {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_burst_is_found() {
        #[rustfmt::skip] // columns: name, frames that pass, most, resolution, found at least, at most, trials
        let cases = [
            ("inside",       4_097,     1_000_000, 1,     4_097,     4_097,     21),
            ("coarse",       4_097,     1_000_000, 1_000, 3_097,     4_097,     11),
            ("all",          u64::MAX,  1_000_000, 1,     1_000_000, 1_000_000, 1),
            ("none",         0,         1_000_000, 1,     0,         0,         21),
            ("no step",      0,         7,         0,     0,         0,         4),
        ];
        for (name, passes, most, resolution, from, to, trials_max) in cases {
            let mut trials = 0;
            let found: Result<_, ()> = longest(most, resolution, |frames| {
                trials += 1;
                Ok(frames <= passes)
            });
            let found = found.unwrap();
            assert!((from..=to).contains(&found), "{name}: {found}");
            assert!(trials <= trials_max, "{name}: {trials} trials");
        }
    }
}
