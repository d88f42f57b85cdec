//! Loops: what is done when one is suspected, and when it is found.
//!
//! A suspicion → probes by the ports in question → one that comes in by a port of this switch: that port is
//! blocked until a time; there is no STP.
//!
//! Units: [`Instant`].
//! Source: docs/spec/pipeline.md §3 "Loops".
//!
//! The port by which a probe comes in is blocked, not the one that sent it: whoever makes it come in there is behind that
//! port. So a neighbour that speaks with the addresses of others, repeats their frames or hands probes on to somebody else
//! has only his own ports blocked.

use weft_base::sync::Ordering;
use weft_parsers::loop_probe::{self, LoopProbe};
use weft_parsers::{AddrKey, Head, Tci, Vid, parse_head};

use super::context::Context;
use super::input_lane::InputLane;
use super::lane::Lane;
use super::output_lane::OutputLane;
use super::switch_core::LoopFound;
use crate::batch::Batch;
use crate::config::PortConfig;
use crate::desc::Desc;
use crate::loops::digest;
use crate::time::{Instant, Span};
use crate::trace::{Event, Tracer};
use crate::types::{PortId, PortSet};
use crate::vlan::{Arrival, TagOp};

/// How long the ends of a loop that was cut learn nothing: frames that went round are still under way.
const SETTLE: Span = Span::from_ms(1_000);
/// Opcode that traces show for a probe that ended here: its EtherType.
const TRACED: u16 = weft_parsers::ether_type::LOOPBACK;

impl Lane {
    /// Opens ports again whose time is over, or all if loops no longer block any.
    pub(super) fn unblock<T: Tracer>(&self, now: Instant, tracer: &mut T) {
        let core = &self.ctx.core;
        let never = self.ctx.snapshot.config.forward.loop_block.is_none();
        for port in core.blocked().iter() {
            if now < core.blocks.until(port) && !never {
                continue;
            }
            let bit = PortSet::only(port).bits();
            let before = core.blocks.ports.fetch_and(!bit, Ordering::AcqRel);
            if T::ON && before & bit != 0 {
                tracer.event(now, Event::Block { port: port.get(), blocked: false });
            }
        }
    }

    /// Sends the probes that are due.
    pub(super) fn send_probes(&mut self, now: Instant) {
        let asked = self.ctx.core.probes.asked();
        if asked.is_empty() && !self.probing {
            return;
        }
        self.probing = false;
        for lane in &mut self.outputs {
            if asked.contains(lane.port) {
                self.ctx.core.probes.take(lane.port);
                if lane.probes.ask(now) {
                    self.ctx.core.probes.renew_nonce(lane.port, now);
                }
            }
            if lane.probes.due().is_some_and(|at| at <= now) {
                lane.send_probe(&mut self.ctx, now);
            }
            self.probing |= lane.probes.due().is_some();
        }
    }
}

impl OutputLane {
    /// Puts a probe before all frames that wait, if the port can send one.
    fn send_probe(&mut self, ctx: &mut Context, now: Instant) {
        let Context { core, snapshot, .. } = &*ctx;
        let vid = core.probes.vid(self.port);
        let may = self.up
            && !self.tx_off
            && core.forwarding().contains(self.port)
            && snapshot.probed.contains(self.port)
            && snapshot.vlan.members(vid).contains(self.port);
        let Some(config) = snapshot.config.ports.get(self.port.index()).filter(|_| may) else {
            self.probes.stop();
            return;
        };
        self.probes.sent(now);
        let tag = match snapshot.vlan.egress(self.port, vid, Arrival::of(None)) {
            TagOp::Insert => Some((config.parse.tpids.first(), Tci(vid.get()))),
            _ => None,
        };
        let (src, port, nonce) =
            (config.parse.port_mac, self.port.get(), core.probes.nonce(self.port));
        let probe = LoopProbe { src, port, nonce };
        if self.pending.is_full() {
            return; // the next one of the series may find room
        }
        let Some(mut desc) = ctx.bufs.alloc_control() else { return };
        ctx.bufs.set_len(&mut desc, loop_probe::FRAME_LEN);
        if let Some(out) = ctx.bufs.bytes_mut(&mut desc).and_then(|b| b.first_chunk_mut()) {
            probe.emit(tag, out);
        }
        desc.set_input(self.port);
        self.pending.insert(self.pending_control, desc);
        self.pending_control += 1;
        self.backlog = true;
        ctx.core.probes.set_sent(self.port, now);
        ctx.stats.port[self.port].loop_probes.add(1);
    }
}

impl InputLane {
    /// Looks at one frame of a burst now and then: whether frames come in again and again.
    #[inline]
    pub(super) fn sample(&mut self, ctx: &Context, now: Instant, batch: &Batch) {
        if self.repeats.is_due(now) && ctx.snapshot.probed.contains(self.port) {
            self.look_at(ctx, now, batch);
        }
    }

