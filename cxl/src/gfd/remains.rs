//! Free memory that still holds old bytes: contents that a file kept from an earlier run, and memory released without
//! zeroing. [`Remains`] has its ranges of DPAs; [`Remains::take`] cuts out memory that is allocated.
//!
//! Source: docs/spec/cxl-fabric.md "GFD (endpoint)".

/// Ranges of memory as first byte and the byte behind the last; no two overlap.
#[derive(Clone, Debug, Default)]
pub(super) struct Remains(Vec<(u64, u64)>);

impl Remains {
    /// `len` bytes from `at` on become free with their contents.
    pub(super) fn add(&mut self, at: u64, len: u64) {
        // Cut out first, so that no two ranges overlap.
        self.take(at, len);
        if len > 0 {
            self.0.push((at, at + len));
        }
    }

    /// `len` bytes from `at` on are allocated: returns the parts that hold old bytes, as first byte and length.
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
