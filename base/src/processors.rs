//! Processors: those of the machine, those that this process may use, and threads that are bound to one.
//!
//! Numbers are Linux's; [`reach`] tells whether a processor can be used, [`bind`] binds a thread to
//! it.
//!
//! Source: `sched_setaffinity(2)`, cpuset(7), Linux `Documentation/ABI/stable/sysfs-devices-system-cpu`.

use std::fmt;
use std::io;

use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

use crate::files::{self, OpenedBy};

/// Processors that the machine has, on line or not.
const PRESENT: &str = "/sys/devices/system/cpu/present";

/// Longest list that is read.
const LIST_MAX: u64 = 4_096;

/// Whether threads can be bound to a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// A thread can be bound to it.
    Usable,
    /// The machine has it, but off line, or outside of the cpuset of this process.
    Forbidden,
    /// The machine has none of this number.
    Absent,
}

/// Numbers of processors, rising.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Processors(Vec<usize>);

impl Processors {
    /// Processors of the machine; `None` where the kernel does not say.
    #[must_use]
    pub fn present() -> Option<Self> {
        Self::parse(&files::read_text(PRESENT, OpenedBy::Service, LIST_MAX).ok()?)
    }

    /// Processors that the calling thread may run on.
    ///
    /// # Errors
    /// The kernel's answer.
    pub fn allowed() -> io::Result<Self> {
        let set = sched_getaffinity(None)?;
        Ok(Self((0..CpuSet::MAX_CPU).filter(|&number| set.is_set(number)).collect()))
    }

    /// A list as in sysfs, such as `0-3,8`.
    fn parse(text: &str) -> Option<Self> {
        let mut all = Vec::new();
        for part in text.trim().split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            all.extend(first.parse().ok()?..=last.parse::<usize>().ok()?);
        }
        Some(Self(all))
    }

    /// The processor that is `index` from the last.
    #[must_use]
    pub fn from_last(&self, index: usize) -> Option<usize> {
        self.0.iter().rev().nth(index).copied()
    }
}

/// As in sysfs: `0-3,8`.
impl fmt::Display for Processors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, run) in self.0.chunk_by(|a, b| a + 1 == *b).enumerate() {
            f.write_str(if at == 0 { "" } else { "," })?;
            match *run {
                [first, .., last] => write!(f, "{first}-{last}")?,
                [one] => write!(f, "{one}")?,
                [] => {}
            }
        }
        Ok(())
    }
}

/// A number that is in `numbers` twice.
#[must_use]
pub fn repeated(numbers: &[usize]) -> Option<usize> {
    let mut rest = numbers;
    while let Some((last, before)) = rest.split_last() {
        if before.contains(last) {
            return Some(*last);
        }
        rest = before;
    }
    None
}

/// Whether a thread of this process can be bound to processor `number`.
#[must_use]
pub fn reach(number: usize) -> Reach {
    let is_absent = |present: Processors| !present.0.contains(&number);
    if number >= CpuSet::MAX_CPU || Processors::present().is_some_and(is_absent) {
        return Reach::Absent;
    }
    // The thread may have been restricted to fewer than the cpuset allows, so it has to be tried,
    // in a thread that ends.
    let tried = std::thread::scope(|scope| scope.spawn(|| bind(None, number)).join());
    if matches!(tried, Ok(Ok(()))) { Reach::Usable } else { Reach::Forbidden }
}

/// Binds a thread of this process (`None`: the calling one) to processor `number`.
///
/// # Errors
/// The kernel's answer: no such processor, or not for this process.
pub fn bind(thread: Option<Pid>, number: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    if number >= CpuSet::MAX_CPU {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    set.set(number);
    Ok(sched_setaffinity(thread, &set)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_those_of_sysfs() {
        for (text, want) in
            [("0", vec![0]), ("0-3,8\n", vec![0, 1, 2, 3, 8]), ("1,3-4", vec![1, 3, 4])]
        {
            let read = Processors::parse(text).unwrap();
            assert_eq!((read.0.as_slice(), read.to_string().as_str()), (&*want, text.trim()));
        }
        assert_eq!(Processors::parse("0-x"), None);
        assert_eq!([&[][..], &[3, 1], &[0, 1, 0]].map(repeated), [None, None, Some(0)]);
        let four = Processors(vec![0, 1, 4, 5]);
        assert_eq!([0, 3, 4].map(|index| four.from_last(index)), [Some(5), Some(0), None]);
    }

    #[test]
    fn a_processor_is_taken_or_refused() {
        let own = Processors::allowed().unwrap();
        let last = own.from_last(0).unwrap();
        assert_eq!(reach(last), Reach::Usable);
        assert_eq!(Processors::allowed().unwrap(), own, "who asks stays where it is");
        assert_eq!([reach(1_023), reach(1 << 20)], [Reach::Absent; 2]);
        assert!(bind(None, 1 << 20).is_err());
        std::thread::spawn(move || {
            bind(None, last).unwrap();
            assert_eq!(Processors::allowed().unwrap(), Processors(vec![last]));
        })
        .join()
        .unwrap();
    }
}
