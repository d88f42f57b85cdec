//! Reads a topology file and checks everything that can be checked before a part starts.
//!
//! The result is a [`Topology`] with its [`Layout`], or the first error.
//!
//! Source: docs/fabric.md.

use weft_fm::state::desired::{DesiredState, DesiredStateError};
use weft_toml::ConfigError;

use super::desired_state::desired_state;
use super::endpoint_spec::endpoint_spec;
use super::layout::{Layout, LayoutError};
use super::topology::Topology;
use crate::endpoint::spec::SpecError;

/// The first error in a topology file.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It is not TOML, or not a topology.
    #[error(transparent)]
    Text(#[from] ConfigError),
    /// The topology cannot be built.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A part rejects its specification.
    #[error("{name}: {why}")]
    Part {
        /// Name of the part.
        name: String,
        /// Reason of the rejection.
        why: Box<SpecError>,
    },
    /// The manager rejects the wanted state.
    #[error(transparent)]
    DesiredState(#[from] DesiredStateError),
}

/// Reads a topology, and makes each part and the manager's wanted state once to see whether they are accepted.
///
/// # Errors
/// See [`FileError`].
pub fn read(text: &str) -> Result<(Topology, Layout), FileError> {
    let topology = Topology::parse(text)?;
    let layout = Layout::new(&topology)?;
    layout.check_manager_names(&topology)?;
    for part in layout.endpoints() {
        let spec = endpoint_spec(&topology, &layout, part, &|port| port.to_string());
        // Without addresses of ports: only the fields of the specification matter here.
        let made = spec.map(|mut spec| {
            spec.common_mut().rate()?; // which is asked for with a port alone
            spec.endpoint(&[]).map(drop)
        });
        made.transpose().map_err(|why| FileError::Part {
            name: layout.name(part).to_owned(),
            why: Box::new(why),
        })?;
    }
    DesiredState::parse(&desired_state(&topology, &layout, &|_| None))?;
    Ok((topology, layout))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        read(text).map(|_| ()).unwrap_err().to_string()
    }

    #[test]
    fn every_file_of_a_figure_can_be_brought_up() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../pcaps/fabric");
        let mut count = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let done = read(&std::fs::read_to_string(&path).unwrap());
            assert!(done.is_ok(), "{}: {:?}", path.display(), done.err());
            count += 1;
        }
        assert!(count >= 8, "{count}");
    }

    #[test]
    fn parts_that_cannot_be_made_are_refused_and_named() {
        #[rustfmt::skip] // columns: rest of a file with one switch, part of the refusal
        let cases = [
            (r#"gfd = [{ name = "g", at = "sw", capacity_mib = 1 }]"#, "g: capacity: expected a multiple of 256MiB"),
            (r#"host = [{ name = "h", at = "sw", memory_mib = 0 }]"#, "h: hpa_memory: expected 1 to 2^48"),
            (r#"host = [{ name = "h", at = "sw", ln_watchers = 4 }]"#, "h: ln_watchers"),
            (r#"host = [{ name = "h", at = "sw", ln_lines = 4, bind = ["nic"] }]
               device = [{ name = "nic", at = "sw", kind = "nic", lnr = 40 }]"#, "nic: "),
            (r#"host = [{ name = "h", at = "sw" }]
               gfd = [{ name = "g", at = "sw" }]
               memory = [{ name = "12345678901234567", hosts = ["h"], gfds = ["g"], len = "16MiB", hpa = "0x10000000000" }]"#,
             "memory 12345678901234567: expected a name of 1 to 16 bytes"),
        ];
        for (beside, want) in cases {
            let said = refused(&format!("switch = [{{ name = \"sw\" }}]\n{beside}"));
            assert!(said.contains(want), "{beside}: {said}");
        }
    }

    /// The manager knows these parts by their names: switches, hosts at a switch, GFDs, and parts with a share of
    /// memory.
    #[test]
    fn names_that_the_manager_takes_for_something_else_are_refused() {
        let file = |switch: &str, host: &str, device: &str, gfd: &str| {
            format!(
                "switch = [{{ name = \"sw\" }}, {{ name = \"{switch}\" }}]\n\
                 link = [{{ ends = [\"sw\", \"{switch}\"] }}]\n\
                 host = [{{ name = \"{host}\", at = \"sw\", bind = [\"{device}\"] }}]\n\
                 device = [{{ name = \"{device}\", at = \"sw\", kind = \"accelerator\" }}]\n\
                 gfd = [{{ name = \"{gfd}\", at = \"sw\" }}]\n"
            )
        };
        assert!(read(&file("t", "h", "acc", "g")).is_ok());
        for name in ["00a", "b", "FFF", "s0", "s1.2", "entry", "f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1"] {
            let said = |text: String, what: &str| {
                let said = refused(&text);
                assert!(said.starts_with(&format!("{what} {name:?}: ")), "{said}");
            };
            said(file(name, "h", "acc", "g"), "switch");
            said(file("t", name, "acc", "g"), "host");
            said(file("t", "h", "acc", name), "gfd");
            // The manager knows a device by its port, unless the device has a share of memory.
            let device = file("t", "h", name, "g");
            assert!(read(&device).is_ok(), "{name}");
            let memory = format!(
                "memory = [{{ name = \"m\", devices = [\"{name}\"], gfds = [\"g\"], len = \"16MiB\", hpa = \"0x10000000000\" }}]"
            );
            said(device + &memory, "device");
        }
        let first = "switch = [{ name = \"s0\" }]\nhost = [{ name = \"h\", at = \"s0\" }]";
        assert!(refused(first).starts_with("switch \"s0\": "), "{}", refused(first));
    }
}
