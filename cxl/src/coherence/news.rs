//! Events for people about holders of lines. A holder that falls silent is reported once, until it answers again.

use std::collections::{BTreeSet, VecDeque};

use weft_parsers::fabric::Pid;

/// News kept until they are fetched; beyond that many the oldest is dropped.
const NEWS_MAX: usize = 256;

/// Silent holders, and news that were not fetched yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct News<N> {
    silent: BTreeSet<Pid>,
    waiting: VecDeque<N>,
}

impl<N> Default for News<N> {
    fn default() -> Self {
        Self { silent: BTreeSet::new(), waiting: VecDeque::new() }
    }
}

impl<N> News<N> {
    /// `who` was given up on: queues `news`, unless `who` was silent already.
    pub fn silent(&mut self, who: Pid, news: N) {
        if self.silent.insert(who) {
            self.tell(news);
        }
    }

    /// `who` has answered: queues `news` if it was silent.
    pub fn heard_of(&mut self, who: Pid, news: N) {
        if self.silent.remove(&who) {
            self.tell(news);
        }
    }

    /// Queues `news` unconditionally.
    pub fn tell(&mut self, news: N) {
        if self.waiting.len() >= NEWS_MAX {
            self.waiting.pop_front();
        }
        self.waiting.push_back(news);
    }

    pub fn next_news(&mut self) -> Option<N> {
        self.waiting.pop_front()
    }
}
