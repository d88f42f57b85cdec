//! Number of requests that a requester has under way, by the load that answers report: [`Throttle::limit`] before a
//! request, [`Throttle::answered`] for each answer.
//!
//! Source: docs/spec/cxl-fabric.md "Load of the device"; CXL 3.1 section 3.3.4.

use weft_parsers::tlp::DevLoad;

/// Number of levels: at the highest one, one of this many parts of the requests is left.
const LEVELS: usize = 256;
/// Step of a window whose highest load was light (down) or moderate overload (up).
const NORMAL: u8 = 16;
/// Step of a window that saw severe overload.
const SEVERE: u8 = 64;

/// A requester's level of throttling.
#[derive(Clone, Debug)]
pub struct Throttle {
    most: usize,
    level: u8,
    /// Answers left until the window ends.
    left: usize,
    highest: u8,
}

impl Throttle {
    /// Level 0, for a requester with at most `most` requests under way.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { most: most.max(1), level: 0, left: 1, highest: DevLoad::Light as u8 }
    }

    /// Most requests that may be under way, at least 1.
    #[inline]
    #[must_use]
    pub fn limit(&self) -> usize {
        (self.most * (LEVELS - usize::from(self.level)) / LEVELS).max(1)
    }

    /// Level of throttling, 0 for none.
    #[must_use]
    pub const fn level(&self) -> u8 {
        self.level
    }

    /// Takes the load that an answer reports; `under_way` requests are still unanswered.
    #[inline]
    pub fn answered(&mut self, load: DevLoad, under_way: usize) {
        self.highest = self.highest.max(load as u8);
        self.left = self.left.saturating_sub(1);
        if self.left > 0 {
            return;
        }
        self.level = match DevLoad::from_low_bits(self.highest) {
            DevLoad::Light => self.level.saturating_sub(NORMAL),
            DevLoad::Optimal => self.level,
            DevLoad::ModerateOverload => self.level.saturating_add(NORMAL),
            DevLoad::SevereOverload => self.level.saturating_add(SEVERE),
        };
        // The requests under way now were sent before the change of level; the next window ends with their last answer.
        self.left = under_way.max(1);
        self.highest = DevLoad::Light as u8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_counts_by_its_highest_load() {
        use DevLoad::{Light, ModerateOverload as Moderate, Optimal, SevereOverload as Severe};
        let mut throttle = Throttle::new(64);
        assert_eq!((throttle.level(), throttle.limit()), (0, 64));
        throttle.answered(Severe, 3); // the first window is one answer long
        assert_eq!((throttle.level(), throttle.limit()), (64, 48));
        for load in [Light, Moderate] {
            throttle.answered(load, 9);
            assert_eq!(throttle.level(), 64, "the window is not over");
        }
        throttle.answered(Light, 1);
        assert_eq!(throttle.level(), 80, "moderate was the highest");
        #[rustfmt::skip] // columns: load, level after a window of one
        let steps = [(Optimal, 80), (Light, 64), (Severe, 128), (Severe, 192), (Severe, 255), (Moderate, 255), (Light, 239)];
        for (load, want) in steps {
            throttle.answered(load, 0);
            assert_eq!(throttle.level(), want, "{load:?}");
        }
        (0..20).for_each(|_| throttle.answered(Severe, 0));
        assert_eq!(throttle.limit(), 1, "never none");
        (0..20).for_each(|_| throttle.answered(Light, 0));
        assert_eq!(throttle.limit(), 64, "and all again");
    }
}
