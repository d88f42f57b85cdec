//! Who takes the messages for a G-FAM device that come over its link.
//!
//! [`InBand`]: a message or a packet of a tunnel in, answers into the outbox.
//!
//! Source: docs/spec/wire-formats.md §3.8, §4.8.

use weft_dataplane::time::Instant;
use weft_parsers::tlp::{MctpPacket, PbrVdm, Pth};

use super::component::Device;
use crate::gfd::events::FM_LEN;
use crate::tlp_end::Outbox;

/// What messages for the device lead to, commands of hosts first of all.
pub trait InBand: core::fmt::Debug + Send {
    /// Takes a message that came from `from.spid`; answers go into `out`. A command that it makes whole is carried out
    /// by [`crate::cci::serve`] on `device`, as [`crate::cci::Session::Proxy`] or `InBand`. False: it knows no such
    /// message.
    fn message(
        &mut self,
        now: Instant,
        device: &mut Device,
        from: Pth,
        message: &PbrVdm<'_>,
        out: &mut Outbox,
    ) -> bool;

    /// Takes a packet of a tunnel; as [`InBand::message`]. DPID `FFF` is the device before it has a PID.
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

    /// Tells the fabric manager of something, by a notification (0107h) with this payload, which nobody answers; false if there
    /// was no place for it.
    fn notify(&mut self, _device: &Device, _payload: &[u8; FM_LEN]) -> bool {
        true
    }

    /// A reset of the device: nothing of what was under way goes on.
    fn reset(&mut self) {}

    /// Sends what is due; when there is something to do next.
    fn poll(&mut self, _now: Instant, _device: &mut Device, _out: &mut Outbox) -> Option<Instant> {
        None
    }
}