    #[cold]
    fn look_at(&mut self, ctx: &Context, now: Instant, batch: &Batch) {
        let Some(desc) = batch.iter().next() else { return };
        if !self.repeats.note(digest(ctx.bufs.bytes(desc)), now) {
            return;
        }
        let Some(config) = ctx.snapshot.config.ports.get(self.port.index()) else { return };
        let Ok(head) = parse_head(ctx.bufs.head(desc), desc.len(), &config.parse) else { return };
        if head.mac_control_opcode().is_some() {
            return; // PAUSE is refreshed, and ends here
        }
        if let Ok(vid) = ctx.snapshot.vlan.ingress(self.port, head.tci()) {
            ctx.suspect(ctx.snapshot.vlan.members(vid), vid);
        }
    }
}

impl Context {
    /// Frames of VLAN `vid` may go round between some of `ports`: asks for probes there.
    pub(super) fn suspect(&self, ports: PortSet, vid: Vid) {
        let links = &self.snapshot.links;
        let all = ports.iter().fold(PortSet::EMPTY, |all, port| all.or(links.members(port)));
        self.core.probes.ask(all.and(self.snapshot.probed), vid);
    }

    /// The port whose own address this is: no station speaks with it.
    pub(super) fn port_with(&self, address: AddrKey) -> Option<PortId> {
        let of = |port: &PortConfig| AddrKey::ethernet(port.parse.port_mac) == address;
        let at = self.snapshot.config.ports.iter().position(of)?;
        PortId::new(at).filter(|&port| self.snapshot.probed.contains(port))
    }

    /// The probe that a frame is, if it says that a port of this switch sent it, and that port.
    pub(super) fn own_probe(&self, desc: &Desc, head: &Head) -> Option<(PortId, LoopProbe)> {
        let probe = LoopProbe::parse(self.bufs.bytes(desc), head.tagged()).ok()?;
        let sender = PortId::new(usize::from(probe.port))?;
        let config = self.snapshot.config.ports.get(sender.index())?;
        let is_own = probe.src == config.parse.port_mac && self.snapshot.probed.contains(sender);
        is_own.then_some((sender, probe))
    }

    /// Takes a probe in that a port of this switch sent: what leaves by that one comes in here.
    #[cold]
    pub(super) fn take_probe<T: Tracer>(
        &mut self,
        now: Instant,
        head: &Head,
        desc: Desc,
        tracer: &mut T,
    ) {
        let port = desc.input();
        self.stats.port[port].consumed.add(1);
        if T::ON {
            let frame = self.bufs.trace_id(&desc);
            tracer.event(now, Event::Consume { frame, port: port.get(), opcode: TRACED });
        }
        let probe = self.own_probe(&desc, head);
        self.bufs.free(desc);
        match probe {
            Some((sender, probe)) if self.core.probes.proves(sender, probe.nonce, now) => {
                self.loop_found(now, sender, port, tracer);
            }
            // A neighbour guesses, or has recorded it: it proves nothing, and goes no further.
            _ => self.stats.port[port].loop_probes_bad.add(1),
        }
    }

    /// What leaves by `sender` comes in by `came`: blocks that, unless the loop is cut already.
    fn loop_found<T: Tracer>(&self, now: Instant, sender: PortId, came: PortId, tracer: &mut T) {
        let links = &self.snapshot.links;
        let [sender, came] = [sender, came].map(|port| links.leader(port));
        let ends = links.members(sender).or(links.members(came));
        if let Some(span) = self.snapshot.config.forward.loop_block {
            if !self.block(now, span, links.members(came), ends, tracer) {
                return;
            }
            self.core.set_blocked_for(links.members(came), Some(sender));
            for end in [sender, came] {
                self.core.blocks.settle(end, now + SETTLE);
                self.core.fdb.flush_port(end);
            }
        }
        self.core.probes.tell(LoopFound { sender, came });
    }

    /// A station moves between `home`, where it was, and `other` too often. Where probes can tell, they decide; else
    /// `other` is blocked, unless one of them is, so that the loop is cut already.
    pub(super) fn cut_loop<T: Tracer>(
        &self,
        now: Instant,
        home: PortId,
        other: PortId,
        vid: Vid,
        tracer: &mut T,
    ) {
        let ports = PortSet::only(home).or(PortSet::only(other));
        if ports.without(self.snapshot.probed).is_empty() {
            self.suspect(ports, vid);
            return;
        }
        let Some(span) = self.snapshot.config.forward.loop_block else { return };
        let links = &self.snapshot.links;
        if self.block(now, span, links.members(other), ports, tracer) {
            self.core.set_blocked_for(links.members(other), None);
            // Stations may be behind other ports than they seem to be, as the loop shows, and not those that moved alone.
            self.core.fdb.flush_movers(home);
            self.core.fdb.flush_port(other);
        }
    }

    /// Blocks `ports`, unless one of `ends` is blocked; whether it did.
    fn block<T: Tracer>(
        &self,
        now: Instant,
        span: Span,
        ports: PortSet,
        ends: PortSet,
        tracer: &mut T,
    ) -> bool {
        if !self.core.block(ports, ends, now + span) {
            return false;
        }
        for port in ports.iter() {
            self.stats.port[port].loop_blocks.add(1);
            if T::ON {
                tracer.event(now, Event::Block { port: port.get(), blocked: true });
            }
        }
        true
    }
}
