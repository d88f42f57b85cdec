//! Enums that the configuration names by words.
//!
//! [`Choice`] gives an enum its words; the table of parameters has [`Choice::NAMES`] as what a key accepts, and
//! [`Choice::from_name`] reads one. A value has its word in one row of this file.
//!
//! Source: docs/configuration.md.

use weft_dataplane::config::{EcnMark, Sharing, StormAction};
use weft_dataplane::egress::Weighted;
use weft_dataplane::port::af_xdp::AttachTo;
use weft_parsers::fabric::RgtMode;
use weft_parsers::tlp::Mode;
use weft_parsers::{AfhMode, Gen2Order, PriSource};

/// A type whose values have words in the configuration.
pub trait Choice: Copy + 'static {
    /// The words, in the order of the documentation.
    const NAMES: &'static [&'static str];
    /// What they mean, in the same order.
    const ALL: &'static [Self];

    /// What `name` means; nothing if it is no word of this type.
    #[must_use]
    fn from_name(name: &str) -> Option<Self> {
        let at = Self::NAMES.iter().position(|known| *known == name)?;
        Self::ALL.get(at).copied()
    }
}

/// Rows of a word and what it means. A variant of the enum that has no row does not compile, unless it is listed as one
/// that no configuration names.
macro_rules! choice {
    ($type:ty: $($name:literal => $variant:ident),+ $(; unnamed $($unnamed:ident),+)?) => {
        impl Choice for $type {
            const NAMES: &'static [&'static str] = &[$($name),+];
            const ALL: &'static [Self] = &[$(<$type>::$variant),+];
        }

        const _: fn($type) = |value| match value {
            $(<$type>::$variant => (),)+
            $($(<$type>::$unnamed => (),)+)?
        };
    };
}

/// How an idle worker waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poll {
    /// It sleeps until something comes.
    Adaptive,
    /// It spins.
    Busy,
}

/// Least level of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// What went wrong.
    Error,
    /// What is doubtful, too.
    Warn,
    /// What happened, too.
    Info,
    /// All.
    Debug,
}

/// Kind of device behind a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceKind {
    /// A network interface, through AF_XDP if that can be had, else through a packet socket.
    Auto,
    /// A network interface, through AF_XDP sockets.
    AfXdp,
    /// A network interface, through a packet socket.
    AfPacket,
    /// A tap that weft makes.
    Tap,
    /// Takes everything, gives nothing.
    Null,
    /// Capture files.
    Pcap,
    /// A device of DPDK's.
    Dpdk,
    /// The other end is in this process: the CPU port's; no configuration names it.
    Pipe,
}

/// What the device behind a port is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceIs {
    /// An interface of the machine: one port at most has it, of whatever kind; it has an address of its own.
    Interface,
    /// An interface that the port makes: one port at most of its kind has it; it has an address of its own.
    Made,
    /// Something that has no address that the kernel knows; one port at most of its kind has it.
    Other,
    /// Nothing: any number of ports may say the same.
    Nothing,
}

impl DeviceKind {
    /// What a port of this kind has behind it.
    #[must_use]
    pub const fn device(self) -> DeviceIs {
        match self {
            Self::Auto | Self::AfXdp | Self::AfPacket => DeviceIs::Interface,
            Self::Tap => DeviceIs::Made,
            Self::Pcap | Self::Dpdk | Self::Pipe => DeviceIs::Other,
            Self::Null => DeviceIs::Nothing,
        }
    }
}

/// Form of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// How a port treats VLAN tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VlanMode {
    /// Left alone.
    Transparent,
    /// One VLAN, untagged.
    Access,
    /// Several VLANs, tagged.
    Trunk,
}

/// What a port's link carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleName {
    /// Ethernet.
    L2,
    /// TLPs, from and to a host.
    Usp,
    /// TLPs, from and to a device.
    Dsp,
    /// TLPs, from and to another switch.
    Fport,
}

/// How inputs' priorities are served by the crossbar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DisciplineName {
    /// The highest first.
    Strict,
    /// By weights.
    Weighted,
}

/// What decides about PAUSE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PfcModeName {
    /// An ingress group's limit.
    IngressPg,
    /// An output queue's depth.
    EgressQueue,
}

/// What becomes of frames to stations that are not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownUnicast {
    /// They go to all ports of their VLAN.
    Flood,
    /// They are dropped.
    Drop,
}

/// What is done about a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopAction {
    /// The port is blocked.
    Block,
    /// It is told.
    Alarm,
}

