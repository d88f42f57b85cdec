//! Assignment of the parts of a fabric to several machines.
//!
//! A [`HostsFile`] is read from TOML; [`HostsFile::check`] compares it with a layout; [`Here`] is one machine's view.
//!
//! Source: docs/fabric.md "Over several machines"; RFC 7348 (VXLAN: identifiers have 24 bits).

use std::net::IpAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use weft_fm::model::text::is_word;
use weft_toml::ConfigError;

use crate::fabric::layout::{End, Layout, MANAGER, Part};

/// Bound on VXLAN network identifiers.
const VNIS: u32 = 1 << 24;

/// The machines of a fabric.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostsFile {
    /// VXLAN network identifier of wire 0; wire N has this plus N.
    #[serde(default = "default_vni")]
    pub vni: u32,
    /// UDP port of VXLAN.
    #[serde(default = "default_vxlan_port")]
    pub vxlan_port: u16,
    /// TCP port at which the entry switch serves its manager, if that runs on another machine.
    #[serde(default = "default_cci_port")]
    pub cci_port: u16,
    /// Directory of `weft tls init`, for the same case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<PathBuf>,
    /// One entry for each machine.
    #[serde(rename = "machine", default)]
    pub machines: Vec<Machine>,
}

const fn default_vni() -> u32 {
    7_700
}

const fn default_vxlan_port() -> u16 {
    4_789
}

const fn default_cci_port() -> u16 {
    4_000
}

/// A machine, and the parts that run on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Name in messages.
    pub name: String,
    /// Address at which the other machines reach it.
    pub address: IpAddr,
    /// `[USER@]HOST` for ssh(1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ssh: Option<String>,
    /// Instead of `ssh`: a command that runs the command behind it on that machine; empty for this machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub run: Vec<String>,
    /// Path of the program there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weft: Option<String>,
    /// Directory of files and sockets there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dir: Option<PathBuf>,
    /// Names of its switches, hosts, devices, HBR switches and GFDs; `fm` is the manager.
    pub parts: Vec<String>,
}

/// Reasons why a hosts file is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostsError {
    /// It is not TOML, or has unknown keys.
    #[error(transparent)]
    Text(#[from] ConfigError),
    /// It has no machine.
    #[error("expected a [[machine]]")]
    None,
    /// Two machines have one name or one address.
    #[error("two machines have the {what} {value}")]
    Twice {
        /// The key.
        what: &'static str,
        value: String,
    },
    /// Both ways to run a command there are given.
    #[error("machine {0} has both ssh and run: give one")]
    BothWays(String),
    /// A word that a shell would read as something else.
    #[error(
        "{key} of machine {machine} is {value:?}: expected letters, digits and @ . / _ : -, no - first"
    )]
    Word { machine: String, key: &'static str, value: String },
    /// A name that would be misread in logs and messages.
    #[error("machine {0:?}: expected a name of letters, digits, '-', '_' and '.'")]
    Name(String),
    /// An address that does not belong to one machine alone.
    #[error(
        "address of machine {machine} is {address}: expected one that the machine alone has, and the others reach"
    )]
    Address { machine: String, address: IpAddr },
    /// A relative directory, which would depend on where ssh(1) or a command starts.
    #[error("dir of machine {machine} is {:?}: expected a path from the root", dir.display())]
    Relative { machine: String, dir: PathBuf },
    /// A part that the topology does not have.
    #[error("machine {machine} has {part:?}, which the topology does not have")]
    Unknown { machine: String, part: String },
    /// A part is on two machines.
    #[error("{0} is on two machines")]
    Split(String),
    /// A part is on no machine.
    #[error("{0} is on no machine")]
    Missing(String),
    /// Addresses of both families, IPv4 and IPv6.
    #[error("machines have IPv4 and IPv6 addresses: VXLAN needs one kind")]
    Families,
    /// There are more wires than identifiers left.
    #[error("vni {0} leaves no identifier below {VNIS} for each of the wires")]
    Vni(u32),
    /// The manager runs on another machine than the entry switch, without keys to identify it.
    #[error(
        "fm is not on the machine of {0}, which it connects to: set tls to a directory of `weft tls init`"
    )]
    Tls(String),
}

