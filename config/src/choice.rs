//! Enums that the configuration names by words.
//!
//! [`Choice`] gives an enum its words: the table of parameters takes [`Choice::NAMES`] as the words that a key
//! accepts, and [`Choice::from_name`] reads one. Each word stands in one row: of this file, or for `PriSource` of
//! `weft_parsers`.
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
    /// The words, in the order in which the documentation lists them.
    const NAMES: &'static [&'static str];
    /// The values of [`Self::NAMES`], in the same order.
    const ALL: &'static [Self];

    /// The value that is called `name`; `None` if no value is.
    #[must_use]
    fn from_name(name: &str) -> Option<Self> {
        let at = Self::NAMES.iter().position(|known| *known == name)?;
        Self::ALL.get(at).copied()
    }
}

/// Rows of a word and its value. A variant without a row does not compile, unless it is listed as one that no
/// configuration names.
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
    /// It sleeps until there is something to do.
    Adaptive,
    /// It never sleeps, and takes its processor whole.
    Busy,
}

/// Least level of the messages that are written; each level includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Failures only.
    Error,
    /// Also suspicious conditions that the switch can live with.
    Warn,
    /// Also ordinary events, such as a link that comes up.
    Info,
    Debug,
}

/// Kind of device behind a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceKind {
    /// A network interface, through AF_XDP or a packet socket, whichever suits it (docs/spec/pipeline.md §11).
    Auto,
    /// A network interface, through AF_XDP sockets.
    AfXdp,
    /// A network interface, through a packet socket.
    AfPacket,
    /// A tap that weft makes.
    Tap,
    /// Discards all frames sent to it, and never receives one.
    Null,
    Pcap,
    Dpdk,
    /// The CPU port: its other end is in this process. No configuration names it.
    Pipe,
}

/// The kind of thing behind a port, which decides whether two ports may name the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceIs {
    /// An interface of the machine, with an address of its own; at most one port may name it, whatever the ports'
    /// kinds.
    Interface,
    /// An interface that the port creates, with an address of its own; at most one port of its kind may name it.
    Made,
    /// Something without an address that the kernel knows; at most one port of its kind may name it.
    Other,
    /// Nothing: any number of ports may give the same name.
    Nothing,
}

impl DeviceKind {
    /// The kind of thing behind a port of this kind.
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

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Plain lines for people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// How a port treats VLAN tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VlanMode {
    /// Tags pass unchanged.
    Transparent,
    /// One VLAN, whose frames are untagged on the link.
    Access,
    /// Several VLANs, tagged on the link; at most one of them is untagged.
    Trunk,
}

/// Role of a port, by the traffic of its link; `L2` is Ethernet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleName {
    L2,
    /// TLPs, from and to a host.
    Usp,
    /// TLPs, from and to a device.
    Dsp,
    /// TLPs, from and to another switch.
    Fport,
}

/// How the crossbar serves the priorities of inputs: highest first, or by weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DisciplineName {
    Strict,
    Weighted,
}

/// The threshold that decides when the switch sends PAUSE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PfcModeName {
    /// An ingress group's limit.
    IngressPg,
    /// An output queue's depth.
    EgressQueue,
}

/// Treatment of frames to stations that the FDB does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownUnicast {
    /// They go to all ports of their VLAN.
    Flood,
    Drop,
}

/// Reaction to a proven loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopAction {
    /// The port is blocked.
    Block,
    /// The loop is reported as an event, and nothing is blocked.
    Alarm,
}

/// When a frame is forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardingMode {
    /// Once its last bit has been received.
    StoreAndForward,
    /// Once its header has been received: in virtual time only, and refused or replaced by store-and-forward live.
    CutThrough,
}

/// How a congested receiver stops its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowControl {
    /// PAUSE of single classes (PFC).
    Pfc,
    /// Not at all.
    None,
    /// Credits between endpoints; the switch and `weft traffic` refuse it.
    Cbfc,
}

/// Who may command a switch by MCTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CciOwner {
    /// The manager that claims the switch by the ordinary command.
    Claim,
    /// All clients that connect, as one manager, until a manager claims the switch elsewhere.
    First,
}

/// Frame format of a host of `weft traffic`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostFormat {
    Standard,
    Gen1,
    Gen2,
    Lite,
    /// Ethernet without any of these headers.
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
