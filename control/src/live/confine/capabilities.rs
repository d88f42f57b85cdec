//! Capabilities: those that a switch needs, and giving up all others.
//!
//! A [`Config`] → [`CapabilitySet`]. The sets are the calling thread's, so they are changed before it makes others.
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

/// The first TCP port that any process may listen at; those below take `CAP_NET_BIND_SERVICE`.
const PORT_UNPRIVILEGED: u16 = 1_024;

/// Capabilities to open a port of `kind`, and to open it again when its interface comes back. Programs on a veth read
/// the kernel's buffers, and the program of the fast path compares pointers: both take `CAP_PERFMON`.
fn of_kind(kind: DeviceKind) -> CapabilitySet {
    match kind {
        DeviceKind::Auto | DeviceKind::AfXdp => {
            CapabilitySet::NET_ADMIN
                | CapabilitySet::NET_RAW
                | CapabilitySet::BPF
                | CapabilitySet::IPC_LOCK
                | CapabilitySet::PERFMON
        }
        // `BPF` is for the program behind the tap by which super-frames of tunnels leave. Without it they leave frame
        // by frame.
        DeviceKind::AfPacket => {
            CapabilitySet::NET_RAW | CapabilitySet::NET_ADMIN | CapabilitySet::BPF
        }
        DeviceKind::Tap => CapabilitySet::NET_ADMIN,
        DeviceKind::Null | DeviceKind::Pcap | DeviceKind::Pipe => CapabilitySet::empty(),
        DeviceKind::Dpdk => CapabilitySet::all(),
    }
}

/// Capabilities that the switch of `config` needs as long as it runs.
#[must_use]
pub fn needed(config: &Config) -> CapabilitySet {
    let ports = config.run.ports.iter().map(|port| of_kind(port.kind));
    // Port 0 means any port, which the kernel takes from those above.
    let low = |port: u16| (1..PORT_UNPRIVILEGED).contains(&port);
    let cci = config.fabric.as_ref().and_then(|fabric| Some(&fabric.cci.as_ref()?.place));
    // The kernel's MCTP takes one capability for binding a message type, and one for sending.
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

/// Capabilities that a host or an endpoint on `ports`, each `[KIND:]DEVICE`, needs as long as it runs.
pub(super) fn of_ports<'a>(ports: impl IntoIterator<Item = &'a str>) -> CapabilitySet {
    let kind = |port| if is_tap(port) { DeviceKind::Tap } else { DeviceKind::AfPacket };
    let all = ports.into_iter().fold(CapabilitySet::empty(), |all, port| all | of_kind(kind(port)));
    // `BPF` is for super-frames that are forwarded; hosts and endpoints forward nothing.
    all - CapabilitySet::BPF
}

/// Takes every capability out of the bounding set, where the process may. Where it may not, an executed program gains
/// nothing either, as `NO_NEW_PRIVS` is set.
pub(super) fn empty_bounding_set() {
    for number in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1 << number);
        if remove_capability_from_bounding_set(one).is_err() {
            return; // not allowed, or the kernel knows no more of them
        }
    }
}

/// Keeps the capabilities of `needed` that the thread has, and no other.
pub(super) fn keep(needed: CapabilitySet) -> io::Result<()> {
    // An ambient capability would pass to an executed program.
    clear_ambient_capability_set()?;
    let has = capabilities(None)?.permitted;
    let kept = has & needed;
    let inheritable = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable })
}

/// Gives up every capability but `needed`, and what an executed program might gain. To be called before any thread is
/// made, as the sets are each thread's own.
///
/// # Errors
/// The kernel's answer.
pub fn keep_only(needed: CapabilitySet) -> std::io::Result<()> {
    rustix::thread::set_no_new_privs(true)?;
    empty_bounding_set();
    Ok(keep(needed)?)
}
