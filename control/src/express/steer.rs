//! Steering by the program of a port; where it cannot be attached, by the built-in one, which only steers.
//!
//! [`Steer`] implements [`Steering`]. It attaches in the driver, and binds the program to the interface where VLAN tags
//! come beside the data.
//!
//! Source: docs/express.md; Linux `Documentation/networking/xdp-rx-metadata.rst`.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use weft_dataplane::port::af_xdp::{
    Attach, BUCKETS, Builtin, LeftChecksum, Link, NOTE_LEN, NUMBER_LEN, Number, Program, Sees,
    Steering, Target, note,
};
use weft_dataplane::port::netdev;
use weft_dataplane::types::{PortId, PriSet};
use weft_xdp::Checksum;
use weft_xdp::layout::{self, Meta};

use super::Shared;

const _: () = assert!(Meta::LEN == NUMBER_LEN + NOTE_LEN && Meta::TAG == Number::MAGIC);
const _: () = assert!(layout::note::TAG == note::TAG && layout::note::SEES == note::SEES);
const _: () = assert!(layout::note::PARTIAL == note::PARTIAL);
const _: () = assert!(layout::BUCKETS == BUCKETS);

/// The program on one port, or its substitute.
pub struct Steer {
    port: u8,
    device: String,
    shared: Arc<Shared>,
    link: Option<Link>,
    /// The program that was loaded last, with the index of its interface; kept so that it can be attached again.
    program: Option<(u32, Program)>,
    /// The facts about frames that this program can tell.
    sees: Sees,
    /// Steers where the program cannot be attached.
    builtin: Builtin,
}

impl Steer {
    pub(super) fn new(port: PortId, device: &str, shared: Arc<Shared>) -> Self {
        let (port, device) = (port.get(), device.to_owned());
        let (sees, builtin) = (Sees::default(), Builtin::new());
        Self { port, device, shared, link: None, program: None, sees, builtin }
    }

    /// Attaches the program; the error is the reason for reports.
    fn attach_own(&mut self, target: Target, how: Attach) -> Result<Link, String> {
        if how == Attach::Generic {
            return Err("the driver has no XDP".to_owned());
        }
        let vlan_tag = target.vlan_tag(how);
        // A forwarded frame would leave without its tag.
        if vlan_tag.is_none() && !netdev::leaves_tags(&self.device) {
            return Err("VLAN tags that are not in the data cannot be read".to_owned());
        }
        // Loaded anew only for another interface: the verifier takes tens of milliseconds, during which the worker
        // stands still.
        let had = self.program.take().filter(|(index, _)| *index == target.index);
        let program = if let Some((_, program)) = had {
            program
        } else {
            let left = target.left_checksum(how);
            self.sees = Sees { tags: vlan_tag.is_some(), checksums: left.is_some() };
            self.load(target.index, vlan_tag, left.as_ref())
                .map_err(|error| format!("the kernel refuses the program: {error}"))?
        };
        let link = Link::attach(&program, target.index, true).map_err(|error| error.to_string());
        self.program = Some((target.index, program));
        link
    }

    /// Loads the program for interface `index`.
    fn load(
        &self,
        index: u32,
        vlan_tag: Option<u32>,
        left: Option<&LeftChecksum>,
    ) -> io::Result<Program> {
        let checksum = match left {
            Some(left) => Checksum::Seen(left.instructions()),
            // On devices on a bus all checksums are complete, as they come off the wire (docs/express.md "Checksums").
            None if netdev::is_hardware(&self.device) => Checksum::OfWire,
            None => Checksum::Unseen,
        };
        let code = self.shared.lock().xdp.program(self.port, vlan_tag, checksum);
        // The metadata that holds the tag is read by functions of the one driver, so the program is bound to its
        // interface.
        Program::load(&code, vlan_tag.map(|_| index))
    }

    /// Notes the interface that the program is attached to, or why it is not attached.
    fn note(&self, ifindex: Option<u32>, why_not: Option<String>) -> io::Result<()> {
        let mut state = self.shared.lock();
        let state = &mut *state;
        let Some(place) = state.ports.get_mut(usize::from(self.port)) else { return Ok(()) };
        place.not_in = why_not;
        let mut done = Ok(());
        // The interface is new after a device was deleted and created again: its old index may soon be that of another.
        if place.ifindex != ifindex {
            if let Some(old) = place.ifindex {
                done = state.xdp.forget(old);
            }
            if let Some(new) = ifindex {
                done = done.and(state.xdp.name(self.port, new));
            }
            place.ifindex = ifindex;
            // Whether it takes redirected frames is asked anew at the follower's next round.
            if core::mem::take(&mut place.is_output) {
                done = done.and(state.xdp.unset_output(self.port));
            }
        }
        done.map_err(io::Error::other)
    }
}

impl Steering for Steer {
    fn attach(&mut self, target: Target, how: Attach) -> io::Result<()> {
        // The old program goes first: an interface has room for one.
        self.detach();
        match self.attach_own(target, how) {
            Ok(link) => {
                self.link = Some(link);
                self.note(Some(target.index), None)
            }
            Err(why) => {
                // `detach` has taken the interface out of the maps; this keeps the reason for reports.
                self.note(None, Some(why))?;
                self.builtin.attach(target, how)
            }
        }
    }

    fn set_socket(&mut self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        if self.link.is_none() {
            return self.builtin.set_socket(queue, socket);
        }
        let queue = u8::try_from(queue).map_err(io::Error::other)?;
        let mut state = self.shared.lock();
        state.xdp.set_socket(self.port, queue, Some(socket)).map_err(io::Error::other)
    }

    fn is_attached(&self) -> bool {
        match &self.link {
            Some(link) => link.is_attached(),
            None => self.builtin.is_attached(),
        }
    }

    fn detach(&mut self) {
        self.link = None;
        self.builtin.detach();
        // Entries that refer to an interface which is gone have gone with it, so errors do not matter here.
        drop(self.note(None, None));
    }

    fn sees(&self) -> Option<Sees> {
        if self.link.is_some() { Some(self.sees) } else { self.builtin.sees() }
    }

    fn has_fast_path(&self) -> bool {
        true
    }

    fn numbers(&self) -> bool {
        self.link.is_some()
    }

    fn set_gate(&mut self, pris: PriSet) {
        self.shared.gates.set_open(self.port, pris.bits());
    }

    fn set_done(&mut self, queue: u32, Number { count, bucket }: Number) -> bool {
        // A queue that the program does not know hands nothing over by number.
        let Ok(queue) = u8::try_from(queue) else { return true };
        self.shared.gates.set_done(self.port, queue, bucket, count);
        self.shared.gates.handed(self.port, queue, bucket) == count
    }

    fn set_drain(&mut self, queues: u32, on: bool) {
        for queue in 0..u8::try_from(queues).unwrap_or(u8::MAX) {
            self.shared.gates.set_drain(self.port, queue, on);
        }
    }
}

impl Drop for Steer {
    fn drop(&mut self) {
        self.detach();
    }
}
