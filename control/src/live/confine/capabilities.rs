//! Capabilities: which ones a switch needs, and giving up all others.
//!
//! A [`Config`] → [`CapabilitySet`]; the calling thread's sets, before it makes others.
//!
//! Source: capabilities(7); docs/privileges.md, whose table says what each kind of port needs.

use rustix::io;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities,
};
use weft_config::choice::DeviceKind;
use weft_config::places::{Listen, MctpPlace};
use weft_config::resolve::Config;

use weft_lab::netdev::is_tap;

/// TCP ports below this one take a capability.
const PORT_UNPRIVILEGED: u16 = 1_024;

/// What a port of `kind` needs to be opened, and opened again when its interface comes back. Programs on a
/// veth read the kernel's buffers, and that of express compares pointers, for which `PERFMON` is needed.
fn of_kind(kind: DeviceKind) -> CapabilitySet {
    match kind {
        DeviceKind::Auto | DeviceKind::AfXdp => {
            CapabilitySet::NET_ADMIN
                | CapabilitySet::NET_RAW
                | CapabilitySet::BPF
                | CapabilitySet::IPC_LOCK
                | CapabilitySet::PERFMON
        }
        // For the program behind the tap that super-frames of tunnels leave by; without it they leave frame by frame.
        DeviceKind::AfPacket => {
            CapabilitySet::NET_RAW | CapabilitySet::NET_ADMIN | CapabilitySet::BPF
        }
        DeviceKind::Tap => CapabilitySet::NET_ADMIN,
        DeviceKind::Null | DeviceKind::Pcap | DeviceKind::Pipe => CapabilitySet::empty(),
        DeviceKind::Dpdk => CapabilitySet::all(),
    }
}

/// What the switch of `config` needs as long as it runs.
#[must_use]
pub fn needed(config: &Config) -> CapabilitySet {
    let ports = config.run.ports.iter().map(|port| of_kind(port.kind));
    let low = |port: u16| (1..PORT_UNPRIVILEGED).contains(&port);
    let cci = config.fabric.as_ref().and_then(|fabric| Some(&fabric.cci.as_ref()?.place));
    // Linux's MCTP takes one capability to have a type of messages, and one to send.
    let (mctp, bus) = match config.fabric.as_ref().and_then(|fabric| Some(fabric.mctp?.place)) {
        Some(MctpPlace::Tcp(addr)) => (Some(addr), CapabilitySet::empty()),
        Some(MctpPlace::Kernel(_)) => {
            (None, CapabilitySet::NET_BIND_SERVICE | CapabilitySet::NET_RAW)
        }
        None => (None, CapabilitySet::empty()),
    };
    let addrs = [config.run.metrics, config.run.sai, mctp];
    let serves_low = addrs.into_iter().flatten().any(|addr| low(addr.port()))
        || matches!(cci, Some(Listen::Tcp(addr)) if low(addr.port()));
    let tcp = if serves_low { CapabilitySet::NET_BIND_SERVICE } else { CapabilitySet::empty() };
    ports.fold(tcp | bus, |all, one| all | one)
}

/// What a host or an endpoint on `ports`, each `[KIND:]DEVICE`, needs as long as it runs.
pub(super) fn of_ports<'a>(ports: impl IntoIterator<Item = &'a str>) -> CapabilitySet {
    let kind = |port| if is_tap(port) { DeviceKind::Tap } else { DeviceKind::AfPacket };
    let all = ports.into_iter().fold(CapabilitySet::empty(), |all, port| all | of_kind(kind(port)));
    all - CapabilitySet::BPF // they forward nothing
}

/// Takes every capability out of the bounding set, where the process may: without it a program that
/// is executed gains nothing either, as `NO_NEW_PRIVS` is set.
pub(super) fn empty_bounding_set() {
    for number in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1 << number);
        if remove_capability_from_bounding_set(one).is_err() {
            return; // not allowed, or the kernel knows no more of them
        }
    }
}

/// Keeps those of `needed` that the thread has, and no other.
pub(super) fn keep(needed: CapabilitySet) -> io::Result<()> {
    clear_ambient_capability_set()?;
    let has = capabilities(None)?.permitted;
    let kept = has & needed;
    let inheritable = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable })
}

/// Gives up every capability but those `needed`, and what a program that is executed might gain; to be
/// called before any thread is made, as they are each thread's own.
///
/// # Errors
/// The kernel's answer.
pub fn keep_only(needed: CapabilitySet) -> std::io::Result<()> {
    rustix::thread::set_no_new_privs(true)?;
    empty_bounding_set();
    Ok(keep(needed)?)
}
