//! Rules of connection: which ends of a link may be joined.
//!
//! [`check`] takes two [`End`]s and returns the [`Rule`] that forbids them, if one does.
//!
//! Source: docs/spec/cxl-fabric.md "Port roles"; CXL 3.1 section 7.7.5 and figure 7-42.

use std::fmt;

/// An end of a link, as the rules of connection distinguish them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    HostPort,
    /// A device that is no GFD, with one or several logical devices.
    Device,
    Gfd,
    /// Upstream port of an HBR switch.
    HbrUsp,
    /// Downstream port of an HBR switch.
    HbrDsp,
    /// Upstream edge port of a PBR switch.
    PbrUsp,
    /// Downstream edge port of a PBR switch.
    PbrDsp,
    /// Fabric port of a PBR switch.
    Fport,
}

impl End {
    pub const ALL: [Self; 8] = [
        Self::HostPort,
        Self::Device,
        Self::Gfd,
        Self::HbrUsp,
        Self::HbrDsp,
        Self::PbrUsp,
        Self::PbrDsp,
        Self::Fport,
    ];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::HostPort => "host root port",
            Self::Device => "device",
            Self::Gfd => "GFD",
            Self::HbrUsp => "HBR upstream port",
            Self::HbrDsp => "HBR downstream port",
            Self::PbrUsp => "PBR upstream port",
            Self::PbrDsp => "PBR downstream port",
            Self::Fport => "PBR fabric port",
        }
    }

    /// The rule for connections of this end, and the ends that it allows.
    const fn rule(self) -> (Rule, &'static [Self]) {
        match self {
            Self::PbrUsp => (Rule::PbrUspToHost, &[Self::HostPort]),
            Self::Fport => (Rule::FportToFport, &[Self::Fport]),
            Self::Gfd => (Rule::GfdToPbrDsp, &[Self::PbrDsp]),
            Self::HbrUsp => (Rule::HbrUspUpwards, &[Self::HostPort, Self::PbrDsp, Self::HbrDsp]),
            Self::HostPort => {
                (Rule::HostToUspOrDevice, &[Self::HbrUsp, Self::PbrUsp, Self::Device])
            }
            Self::Device => {
                (Rule::DeviceToDspOrHost, &[Self::HbrDsp, Self::PbrDsp, Self::HostPort])
            }
            Self::HbrDsp => (Rule::HbrDspDownwards, &[Self::Device, Self::HbrUsp]),
            Self::PbrDsp => (Rule::PbrDspDownwards, &[Self::Device, Self::HbrUsp, Self::Gfd]),
        }
    }
}

/// A rule of connection, CXL 3.1 section 7.7.5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// A PBR upstream port takes a host root port only.
    PbrUspToHost,
    /// A PBR fabric port takes the fabric port of another PBR switch only.
    FportToFport,
    /// A GFD takes a PBR downstream port only.
    GfdToPbrDsp,
    /// An HBR upstream port takes a host root port, or a downstream port of either kind.
    HbrUspUpwards,
    /// A host root port takes an upstream port of either kind, or a device that is no GFD.
    HostToUspOrDevice,
    /// A device that is no GFD takes a downstream port of either kind, or a host root port.
    DeviceToDspOrHost,
    /// An HBR downstream port takes a device or an HBR upstream port.
    HbrDspDownwards,
    /// A PBR downstream port takes a device, a GFD or an HBR upstream port.
    PbrDspDownwards,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PbrUspToHost => "pbr-usp-to-host: a PBR upstream port takes a host root port only",
            Self::FportToFport => {
                "fport-to-fport: a PBR fabric port takes a fabric port of another PBR switch only"
            }
            Self::GfdToPbrDsp => "gfd-to-pbr-dsp: a GFD takes a PBR downstream port only",
            Self::HbrUspUpwards => {
                "hbr-usp-upwards: an HBR upstream port takes a host or a downstream port"
            }
            Self::HostToUspOrDevice => {
                "host-to-usp-or-device: a host takes an upstream port or a device that is no GFD"
            }
            Self::DeviceToDspOrHost => {
                "device-to-dsp-or-host: a device takes a downstream port or a host"
            }
            Self::HbrDspDownwards => {
                "hbr-dsp-downwards: an HBR downstream port takes a device or an HBR upstream port"
            }
            Self::PbrDspDownwards => {
                "pbr-dsp-downwards: a PBR downstream port takes a device, a GFD or an HBR upstream port"
            }
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} to {}: {rule}", .ends[0].name(), .ends[1].name())]
pub struct Forbidden {
    pub ends: [End; 2],
    pub rule: Rule,
}

impl Forbidden {
    /// A link from a switch to itself: both ends are fabric ports, but the rule wants those of two switches.
    pub const ITSELF: Self = Self { ends: [End::Fport; 2], rule: Rule::FportToFport };
}

