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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::resolve::{Config, Timing};
    use crate::config::{ConfigError, Sources};
    use crate::conform::Params;
    use weft_dataplane::snapshot::Snapshot;

    fn sources(profile: &str, ports: usize, set: &[&str]) -> Sources {
        Sources {
            profile: Some(profile.to_owned()),
            port: (0..ports).map(|port| format!("p{port}=null")).collect(),
            set: set.iter().map(|text| (*text).to_owned()).collect(),
            ..Sources::default()
        }
    }

    fn params(sources: &Sources) -> Params {
        let config = Config::resolve(&sources.settings().unwrap(), Timing::Live).unwrap();
        Params::of(&Snapshot::compile(config.switch, 0).unwrap(), 64, 1)
    }

    /// The published counts come out, however many ports there are.
    #[test]
    fn profiles_trigger_where_the_chip_does() {
        #[rustfmt::skip] // columns: profile, first PAUSE, first drop, frames to release
        let published = [
            ("th2-100g-40m", 4_490, 4_779, 12),
            ("th2-40g-300m", 4_457, 4_978, 12),
            ("th-40g-300m",  6_542, 7_063, 12),
            ("th-100g-300m", 6_542, 7_835, 12),
        ];
        assert_eq!(
            published.map(|(name, ..)| name).as_slice(),
            PROFILES.iter().map(|p| p.name).collect::<Vec<_>>()
        );
        for (name, pfc, drop, dismiss) in published {
            for ports in [2, 32] {
                let params = params(&sources(name, ports, &[]));
                assert_eq!((params.cell_size, params.packet_cells), (208, 1));
                for row in params.rows.iter().filter(|row| row.lossless) {
                    let found = (row.trig_pfc, row.trig_ingr_drp, row.dismiss_pfc, row.fill_min);
                    assert_eq!(
                        found,
                        (Some(pfc), Some(drop), Some(dismiss), 6),
                        "{name}, {ports} ports"
                    );
                    assert!(row.pri == 3 || row.pri == 4);
                }
            }
        }
    }

    #[test]
    fn file_and_flags_lie_over_a_profile() {
        let one = params(&sources("th2-100g-40m", 2, &["buffer.shared_cells=9000"]));
        let row = one.rows.iter().find(|row| row.lossless).unwrap();
        assert_eq!(row.trig_pfc, Some(1_007)); // 6 + 9001 / 9
        let mut file = sources("th2-100g-40m", 2, &[]);
        file.file = Some(("f".into(), "[buffer]\nshared_cells = 9000\n".into()));
        assert_eq!(params(&file).rows, one.rows);
        let ConfigError(problems) = sources("th3", 2, &[]).settings().unwrap_err();
        assert!(problems[0].to_string().contains("th2-100g-40m"), "{}", problems[0]);
        let both = sources("th2-100g-40m", 2, &["buffer.buffer_size_mb=8"]);
        let told =
            Config::resolve(&both.settings().unwrap(), Timing::Live).unwrap_err().to_string();
        assert!(told.contains("shared_cells") && told.contains("--profile th2-100g-40m"), "{told}");
    }
}
