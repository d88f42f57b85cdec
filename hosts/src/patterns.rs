//! Traffic patterns: who sends to whom among N hosts, as streams.
//!
//! Shape: [`Pattern`] and a seed give flows (from, to); with a stream as template they become the
//! streams of each host, its rate divided among its flows.
//! Units: those of the template.
//! Source: patterns of switch literature: uniform and permutation (McKeown 1999), incast (many to
//! one), ring and all-to-all (collectives).

use weft_base::rng::Rng;
use weft_dataplane::time::Span;

use crate::frames::Station;
use crate::pace::Rate;
use crate::stamp::{ANNOUNCE, mix};
use crate::stream::tx::{Gaps, StreamSpec};

/// A traffic pattern: which hosts send to which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// All others send to host `to`, each at the full rate.
    Incast {
        /// The receiver.
        to: usize,
    },
    /// Every host sends to every other one with independent random gaps.
    Uniform,
    /// Every host sends to one other and receives from one other, chosen by the seed.
    Permutation,
    /// Every host sends to the next one.
    Ring,
    /// Every host sends to every other one, evenly, starting with the next one, so that at no time
    /// two begin with the same receiver.
    AllToAll,
}

/// A sender and a receiver, as indices of hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flow {
    /// The sender.
    pub from: usize,
    /// The receiver.
    pub to: usize,
}

/// A pattern that cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// Nobody to send to.
    #[error("pattern over {had} hosts: expected 2 or more")]
    Hosts {
        /// Hosts there are.
        had: usize,
    },
    /// The receiver of an incast is not there.
    #[error("incast to host {to}: expected 0 to {max}")]
    Target {
        /// The receiver.
        to: usize,
        /// The highest host.
        max: usize,
    },
    /// Not enough stream numbers.
    #[error("pattern needs streams {first} to {last}: expected none above 65,534")]
    Ids {
        /// First number asked for.
        first: u16,
        /// Last number needed.
        last: usize,
    },
}

impl Pattern {
    /// The flows among `hosts` hosts, those of one sender together and in the order in which they
    /// begin.
    ///
    /// # Errors
    /// Fewer than two hosts, or an incast to a host that is not there.
    pub fn flows(self, hosts: usize, seed: u64) -> Result<Vec<Flow>, PatternError> {
        if hosts < 2 {
            return Err(PatternError::Hosts { had: hosts });
        }
        let next = |from: usize, step: usize| Flow { from, to: (from + step) % hosts };
        Ok(match self {
            Self::Incast { to } if to >= hosts => {
                return Err(PatternError::Target { to, max: hosts - 1 });
            }
            Self::Incast { to } => {
                (0..hosts).filter(|from| *from != to).map(|from| Flow { from, to }).collect()
            }
            Self::Ring => (0..hosts).map(|from| next(from, 1)).collect(),
            Self::Uniform | Self::AllToAll => {
                let all = |from| (1..hosts).map(move |step| next(from, step));
                (0..hosts).flat_map(all).collect()
            }
            Self::Permutation => permutation(hosts, seed),
        })
    }

    /// The streams of each host of `stations`, made from `template`: its numbers count up from the
    /// template's, its rate is what one host sends (divided evenly, rounded down), its count holds
    /// for each stream.
    ///
    /// # Errors
    /// As [`Self::flows`], or more streams than there are numbers.
    pub fn streams(
        self,
        stations: &[Station],
        template: &StreamSpec,
        seed: u64,
    ) -> Result<Vec<Vec<StreamSpec>>, PatternError> {
        let flows = self.flows(stations.len(), seed)?;
        let (first, last) = (template.id, usize::from(template.id) + flows.len() - 1);
        if last >= usize::from(ANNOUNCE) {
            return Err(PatternError::Ids { first, last });
        }
        let peers = match self {
            Self::Uniform | Self::AllToAll => stations.len() - 1,
            Self::Incast { .. } | Self::Permutation | Self::Ring => 1,
        };
        let rate = divide(template.rate, peers as u64);
        let mut hosts = vec![Vec::new(); stations.len()];
        for (flow, id) in flows.into_iter().zip(first..) {
            let ends = (stations.get(flow.from), stations.get(flow.to), hosts.get_mut(flow.from));
            let (Some(src), Some(dst), Some(streams)) = ends else { continue };
            let mut spec = StreamSpec { id, rate, ..template.clone() };
            spec.seed = mix(seed ^ mix(u64::from(id)));
            spec.frame.src = *src;
            spec.frame.dst = *dst;
            spec.frame.xpu_id = src.id;
            if self == Self::Uniform {
                spec.gaps = Gaps::Random;
            }
            // streams of one host that are paced alike begin one frame's share apart
            spec.start += share(&spec, streams.len() as u64, peers as u64);
            streams.push(spec);
        }
        Ok(hosts)
    }
}

/// How much later than the first of `peers` streams stream `index` begins: its part of one gap.
fn share(spec: &StreamSpec, index: u64, peers: u64) -> Span {
    let gap = crate::pace::Pacer::new(spec.rate).gap(spec.frame.len_at(0, spec.seed));
    Span::from_ps(gap.as_ps() / peers.max(1) * index)
}

