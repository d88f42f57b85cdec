//! Reasons for not forwarding a TLP. Each protection has its own, so that refusals can be counted and reported.
//!
//! The number of a [`Refusal`] is the index of a counter and is never used again.
//!
//! Source: docs/spec/cxl-fabric.md "Ingress", "Inside", "Egress"; CXL 3.1 sections 7.7.2.5, 7.7.3.3, 7.7.9; PCIe 6.0
//! section 2.2.4.

macro_rules! refusals {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// Reason for which a TLP was not routed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Refusal {
            $($(#[$doc])* $name,)*
        }

        impl Refusal {
            /// All reasons, by number.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Name of the reason, as counters spell it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

refusals! {
    /// The address lies in the fabric window, and its FAST or IDT entry is not valid.
    NoFastEntry = "no-fast-entry",
    /// A G-FAM target that GMV does not allow.
    NotInGmv = "not-in-gmv",
    /// A GIM target that VTV does not allow.
    GimNotInVtv = "gim-not-in-vtv",
    /// A request other than UIO for a GIM address.
    GimNeedsUio = "gim-needs-uio",
    /// `VendPrefixL0` came in at a port that may not use it.
    PrefixNotEnabled = "prefix-not-enabled",
    /// The PID of `VendPrefixL0` is not in VTV.
    PrefixNotInVtv = "prefix-not-in-vtv",
    /// `VendPrefixL0` on a TLP other than UIO.
    PrefixNeedsUio = "prefix-needs-uio",
    /// An LD-FAM target that LAV does not allow.
    LavClear = "lav-clear",
    /// The port belongs to no virtual switch.
    NoVcs = "no-vcs",
    /// The upstream bridge claims neither the address nor the bus.
    UpstreamClaimsNot = "upstream-claims-not",
    /// The upstream bridge claims it, and no vPPB below does.
    NobodyClaims = "nobody-claims",
    /// It would go back to where it came from: into the windows or buses of the bridge below which it came in.
    OwnRange = "own-range",
    /// A bridge on the way up is no bus master.
    BusMasterOff = "bus-master-off",
    /// Configuration from below; only the root sends any.
    ConfigFromBelow = "config-from-below",
    /// No function has this number.
    NoFunction = "no-function",
    /// The vPPB that claims it is not bound.
    Unbound = "unbound",
    /// A message to the root from above, or a broadcast from below.
    MessageDirection = "message-direction",
    /// The DPID has no valid DRT entry.
    NoDrtEntry = "no-drt-entry",
    /// All ports that the message may take are down.
    RouteDown = "route-down",
    /// Hie is set and the DPID belongs to this switch, but no vDSP or vUSP has this pair of PIDs.
    NoBinding = "no-binding",
    /// PIF is set, and the edge may not send `VendPrefixL0`.
    EgressPrefixNotEnabled = "egress-prefix-not-enabled",
    /// A GFD's notification to a device, which is no host.
    GamToPeer = "gam-to-peer",
    /// A GFD used an SPID that is not its own.
    ForeignSpid = "foreign-spid",
    /// This kind of TLP does not belong on a link of this role.
    WrongRole = "wrong-role",
    /// The TLP has no format on the link that it would leave by: UIO on a non-flit link.
    NoForm = "no-form",
    /// A host or device sent a PTH. Only its announcement as link partner may have one, and only at a `dsp`.
    PthAtEdge = "pth-at-edge",
    /// A GFD sent a TLP other than completions, notifications, its part in a forwarded command, and answers.
    NotFromGfd = "not-from-gfd",
    /// A CXL.mem request for an address in no segment of FAST and LDST; an edge has no HDM decoders.
    NoHdmDecoder = "no-hdm-decoder",
    /// A back-invalidate snoop of a block of lines, or an answer to one: only single lines are offered.
    NoBackInvalidate = "no-back-invalidate",
    /// A request with LN set and the id of a function that is not below the bridge where it came in.
    LnForeignId = "ln-foreign-id",
    /// A back-invalidate snoop of an address by which the host does not reach the sender.
    ForeignSnoop = "foreign-snoop",
    /// A CXL.mem request by a host to a memory device in another host's hierarchy.
    ForeignHost = "foreign-host",
    /// A UIO request to a memory device with the id of a function that is not below the bridge where it came in.
    ForeignId = "foreign-id",
    /// A CXL.mem request by a host with several logical devices behind the port, or a UIO request that several would
    /// answer.
    SeveralLds = "several-lds",
    /// A CXL.cache message with a `CacheID` that no committed decoder and route table lead that way.
    NoCacheId = "no-cache-id",
}

impl Refusal {
    /// Number of reasons.
    pub const COUNT: usize = Self::ALL.len();

    /// Whether the sender tried something it has no right to, or used another's name. The other reasons come from
    /// enumeration, from tables that a host has set itself, and from links that are down.
    #[must_use]
    pub const fn is_of_rights(self) -> bool {
        match self {
            Self::NotInGmv
            | Self::GimNotInVtv
            | Self::GimNeedsUio
            | Self::PrefixNotEnabled
            | Self::PrefixNotInVtv
            | Self::PrefixNeedsUio
            | Self::LavClear
            | Self::ConfigFromBelow
            | Self::EgressPrefixNotEnabled
            | Self::GamToPeer
            | Self::ForeignSpid
            | Self::WrongRole
            | Self::PthAtEdge
            | Self::NotFromGfd
            | Self::LnForeignId
            | Self::ForeignSnoop
            | Self::ForeignHost
            | Self::ForeignId => true,
            Self::NoFastEntry
            | Self::NoVcs
            | Self::UpstreamClaimsNot
            | Self::NobodyClaims
            | Self::OwnRange
            | Self::BusMasterOff
            | Self::NoFunction
            | Self::Unbound
            | Self::MessageDirection
            | Self::NoDrtEntry
            | Self::RouteDown
            | Self::NoBinding
            | Self::NoForm
            | Self::NoHdmDecoder
            | Self::NoBackInvalidate
            | Self::SeveralLds
            | Self::NoCacheId => false,
        }
    }

    /// Index of the reason's counter.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_places_and_names_differ() {
        for (place, refusal) in Refusal::ALL.iter().enumerate() {
            assert_eq!(refusal.index(), place, "{refusal:?}");
            let same = Refusal::ALL.iter().filter(|other| other.name() == refusal.name());
            assert_eq!(same.count(), 1, "{}", refusal.name());
        }
    }
}
