//! Connections of an engine: messages in mailboxes, and the parts of them that are used.
//!
//! An `impl` of [`FabricMem`].
//!
//! Source: docs/fabric-memory.md; docs/spec/wire-formats.md §5.5.

use weft_cxl::fabric_mem::{MemDesc, MemKind, Message, PeerId, Place as EnginePlace, Share};
use weft_dataplane::time::Instant;
use weft_parsers::fabric::Hpa;
use weft_rpc::Refused;

use super::channel::{Channel, Heard, Place};
use super::mailbox::{MAILBOX_LEN, MailShare};
use super::memory::NOBODY;
use super::{FabricMem, SEGMENT, mem, refused, slot_of};
use crate::endpoint::command::Answer;
use crate::endpoint::event_log::EventLog;
use crate::endpoint::fabric_mem::MemAnswer;

impl FabricMem {
    /// Whether this host's user has registered the whole range as fabric memory.
    pub(super) fn is_granted(&self, hpa: u64, len: u64) -> bool {
        self.engine.registrations().any(|(_, Share { mem, kind, .. })| {
            let within = hpa.checked_sub(mem.addr).and_then(|from| from.checked_add(len));
            kind == MemKind::Fabric && within.is_some_and(|end| end <= mem.len)
        })
    }

    /// This host's registrations for a peer. Host memory is included only if the peer can access the window.
    pub(super) fn own_shares(&self, with_host: bool) -> Vec<MailShare> {
        let all = self.engine.registrations().map(|(_, share)| share);
        let share = |Share { mem, kind, place }: Share| MailShare {
            addr: mem.addr,
            len: mem.len,
            hpa: place.offset,
            fabric: kind == MemKind::Fabric,
        };
        let shown = |share: &MailShare| share.fabric || with_host && self.window.is_some();
        all.map(share).filter(shown).collect()
    }

    /// The part of a peer's shares that may be used.
    pub(super) fn usable(&self, channel: &Channel, shares: &[MailShare]) -> Vec<Share> {
        // A mailbox in fabric memory: anybody who was granted that memory may have written it.
        let segment = match channel.place {
            Place::Fabric(Hpa(at)) if channel.connects && !self.is_granted(at, MAILBOX_LEN) => {
                Some(at / SEGMENT)
            }
            _ => None,
        };
        let is_used = |it: &&MailShare| {
            // The last byte as well: a share may not reach into the next segment, which another host may have.
            let last = it.hpa.saturating_add(it.len.saturating_sub(1));
            let there = Some(it.hpa / SEGMENT) == segment && Some(last / SEGMENT) == segment;
            // Fabric memory is named by its own address; anything else would be a claim on other memory.
            if it.fabric { it.addr == it.hpa && self.is_granted(it.hpa, it.len) } else { there }
        };
        let share = |it: &MailShare| Share {
            mem: MemDesc { addr: it.addr, len: it.len },
            kind: if it.fabric { MemKind::Fabric } else { MemKind::Host },
            place: EnginePlace { pid: NOBODY, offset: it.hpa },
        };
        shares.iter().filter(is_used).map(share).collect()
    }

    pub(super) fn heard(&mut self, peer: PeerId, heard: Heard, log: &mut EventLog) {
        let Some(channel) = self.channels.get(&peer) else { return };
        let (pid, connects) = (channel.pid().unwrap_or(NOBODY), channel.connects);
        let now = self.now;
        match heard {
            Heard::Hello(session, shares) => {
                let shares = self.usable(channel, &shares);
                let own = self.own_shares(channel.pid().is_some());
                let taken = self.engine.receive(peer, &Message::Hello { pid, shares });
                let Some(channel) = self.channels.get_mut(&peer) else { return };
                match taken {
                    Ok(_) => channel.welcome(now, session, own),
                    Err(_) => channel.close(now, session),
                }
                let text = taken
                    .map_or_else(|e| e.to_string(), |_| format!("peer {} is connected", peer.0));
                log.event("fabric_mem", text);
            }
            Heard::Welcome(shares) => {
                let shares = self.usable(channel, &shares);
                let taken = self.engine.receive(peer, &Message::Welcome { pid, shares });
                let Some(channel) = self.channels.get_mut(&peer) else { return };
                match taken {
                    Ok(_) => channel.connected(now),
                    Err(_) => channel.close(now, channel.session()),
                }
                let answer = taken.map(|_| mem(MemAnswer::Peer(peer.0)));
                self.answer(peer, answer.map_err(|error| refused(&error)), log);
            }
            Heard::Goodbye => {
                let _ = self.engine.receive(peer, &Message::Goodbye);
                self.over(peer, connects, "it said goodbye", log);
            }
            Heard::Gone(why) => {
                let _ = self.engine.peer_lost(peer);
                self.over(peer, connects, &why, log);
            }
            Heard::Over => {
                let _ = self.engine.disconnect(peer);
                self.channels.remove(&peer);
                self.answer(peer, Err(Refused::because("disconnected")), log);
            }
        }
    }

    pub(super) fn over(&mut self, peer: PeerId, connects: bool, why: &str, log: &mut EventLog) {
        log.event("fabric_mem", format!("peer {} is gone: {why}", peer.0));
        match self.channels.get_mut(&peer) {
            Some(channel) if !connects => channel.listen(),
            _ => drop(self.channels.remove(&peer)),
        }
        let text = format!("the peer does not connect: {why}");
        self.answer(peer, Err(Refused::because(text)), log);
    }

    pub(super) fn answer(
        &mut self,
        peer: PeerId,
        answer: Result<Answer, Refused>,
        log: &mut EventLog,
    ) {
        if let Some(caller) = self.callers.remove(&peer) {
            log.answer(caller.number, answer);
        }
    }

    /// Opens a channel for each port that has accessed the window's mailbox.
    pub(super) fn meet(&mut self) {
        for pid in core::mem::take(self.came.get_mut()) {
            if !self.channels.values().any(|it| it.pid() == Some(pid)) {
                let peer = self.next_peer();
                let place = Place::Slot(pid, slot_of(pid));
                let channel = Channel::new(place, self.now, self.settings.silence, None);
                self.channels.insert(peer, channel);
            }
        }
    }

    /// Ends connection attempts whose time limit is over.
    pub(super) fn give_up(&mut self, now: Instant, log: &mut EventLog) {
        let late = self.callers.iter().filter(|(_, caller)| caller.until <= now);
        for peer in late.map(|(peer, _)| *peer).collect::<Vec<_>>() {
            let _ = self.engine.disconnect(peer);
            let failure = self.channels.remove(&peer).and_then(|channel| channel.failure);
            let why = failure.map_or_else(
                || "nobody answers in the mailbox".to_owned(),
                |failure| format!("the mailbox was {failure}"),
            );
            self.answer(
                peer,
                Err(Refused::unavailable(format!("not connected in time: {why}"))),
                log,
            );
        }
    }
}
