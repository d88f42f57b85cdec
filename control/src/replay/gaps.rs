//! Shortens times in which no port receives a frame.
//!
//! The timestamps of all captures, in order of time → the places where time is left out, and how much. All times are in
//! nanoseconds.
//!
//! Source: docs/replay.md "Times".

use weft_dataplane::port::capture::{CaptureError, CaptureReader, Record};

use super::sources::Source;

/// Gaps that are shortened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gaps {
    /// Timestamp of the first frame behind a gap, and the time left out up to there; both rise.
    behind: Vec<(u64, u64)>,
}

/// Timestamps of a capture, in order: one that goes back counts as the one before it, as in the replay.
struct Stamps {
    reader: CaptureReader,
    latest_ns: u64,
}

impl Stamps {
    fn next(&mut self, record: &mut Record) -> Result<Option<u64>, CaptureError> {
        if !self.reader.read_into(record)? {
            return Ok(None);
        }
        self.latest_ns = self.latest_ns.max(record.ts_ns);
        Ok(Some(self.latest_ns))
    }
}

impl Gaps {
    /// Finds gaps longer than `most_ns` in `sources` together. Reads all of them.
    ///
    /// # Errors
    /// A capture that cannot be read.
    pub fn find(sources: &[Source], most_ns: u64) -> Result<Self, CaptureError> {
        let mut record = Record::default();
        let mut heads = Vec::new();
        for source in sources {
            let mut stamps = Stamps { reader: source.reader()?, latest_ns: 0 };
            if let Some(at) = stamps.next(&mut record)? {
                heads.push((at, stamps));
            }
        }
        let (mut gaps, mut latest, mut left_out) = (Self::default(), None, 0);
        // A merge by the earliest head: where one capture has a gap, another may have a frame.
        while let Some(first) = (0..heads.len()).min_by_key(|&of| heads.get(of).map(|head| head.0))
            && let Some((at, stamps)) = heads.get_mut(first)
        {
            let gap = latest.map_or(0, |latest| at.saturating_sub(latest));
            if gap > most_ns {
                left_out += gap - most_ns;
                gaps.behind.push((*at, left_out));
            }
            latest = Some(*at);
            match stamps.next(&mut record)? {
                Some(next) => *at = next,
                None => drop(heads.swap_remove(first)),
            }
        }
        Ok(gaps)
    }

    /// Time left out before a frame with timestamp `at_ns`.
    #[must_use]
    pub fn before(&self, at_ns: u64) -> u64 {
        let index = self.behind.partition_point(|(behind, _)| *behind <= at_ns);
        index.checked_sub(1).and_then(|last| self.behind.get(last)).map_or(0, |(_, sum)| *sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_dataplane::port::capture::{CaptureFormat, CaptureName, CaptureWriter};

    fn source(dir: &std::path::Path, name: &str, stamps: &[u64]) -> Source {
        let path = dir.join(name);
        let mut writer = CaptureWriter::create(&path, CaptureFormat::PcapNg, 0).unwrap();
        for at in stamps {
            writer.write(*at, &[0; 60], None).unwrap();
        }
        writer.finish().unwrap();
        Source::new(CaptureName::parse(path.to_str().unwrap()))
    }

    /// A gap in one capture does not count where another capture has a frame.
    #[test]
    fn gaps_are_those_of_all_captures_together() {
        let dir = tempfile::tempdir().unwrap();
        let a = source(dir.path(), "a", &[100, 200, 10_200, 10_150, 90_000]);
        let b = source(dir.path(), "b", &[150, 5_000, 10_180]);
        let empty = source(dir.path(), "c", &[]);
        let gaps = Gaps::find(&[a.clone(), b, empty.clone()], 5_000).unwrap();
        assert_eq!(gaps.behind, [(10_180, 180), (90_000, 74_980)]);
        let before = [0, 10_179, 10_180, 89_999, 90_000, u64::MAX].map(|at| gaps.before(at));
        assert_eq!(before, [0, 0, 180, 180, 74_980, 74_980]);
        assert_eq!(
            Gaps::find(std::slice::from_ref(&a), 10_000).unwrap().behind,
            [(90_000, 69_800)]
        );
        assert_eq!(Gaps::find(&[a], u64::MAX).unwrap(), Gaps::default());
        assert_eq!(Gaps::find(&[empty], 0).unwrap(), Gaps::default());
    }
}
