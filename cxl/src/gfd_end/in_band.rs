//! [`InBand`]: handler of the messages for a G-FAM device that come over its link.
//!
//! Source: docs/spec/wire-formats.md §3.8, §4.8.

use weft_dataplane::time::Instant;
use weft_parsers::tlp::{MctpPacket, PbrVdm, Pth};

use super::component::Device;
use crate::gfd::events::FM_LEN;
use crate::tlp_end::Outbox;
use crate::vdm::proxy::Stale;

/// Handler of messages for the device, mainly commands of hosts.
pub trait InBand: core::fmt::Debug + Send {
    /// Takes a message that came from `from.spid`; answers go into `out`. A command that it completes is carried out by
    /// [`crate::cci::serve`] on `device`, as [`crate::cci::Session::Proxy`] or `InBand`. False: it does not know the
    /// message.
    fn message(
        &mut self,
        now: Instant,
        device: &mut Device,
        from: Pth,
        message: &PbrVdm<'_>,
        out: &mut Outbox,
    ) -> bool;

    /// Takes a packet of an MCTP tunnel, like [`InBand::message`]. DPID `FFF` is the device before it has a PID.
    fn packet(
        &mut self,
        _now: Instant,
        _device: &mut Device,
        _from: Pth,
        _packet: &MctpPacket<'_>,
        _out: &mut Outbox,
    ) -> bool {
        false
    }

    /// Sends a notification (0107h) with this payload to the fabric manager, which does not answer it; false if the
    /// queue was full.
    fn notify(&mut self, _device: &Device, _payload: &[u8; FM_LEN]) -> bool {
        true
    }

    /// Reset of the device: drops all that is under way.
    fn reset(&mut self) {}

    /// How many messages were dropped because they belong to no active command, and the last of them, oldest first.
    fn stale(&self) -> (u64, Vec<Stale>) {
        (0, Vec::new())
    }

    /// Sends messages that are due; returns when the next one is.
    fn poll(&mut self, _now: Instant, _device: &mut Device, _out: &mut Outbox) -> Option<Instant> {
        None
    }
}
