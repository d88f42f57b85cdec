//! The manager's connection to the entry switch: a socket on the same machine, or TLS between two.
//!
//! Keys of the hosts file become files of mode 0600, keys of the switch's configuration, and flags of `weft fm serve`.
//!
//! Source: docs/fabric.md "Managers", "Over several machines".

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;

use super::hosts_file::Keys;
use super::{ProcessError, Processes, write};

/// Files of a part that speaks TLS: authority, certificate, key.
const FILES: [&str; 3] = ["ca.pem", "cert.pem", "cert.key"];

impl Processes {
    /// Keys and address of the entry switch, if its manager is on another machine.
    pub(super) fn entry_keys(&self, switch: usize) -> Option<(Keys, SocketAddr)> {
        // Switch 0 is the one that the manager enters by.
        let here = self.setup.here.as_ref().filter(|_| switch == 0)?;
        let address = here.hosts.machines.get(here.at)?.address;
        Some((here.switch_keys.clone()?, SocketAddr::new(address, here.hosts.cci_port)))
    }

    /// Lines of a switch's configuration about its manager's connection.
    pub(super) fn cci_config(&self, switch: usize, folder: &Path) -> String {
        let path = |name: &str| folder.join(name).display().to_string();
        let Some((_, address)) = self.entry_keys(switch) else {
            return format!("cci = {:?}\n", path("cci.sock"));
        };
        let mut text = format!("cci = \"{address}\"\n");
        for (key, file) in ["cci_ca", "cci_cert", "cci_key"].iter().zip(FILES) {
            let _ = writeln!(text, "{key} = {:?}", path(file)); // a String takes everything
        }
        text
    }

    /// Flags by which the manager connects to the entry switch; makes the files that they name in its folder.
    pub(super) fn way_to(&self, entry: &str, folder: &Path) -> Result<Vec<String>, ProcessError> {
        let here = self.setup.here.as_ref();
        let Some((here, keys)) = here.and_then(|here| Some((here, here.manager_keys.as_ref()?)))
        else {
            let cci = self.setup.dir.join(entry).join("cci.sock");
            return Ok(vec!["--entry".to_owned(), format!("unix:{}", cci.display())]);
        };
        write_keys(folder, keys)?;
        let machine = here.hosts.of(entry).and_then(|at| here.hosts.machines.get(at));
        let Some(machine) = machine else { return Ok(Vec::new()) };
        let address = SocketAddr::new(machine.address, here.hosts.cci_port);
        let mut flags = vec!["--entry".to_owned(), format!("tcp:{address}")];
        for (flag, file) in ["--tls-ca", "--tls-cert", "--tls-key"].iter().zip(FILES) {
            flags.extend([(*flag).to_owned(), folder.join(file).display().to_string()]);
        }
        Ok(flags)
    }
}

/// Writes keys into files that only the user can read.
pub(super) fn write_keys(folder: &Path, keys: &Keys) -> Result<(), ProcessError> {
    for (file, text) in FILES.iter().zip([&keys.ca, &keys.cert, &keys.key]) {
        write(&folder.join(file), text)?;
    }
    Ok(())
}