impl HostsFile {
    /// Reads the text of a hosts file.
    ///
    /// # Errors
    /// It is not one.
    pub fn parse(text: &str) -> Result<Self, HostsError> {
        Ok(weft_toml::read("hosts file", text)?)
    }

    /// Checks that each part of a layout is on exactly one machine. Places the manager beside the entry switch if it is
    /// in no `parts`.
    ///
    /// # Errors
    /// The first rule that the file breaks.
    pub fn check(&mut self, layout: &Layout) -> Result<(), HostsError> {
        self.check_machines()?;
        // The last wire needs an identifier, too.
        let wires = u32::try_from(layout.wires.len()).unwrap_or(VNIS);
        if self.vni.checked_add(wires).is_none_or(|end| end > VNIS) {
            return Err(HostsError::Vni(self.vni));
        }
        let entry = layout.switches.first().map(|switch| switch.name.clone());
        if let Some(entry) = &entry
            && self.of(MANAGER).is_none()
            && let Some(at) = self.of(entry)
            && let Some(machine) = self.machines.get_mut(at)
        {
            machine.parts.push(MANAGER.to_owned());
        }
        let names: Vec<&str> = parts(layout).map(|part| layout.name(part)).collect();
        for machine in &self.machines {
            for part in &machine.parts {
                if part != MANAGER && !names.contains(&part.as_str()) {
                    let (machine, part) = (machine.name.clone(), part.clone());
                    return Err(HostsError::Unknown { machine, part });
                }
            }
        }
        // A fabric without switches has no manager.
        for name in names.into_iter().chain(entry.as_ref().map(|_| MANAGER)) {
            let holders = self.machines.iter().flat_map(|m| &m.parts).filter(|part| *part == name);
            match holders.count() {
                0 => return Err(HostsError::Missing(name.to_owned())),
                1 => {}
                _ => return Err(HostsError::Split(name.to_owned())),
            }
        }
        match entry {
            Some(entry) if self.is_apart(&entry) && self.tls.is_none() => {
                Err(HostsError::Tls(entry))
            }
            _ => Ok(()),
        }
    }

    fn check_machines(&self) -> Result<(), HostsError> {
        let first = self.machines.first().ok_or(HostsError::None)?;
        for (at, machine) in self.machines.iter().enumerate() {
            let before = self.machines.get(..at).unwrap_or_default();
            check_machine(machine)?;
            let twice = |what, value: String| Err(HostsError::Twice { what, value });
            if before.iter().any(|other| other.name == machine.name) {
                return twice("name", machine.name.clone());
            }
            if before.iter().any(|other| other.address == machine.address) {
                return twice("address", machine.address.to_string());
            }
            if machine.ssh.is_some() && !machine.run.is_empty() {
                return Err(HostsError::BothWays(machine.name.clone()));
            }
            // Any two machines may need a tunnel, and its ends have addresses of one family.
            if machine.address.is_ipv4() != first.address.is_ipv4() {
                return Err(HostsError::Families);
            }
            // ssh(1) lets a shell read the command, and takes a leading dash for an option of its own.
            let words = [("ssh", machine.ssh.as_deref()), ("weft", machine.weft.as_deref())];
            for (key, value) in words.into_iter().filter_map(|(key, value)| Some((key, value?))) {
                if !is_plain(value) {
                    let (machine, value) = (machine.name.clone(), value.to_owned());
                    return Err(HostsError::Word { machine, key, value });
                }
            }
        }
        Ok(())
    }

    /// Index of the machine that has a part.
    #[must_use]
    pub fn of(&self, part: &str) -> Option<usize> {
        self.machines.iter().position(|machine| machine.parts.iter().any(|name| name == part))
    }

    /// Whether the manager is on another machine than this switch.
    #[must_use]
    pub fn is_apart(&self, entry: &str) -> bool {
        self.of(MANAGER) != self.of(entry)
    }
}