/// When a frame goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardingMode {
    /// When it is whole.
    StoreAndForward,
    /// While it comes; refused.
    CutThrough,
}

/// What stops a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowControl {
    /// PAUSE of a class.
    Pfc,
    /// Nothing.
    None,
    /// Credits; refused.
    Cbfc,
}

/// Who may command a switch by MCTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CciOwner {
    /// Who claims it, as everywhere.
    Claim,
    /// Whoever connects, until a manager claims it elsewhere.
    First,
}

/// What a host of `weft traffic` sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostFormat {
    /// TYPE1 in UDP.
    Standard,
    /// AFH_GEN1.
    Gen1,
    /// `AFH_GEN2_16b`.
    Gen2,
    /// AFH_Lite.
    Lite,
    /// Plain Ethernet.
    Ethernet,
}

impl Choice for PriSource {
    const NAMES: &'static [&'static str] = Self::NAMES;
    const ALL: &'static [Self] = &Self::ALL;
}

choice!(AfhMode: "auto" => Auto, "none" => None, "gen1" => Gen1, "gen2" => Gen2, "lite" => Lite);
choice!(Gen2Order: "slap" => Slap, "as_documented" => AsDocumented);
choice!(VlanMode: "transparent" => Transparent, "access" => Access, "trunk" => Trunk);
choice!(Weighted: "wrr" => Wrr, "dwrr" => Dwrr);
choice!(AttachTo: "native" => Native, "generic" => Generic, "any" => Any);
choice!(DeviceKind:
    "auto" => Auto, "af_xdp" => AfXdp, "af_packet" => AfPacket, "tap" => Tap, "null" => Null,
    "pcap" => Pcap, "dpdk" => Dpdk; unnamed Pipe);
choice!(LogLevel: "error" => Error, "warn" => Warn, "info" => Info, "debug" => Debug);
choice!(LogFormat: "text" => Text, "json" => Json);
choice!(Poll: "adaptive" => Adaptive, "busy" => Busy);
choice!(Sharing: "dt" => Dt, "static" => Static);
choice!(DisciplineName: "strict" => Strict, "weighted" => Weighted);
choice!(PfcModeName: "ingress-pg" => IngressPg, "egress-queue" => EgressQueue);
choice!(StormAction: "drop" => Drop, "forward" => Forward);
choice!(EcnMark: "ip" => Ip, "standard" => Standard);
choice!(UnknownUnicast: "flood" => Flood, "drop" => Drop);
choice!(LoopAction: "block" => Block, "alarm" => Alarm);
choice!(ForwardingMode: "store-and-forward" => StoreAndForward, "cut-through" => CutThrough);
choice!(FlowControl: "pfc" => Pfc, "none" => None, "cbfc" => Cbfc);
choice!(HostFormat:
    "standard" => Standard, "gen1" => Gen1, "gen2" => Gen2, "lite" => Lite, "ethernet" => Ethernet);
choice!(RoleName: "l2" => L2, "usp" => Usp, "dsp" => Dsp, "fport" => Fport);
choice!(CciOwner: "claim" => Claim, "first" => First);
choice!(Mode: "flit" => Flit, "non-flit" => NonFlit);
choice!(RgtMode:
    "random" => Random, "congestion-avoiding" => CongestionAvoiding;
    unnamed AdvancedCongestionAvoiding);

#[cfg(test)]
mod tests {
    use super::*;

    fn words_are_read<T: Choice + PartialEq + std::fmt::Debug>() {
        assert_eq!(T::NAMES.len(), T::ALL.len());
        for (index, (name, value)) in T::NAMES.iter().zip(T::ALL).enumerate() {
            assert_eq!(T::from_name(name), Some(*value));
            assert!(!T::NAMES[..index].contains(name), "{name} twice");
            assert!(!T::ALL[..index].contains(value), "{value:?} twice");
        }
        for name in ["", " ", "Auto", "nothing", "auto\0"] {
            assert_eq!(T::from_name(name), None, "{name:?}");
        }
    }

    #[test]
    fn each_word_means_one_value_and_no_other_text_means_any() {
        words_are_read::<AfhMode>();
        words_are_read::<PriSource>();
        words_are_read::<VlanMode>();
        words_are_read::<Weighted>();
        words_are_read::<AttachTo>();
        words_are_read::<DeviceKind>();
        words_are_read::<LogLevel>();
        words_are_read::<LogFormat>();
        words_are_read::<HostFormat>();
        words_are_read::<RoleName>();
        words_are_read::<RgtMode>();
        words_are_read::<CciOwner>();
    }
}
