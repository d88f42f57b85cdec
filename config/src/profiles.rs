//! Profiles: settings that make the buffer behave as that of a known switch chip.
//!
//! [`find`] by name → [`Profile`], whose settings lie below those of file and flags.
//!
//! Units: as each parameter.
//! Source: docs/conform.md "Profiles".

/// Settings of a profile.
#[derive(Debug)]
pub struct Profile {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is like.
    pub about: &'static str,
    /// `section.key=value`, as of `--set`.
    pub settings: &'static [&'static str],
}

/// Eight priorities, 3 and 4 of them lossless, cells of 208 bytes, 1/8 of what is free for a lossless group beside its reserve
/// of 6 cells; with what is shared, and headroom, in cells. Released 12 cells below XOFF.
macro_rules! broadcom_208 {
    ($shared:literal, $headroom_bytes:literal) => {
        &[
            "switch.num_priorities=8",
            "buffer.cell_bytes=208",
            concat!("buffer.shared_cells=", $shared),
            concat!("buffer.headroom_bytes=", $headroom_bytes),
            "buffer.pg_reserve_bytes=1248",
            "buffer.xon_offset_bytes=2496",
            "buffer.dt_alpha=[1, 1, 1, 0.125, 0.125, 1, 1, 1]",
            "pfc.pfc_priorities=[3, 4]",
        ]
    };
}

/// All of them.
pub const PROFILES: &[Profile] = &[
    Profile {
        name: "th2-100g-40m",
        about: "Tomahawk 2, 100GbE, 40 m: PFC at 4490, drop at 4779, release after 12 frames of 64 bytes",
        settings: broadcom_208!(40350, 60112),
    },
    Profile {
        name: "th2-40g-300m",
        about: "Tomahawk 2, 40GbE, 300 m: PFC at 4457, drop at 4978, release after 12",
        settings: broadcom_208!(40053, 108368),
    },
    Profile {
        name: "th-40g-300m",
        about: "Tomahawk, 40GbE, 300 m: PFC at 6542, drop at 7063, release after 12",
        settings: broadcom_208!(58818, 108368),
    },
    Profile {
        name: "th-100g-300m",
        about: "Tomahawk, 100GbE, 300 m: PFC at 6542, drop at 7835, release after 12",
        settings: broadcom_208!(58818, 268944),
    },
];

/// The profile of a name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Profile> {
    PROFILES.iter().find(|profile| profile.name == name)
}