/// Checks one machine without the others.
fn check_machine(machine: &Machine) -> Result<(), HostsError> {
    let name = || machine.name.clone();
    if !is_word(&machine.name) {
        return Err(HostsError::Name(name()));
    }
    let address = machine.address;
    // Tunnels end at these addresses, so each must be that of a single machine.
    let is_broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    if address.is_unspecified() || address.is_multicast() || is_broadcast {
        return Err(HostsError::Address { machine: name(), address });
    }
    match machine.dir.as_ref().filter(|dir| !dir.is_absolute()) {
        Some(dir) => Err(HostsError::Relative { machine: name(), dir: dir.clone() }),
        None => Ok(()),
    }
}

fn is_plain(word: &str) -> bool {
    let good = |c: u8| c.is_ascii_alphanumeric() || b"@./_:-".contains(&c);
    !word.is_empty() && !word.starts_with('-') && word.bytes().all(good)
}

fn parts(layout: &Layout) -> impl Iterator<Item = Part> + '_ {
    (0..layout.switches.len()).map(Part::Switch).chain(layout.endpoints())
}

/// Certificates and key that a part needs, as PEM.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keys {
    /// Certificate of the authority.
    pub ca: String,
    /// Certificate of this part.
    pub cert: String,
    /// Private key of the certificate.
    pub key: String,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys(..)")
    }
}

/// One machine's view of a fabric over several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Here {
    /// All machines, checked.
    pub hosts: HostsFile,
    /// Index of this machine.
    pub at: usize,
    /// Unique name of the fabric, because its machines may share a directory.
    pub fabric: String,
    /// For the entry switch, if its manager is on another machine.
    pub switch_keys: Option<Keys>,
    /// For the manager, if its entry switch is on another machine.
    pub manager_keys: Option<Keys>,
}

/// The two ends of a VXLAN tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tunnel {
    pub local: IpAddr,
    pub remote: IpAddr,
}

/// The part of a wire that is on one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WireHere {
    Both,
    /// End `a` or `b`, and the tunnel to the other end.
    One(char, Tunnel),
    Neither,
}

impl Here {
    /// Whether a part is on this machine.
    #[must_use]
    pub fn has(&self, part: &str) -> bool {
        self.hosts.of(part) == Some(self.at)
    }

