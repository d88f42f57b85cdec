//! The host's end of Lightweight Notification as TLPs: a memory request becomes a [`MemRequest`] and its answer a
//! completion with the LN bit; an [`LnMessage`] becomes a `MsgD`.
//!
//! Source: PCIe 5.0 section 6.21; docs/spec/wire-formats.md §3.3.

use weft_parsers::fabric::{Bdf, Hpa};
use weft_parsers::tlp::{At, Kind, Mode, Status, Tlp, TlpRepr, ln as wire};

use super::HostMemory;
use crate::completer::{CompleterSpec, Send, Served, Target, load, store};
use crate::ln::lnc::AddressType;
use crate::ln::{
    Access, LnMessage, Lnc, MemRequest, Origin, ReadAnswer, RootPort, Route, WriteAnswer,
};

/// The one port of a host.
pub(super) const PORT: RootPort = RootPort(0);

/// Converts a memory request for the LN completer.
fn request_of(tlp: &Tlp<'_>, addr: Hpa) -> MemRequest {
    MemRequest {
        from: Origin { port: PORT, requester: tlp.requester() },
        flit: tlp.mode() == Mode::Flit,
        ln: tlp.ln(),
        addr,
        dwords: tlp.length_dw(),
        first_be: tlp.first_be(),
        last_be: tlp.last_be(),
        at: match tlp.at() {
            At::Untranslated => AddressType::Untranslated,
            At::TranslationRequest => AddressType::TranslationRequest,
            At::Translated => AddressType::Translated,
            At::Reserved => AddressType::Reserved,
        },
    }
}

/// Serves a memory request together with its effect on registrations. The LN completer handles well-formed reads and
/// writes; every other request that writes counts as an update.
pub(super) fn serve(
    lnc: &mut Lnc,
    completer: CompleterSpec,
    me: Bdf,
    memory: &mut HostMemory,
    tlp: &Tlp<'_>,
    send: &mut Send<'_>,
) -> Served {
    let addr = tlp.addr().unwrap_or_default();
    let kind = tlp.kind();
    let other_at = matches!(tlp.at(), At::TranslationRequest | At::Reserved);
    if !matches!(kind, Kind::MemRead | Kind::MemWrite) || (other_at && !tlp.ln()) {
        let served = completer.serve(tlp, me, memory, send);
        if served == Served::Done && kind.has_data() {
            //= PCIe 5.0 section 6.21: whatever changes a line is told
            lnc.on_update(addr, tlp.access_len());
        }
        return served;
    }
    // Before the LN completer: an address without memory must not become a registration.
    if !memory.holds(addr.0, u64::from(tlp.length_dw()) * 4) {
        completer.refuse(tlp, Status::UnsupportedRequest, me, send);
        return Served::Unsupported;
    }
    // Nothing is written, so no watcher is notified.
    if tlp.ep() && tlp.kind().has_data() {
        return Served::Poisoned;
    }
    let request = request_of(tlp, addr);
    if tlp.kind() == Kind::MemWrite {
        let access = || if store(tlp, addr.0, memory) { Access::Done } else { Access::Failed };
        return match lnc.on_write(&request, access) {
            WriteAnswer::Done => Served::Done,
            WriteAnswer::Malformed => Served::Unsupported,
            WriteAnswer::CompleterAbort | WriteAnswer::Failed => Served::Aborted,
        };
    }
    let mut data = vec![0; usize::from(tlp.length_dw()) * 4];
    let access = || match load(tlp, addr.0, memory) {
        Some(bytes) => {
            data = bytes;
            Access::Done
        }
        None => Access::Failed,
    };
    match lnc.on_read(&request, access) {
        ReadAnswer::Complete { ln } => {
            completer.answer(tlp, me, &data, ln, send);
            Served::Done
        }
        ReadAnswer::CompleterAbort | ReadAnswer::Failed => {
            completer.refuse(tlp, Status::CompleterAbort, me, send);
            Served::Aborted
        }
        ReadAnswer::Malformed => {
            completer.refuse(tlp, Status::UnsupportedRequest, me, send);
            Served::Unsupported
        }
    }
}

/// Sends an LN Message; it is posted, and stays behind earlier posted requests of its class.
pub(super) fn send(message: &LnMessage, me: Bdf, send: &mut Send<'_>) {
    let dest = match message.to {
        Route::Directed(dest) => Some(dest),
        Route::Broadcast => None,
    };
    let reason = match message.nr & 3 {
        0 => wire::Reason::Updated,
        1 => wire::Reason::Evicted,
        _ => wire::Reason::EvictedAll,
    };
    let message = wire::LnMessage { dest, reason, line: message.addr };
    let payload = message.payload();
    let repr: TlpRepr<'_> = message.repr(me, &payload);
    send(&repr);
}
