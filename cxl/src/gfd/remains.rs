//! Memory that nobody has, with somebody's content in it: what a file kept of before, and what was released as it stands.
//! [`Remains`]: ranges of DPAs; [`Remains::take`] cuts out what is given anew.
//!
//! Units: bytes.
//! Source: docs/spec/cxl-fabric.md "GFD (endpoint)".

/// Ranges of memory, each a first byte and the byte behind it; no two overlap.
#[derive(Clone, Debug, Default)]
pub(super) struct Remains(Vec<(u64, u64)>);

impl Remains {
    /// `len` bytes from `at` on are left as they stand.
    pub(super) fn add(&mut self, at: u64, len: u64) {
        self.take(at, len);
        if len > 0 {
            self.0.push((at, at + len));
        }
    }

    /// `len` bytes from `at` on are somebody's: returns those parts of them, each its first byte and length, that were left.
    pub(super) fn take(&mut self, at: u64, len: u64) -> Vec<(u64, u64)> {
        let (end, mut taken, mut rest) = (at + len, Vec::new(), Vec::new());
        for (from, to) in self.0.drain(..) {
            let (first, last) = (from.max(at), to.min(end));
            if first < last {
                taken.push((first, last - first));
                rest.extend([(from, first), (last, to)].into_iter().filter(|(a, b)| a < b));
            } else {
                rest.push((from, to));
            }
        }
        self.0 = rest;
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_cut_out() {
        let mut remains = Remains::default();
        remains.add(0, 100);
        assert_eq!(remains.take(100, 50), []);
        assert_eq!(remains.take(20, 30), [(20, 30)]);
        assert_eq!(remains.take(10, 60), [(10, 10), (50, 20)]);
        remains.add(0, 10);
        remains.add(0, 10);
        assert_eq!(remains.take(0, 10), [(0, 10)]);
        assert_eq!(remains.take(0, 1_000), [(70, 30)]);
        assert_eq!(remains.take(0, 1_000), []);
    }
}
