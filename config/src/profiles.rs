//! Profiles: settings that make the buffer behave as that of a known switch chip.
//!
//! [`find`] returns a [`Profile`] by name. File and flags override its settings.
//!
//! Source: docs/conform.md "Profiles".

#[derive(Debug)]
pub struct Profile {
    /// Name of it on the command line.
    pub name: &'static str,
    /// One line for lists of profiles: chip, link, and its trigger counts in frames of one cell.
    pub about: &'static str,
    /// Assignments `section.key=value`, in the form of `--set`.
    pub settings: &'static [&'static str],
}

/// Settings of a chip with cells of 208 bytes, eight priorities, and 3 and 4 of them lossless.
///
/// A lossless group has 6 cells of reserve (1,248 bytes) and an alpha of 1/8, so one that fills alone is at XOFF with
/// 6 + shared / 9 cells: PFC begins with the next frame, and drops begin once the headroom is full, too. XON is 12
/// cells (2,496 bytes) below XOFF. `$shared` is in cells, `$headroom_bytes` in bytes.
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

/// The profile called `name`.
#[must_use]
pub fn find(name: &str) -> Option<&'static Profile> {
    PROFILES.iter().find(|profile| profile.name == name)
}
