//! What people should know of those who hold lines: who is silent is told once until it answers again.

use std::collections::{BTreeSet, VecDeque};

use weft_parsers::fabric::Pid;

/// News that wait for somebody to ask; beyond, the oldest is dropped.
const NEWS_MAX: usize = 256;

/// Holders that are silent, and news that have not been fetched yet.
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
    /// `who` was given up on: `news`, unless that was told before.
    pub fn silent(&mut self, who: Pid, news: N) {
        if self.silent.insert(who) {
            self.tell(news);
        }
    }

    /// `who` has answered: `news`, if it was silent.
    pub fn heard_of(&mut self, who: Pid, news: N) {
        if self.silent.remove(&who) {
            self.tell(news);
        }
    }

    /// Tells it whatever was told before.
    pub fn tell(&mut self, news: N) {
        if self.waiting.len() >= NEWS_MAX {
            self.waiting.pop_front();
        }
        self.waiting.push_back(news);
    }

    /// The next one.
    pub fn next_news(&mut self) -> Option<N> {
        self.waiting.pop_front()
    }
}