    /// The part of a wire that is on this machine.
    pub(super) fn wire(&self, layout: &Layout, [near, far]: &[End; 2]) -> WireHere {
        let machine = |end: &End| self.hosts.of(layout.name(end.part));
        let (near, far) = (machine(near), machine(far));
        let address = |at: Option<usize>| Some(self.hosts.machines.get(at?)?.address);
        let tunnel =
            |local, remote| Some(Tunnel { local: address(local)?, remote: address(remote)? });
        let here = Some(self.at);
        let found = match (near == here, far == here) {
            (true, true) => Some(WireHere::Both),
            (true, false) => tunnel(near, far).map(|tunnel| WireHere::One('a', tunnel)),
            (false, true) => tunnel(far, near).map(|tunnel| WireHere::One('b', tunnel)),
            (false, false) => None,
        };
        found.unwrap_or(WireHere::Neither)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::topology::Topology;

    const TOPOLOGY: &str = "switch = [{ name = \"sw0\" }, { name = \"sw1\" }]\n\
        link = [{ ends = [\"sw0\", \"sw1\"] }]\n\
        [[host]]\nname = \"h0\"\nat = \"sw0\"\n[[host]]\nname = \"h1\"\nat = \"sw1\"\n";
    const GOOD: &str = "[[machine]]\nname = \"a\"\naddress = \"10.0.0.1\"\nparts = [\"sw0\", \"h0\"]\n\
        [[machine]]\nname = \"b\"\naddress = \"10.0.0.2\"\nssh = \"root@b\"\nparts = [\"sw1\", \"h1\"]\n";

    fn layout() -> Layout {
        Layout::new(&Topology::parse(TOPOLOGY).unwrap()).unwrap()
    }

    fn checked(text: &str) -> Result<HostsFile, HostsError> {
        let mut hosts = HostsFile::parse(text)?;
        hosts.check(&layout()).map(|()| hosts)
    }

    #[test]
    fn the_manager_is_beside_the_entry_switch_unless_it_is_said_where() {
        let hosts = checked(GOOD).unwrap();
        assert_eq!((hosts.of(MANAGER), hosts.is_apart("sw0")), (Some(0), false));
        let apart = GOOD.replace("\"h1\"]", "\"h1\", \"fm\"]");
        assert_eq!(checked(&apart), Err(HostsError::Tls("sw0".to_owned())));
        let hosts = checked(&format!("tls = \"t\"\n{apart}")).unwrap();
        assert_eq!((hosts.of(MANAGER), hosts.is_apart("sw0")), (Some(1), true));
    }

    #[test]
    fn a_wire_is_a_pair_or_a_tunnel() {
        let (hosts, layout) = (checked(GOOD).unwrap(), layout());
        let here = |at| Here {
            hosts: hosts.clone(),
            at,
            fabric: String::new(),
            switch_keys: None,
            manager_keys: None,
        };
        let [a, b] = ["10.0.0.1", "10.0.0.2"].map(|text| text.parse::<IpAddr>().unwrap());
        let mut kinds = Vec::new();
        for wire in &layout.wires {
            kinds.push([0, 1].map(|at| here(at).wire(&layout, wire)));
        }
        let tunnel = |local, remote| Tunnel { local, remote };
        // Wires of hosts come first, then links between switches.
        let want = [
            [WireHere::Both, WireHere::Neither],
            [WireHere::Neither, WireHere::Both],
            [WireHere::One('a', tunnel(a, b)), WireHere::One('b', tunnel(b, a))],
        ];
        assert_eq!(kinds.len(), 3);
        assert!(want.iter().all(|one| kinds.contains(one)), "{kinds:?}");
    }

    #[test]
    fn what_cannot_be_is_refused_and_named() {
        let with = |old: &str, new: &str| GOOD.replacen(old, new, 1);
        #[rustfmt::skip]
        let cases = [
            (String::new(),                                   "expected a [[machine]]"),
            (with("parts", "part"),                           "part"),
            (with("10.0.0.2", "b"),                           "IP address"),
            (with("10.0.0.2", "10.0.0.1"),                    "two machines have the address 10.0.0.1"),
            (with("10.0.0.2", "fd00::2"),                     "one kind"),
            (with("name = \"b\"", "name = \"a\""),            "two machines have the name a"),
            (with("ssh =", "run = [\"x\"]\nssh ="),           "machine b has both ssh and run"),
            (with("root@b", "-oProxyCommand=x"),              "ssh of machine b"),
            (with("10.0.0.2", "0.0.0.0"),                     "address of machine b is 0.0.0.0"),
            (with("10.0.0.2", "224.0.0.1"),                   "address of machine b is 224.0.0.1"),
            (with("10.0.0.2", "255.255.255.255"),             "address of machine b is 255.255.255.255"),
            (with("10.0.0.2", "ff02::1"),                     "address of machine b is ff02::1"),
            (with("10.0.0.2", "::"),                          "address of machine b is ::"),
            (with("name = \"b\"", "name = \"../x\""),         "machine \"../x\": expected a name"),
            (with("ssh =", "dir = \"a/b\"\nssh ="),           "dir of machine b is \"a/b\": expected a path from the root"),
            (with("root@b", "b; reboot"),                     "ssh of machine b"),
            (with("ssh =", "weft = \"a b\"\nssh ="),          "weft of machine b"),
            (with("\"h0\"", "\"h9\""),                        "machine a has \"h9\""),
            (with(", \"h0\"", ""),                            "h0 is on no machine"),
            (with("\"h0\"", "\"h0\", \"h1\""),                "h1 is on two machines"),
            (with("\"h0\"", "\"h0\", \"h0\""),                "h0 is on two machines"),
            (with("\"sw0\", \"h0\"", "\"h0\""),               "sw0 is on no machine"),
            (with("\"h0\"", "\"h0\", \"fm\"") .replace("\"h1\"", "\"h1\", \"fm\""), "fm is on two machines"),
            (format!("vni = 16777215\n{GOOD}"),               "vni 16777215"),
            (format!("vni = 4294967295\n{GOOD}"),             "vni 4294967295"),
            (format!("vxlan_port = 65536\n{GOOD}"),           "65536"),
        ];
        for (text, want) in cases {
            let error = checked(&text).expect_err(want).to_string();
            assert!(error.contains(want), "{error}: expected {want}");
        }
    }
}