/// Checks a connection of two components; the order of the ends does not matter. It cannot see whether they are two:
/// for a link of a switch to itself the caller returns [`Forbidden::ITSELF`].
///
/// # Errors
/// The strictest rule against it: the rule of the end with the fewest choices.
pub fn check(a: End, b: End) -> Result<(), Forbidden> {
    let against = |end: End, other: End| {
        let (rule, allowed) = end.rule();
        (!allowed.contains(&other)).then_some((allowed.len(), rule))
    };
    // The pair sorts by the number of choices first: "a GFD takes a PBR downstream port only" tells more than the list
    // of the port's choices.
    let broken = [against(a, b), against(b, a)].into_iter().flatten().min();
    broken.map_or(Ok(()), |(_, rule)| Err(Forbidden { ends: [a, b], rule }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(a: End, b: End) -> Option<Rule> {
        let there = check(a, b).err().map(|forbidden| forbidden.rule);
        assert_eq!(there, check(b, a).err().map(|forbidden| forbidden.rule), "either way round");
        there
    }

    /// All that may be connected to `end`; everything else is refused.
    fn takes_only(end: End, allowed: &[End]) {
        for other in End::ALL {
            assert_eq!(
                refused(end, other).is_none(),
                allowed.contains(&other),
                "{end:?} {other:?}"
            );
        }
    }

    #[test]
    fn pbr_usp_to_host() {
        takes_only(End::PbrUsp, &[End::HostPort]);
        assert_eq!(refused(End::PbrUsp, End::HbrDsp), Some(Rule::PbrUspToHost));
        assert_eq!(refused(End::PbrUsp, End::PbrDsp), Some(Rule::PbrUspToHost));
    }

    #[test]
    fn fport_to_fport() {
        takes_only(End::Fport, &[End::Fport]);
        assert_eq!(refused(End::Fport, End::PbrDsp), Some(Rule::FportToFport));
        assert_eq!(refused(End::Fport, End::HbrUsp), Some(Rule::FportToFport));
        assert_eq!(refused(End::Fport, End::HostPort), Some(Rule::FportToFport));
    }

    #[test]
    fn gfd_to_pbr_dsp() {
        takes_only(End::Gfd, &[End::PbrDsp]);
        assert_eq!(refused(End::Gfd, End::HbrDsp), Some(Rule::GfdToPbrDsp));
        assert_eq!(refused(End::Gfd, End::HostPort), Some(Rule::GfdToPbrDsp));
    }

    #[test]
    fn hbr_usp_upwards() {
        takes_only(End::HbrUsp, &[End::HostPort, End::PbrDsp, End::HbrDsp]);
        assert_eq!(refused(End::HbrUsp, End::Device), Some(Rule::HbrUspUpwards));
    }

    #[test]
    fn host_to_usp_or_device() {
        takes_only(End::HostPort, &[End::HbrUsp, End::PbrUsp, End::Device]);
        assert_eq!(refused(End::HostPort, End::HostPort), Some(Rule::HostToUspOrDevice));
    }

    #[test]
    fn device_to_dsp_or_host() {
        takes_only(End::Device, &[End::HbrDsp, End::PbrDsp, End::HostPort]);
        assert_eq!(refused(End::Device, End::Device), Some(Rule::DeviceToDspOrHost));
    }

    #[test]
    fn hbr_dsp_downwards() {
        takes_only(End::HbrDsp, &[End::Device, End::HbrUsp]);
        assert_eq!(refused(End::HbrDsp, End::HbrDsp), Some(Rule::HbrDspDownwards));
        assert_eq!(refused(End::HbrDsp, End::PbrDsp), Some(Rule::HbrDspDownwards));
    }

    #[test]
    fn pbr_dsp_downwards() {
        takes_only(End::PbrDsp, &[End::Device, End::HbrUsp, End::Gfd]);
        assert_eq!(refused(End::PbrDsp, End::PbrDsp), Some(Rule::PbrDspDownwards));
    }

    /// Figure 7-42: one PBR switch, several in a row, PBR above HBR, HBR alone.
    #[test]
    fn configurations_of_the_figure_are_allowed() {
        use End::{Device, Fport, Gfd, HbrDsp, HbrUsp, HostPort, PbrDsp, PbrUsp};
        let links = [
            (HostPort, PbrUsp),
            (PbrDsp, Device),
            (PbrDsp, Gfd),
            (Fport, Fport),
            (PbrDsp, HbrUsp),
            (HbrDsp, Device),
            (HbrDsp, HbrUsp),
            (HostPort, HbrUsp),
            (HostPort, Device),
        ];
        for (a, b) in links {
            assert_eq!(refused(a, b), None, "{a:?} {b:?}");
        }
    }
}