fn divide(rate: Rate, by: u64) -> Rate {
    match rate {
        Rate::FrameBps(bps) => Rate::FrameBps(bps / by),
        Rate::WireBps(bps) => Rate::WireBps(bps / by),
        Rate::Fps(fps) => Rate::Fps(fps / by),
        Rate::Max => Rate::Max,
    }
}

/// One cycle through all hosts in random order (Sattolo 1986): nobody sends to itself.
fn permutation(hosts: usize, seed: u64) -> Vec<Flow> {
    let mut rng = Rng::new(seed);
    let mut to: Vec<usize> = (0..hosts).collect();
    for last in (1..hosts).rev() {
        let other = usize::try_from(rng.below(last as u64)).unwrap_or_default();
        to.swap(last, other);
    }
    to.into_iter().enumerate().map(|(from, to)| Flow { from, to }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::{FrameSpec, Kind};
    use crate::stream::StreamTx;

    fn sent_and_received(flows: &[Flow], hosts: usize) -> (Vec<usize>, Vec<usize>) {
        let (mut sent, mut received) = (vec![0; hosts], vec![0; hosts]);
        for flow in flows {
            assert_ne!(flow.from, flow.to);
            sent[flow.from] += 1;
            received[flow.to] += 1;
        }
        (sent, received)
    }

    #[test]
    fn every_pattern_has_its_degrees() {
        for hosts in [2, 3, 8, 64] {
            let full = hosts - 1;
            let one = vec![1; hosts];
            let mut but_last = one.clone();
            but_last[full] = 0;
            let mut only_last = vec![0; hosts];
            only_last[full] = full;
            #[rustfmt::skip] // columns: pattern, flows out of each host, flows into each host
            let cases = [
                (Pattern::Incast { to: full }, but_last,          only_last),
                (Pattern::Uniform,             vec![full; hosts], vec![full; hosts]),
                (Pattern::AllToAll,            vec![full; hosts], vec![full; hosts]),
                (Pattern::Permutation,         one.clone(),       one.clone()),
                (Pattern::Ring,                one.clone(),       one),
            ];
            for (pattern, out, into) in cases {
                let mut flows = pattern.flows(hosts, 7).unwrap();
                assert_eq!(sent_and_received(&flows, hosts), (out, into), "{pattern:?} {hosts}");
                flows.sort_unstable();
                flows.dedup();
                let unique = sent_and_received(&flows, hosts).0.iter().sum::<usize>();
                assert_eq!(pattern.flows(hosts, 7).unwrap().len(), unique, "{pattern:?} twice");
            }
        }
    }

    #[test]
    fn seeds_choose_the_permutation() {
        let flows = |seed| Pattern::Permutation.flows(16, seed).unwrap();
        assert_eq!(flows(1), flows(1));
        assert_ne!(flows(1), flows(2));
    }

    #[test]
    fn streams_share_the_rate_and_have_own_numbers() {
        let stations: Vec<_> = (0..5).map(Station::numbered).collect();
        let frame = FrameSpec::new(Kind::Gen1, stations[0], stations[0]);
        let mut template = StreamSpec::new(100, frame);
        template.rate = Rate::WireBps(100_000_000_000);
        let hosts = Pattern::AllToAll.streams(&stations, &template, 3).unwrap();
        let all: Vec<_> = hosts.iter().flatten().collect();
        assert_eq!(all.len(), 20);
        for (want, spec) in (100..).zip(&all) {
            assert_eq!((spec.id, spec.rate), (want, Rate::WireBps(25_000_000_000)));
            StreamTx::new((*spec).clone()).unwrap();
        }
        // 256 bytes at 25G take 89,600 ps: four streams begin a quarter of that apart
        let starts: Vec<_> = hosts[1].iter().map(|spec| spec.start.as_ps()).collect();
        assert_eq!(starts, [0, 22_400, 44_800, 67_200]);
        assert_eq!(hosts[1][0].frame.dst, stations[2]);
        assert!(all.iter().all(|spec| spec.frame.src.id == spec.frame.xpu_id));
        let uniform = Pattern::Uniform.streams(&stations, &template, 3).unwrap();
        assert!(uniform.iter().flatten().all(|spec| spec.gaps == Gaps::Random));
    }

    #[test]
    fn impossible_patterns_are_refused() {
        let template = |id| {
            let station = Station::numbered(0);
            StreamSpec::new(id, FrameSpec::new(Kind::Lite, station, station))
        };
        let stations: Vec<_> = (0..3).map(Station::numbered).collect();
        assert_eq!(Pattern::Ring.flows(1, 0), Err(PatternError::Hosts { had: 1 }));
        let want = PatternError::Target { to: 3, max: 2 };
        assert_eq!(Pattern::Incast { to: 3 }.flows(3, 0), Err(want));
        let want = PatternError::Ids { first: 65_533, last: 65_535 };
        assert_eq!(Pattern::Ring.streams(&stations, &template(65_533), 0), Err(want));
        assert!(Pattern::Ring.streams(&stations, &template(65_532), 0).is_ok());
    }
}
