//! The parts of a record that control writes: its header, and changes between steps.
//!
//! [`Header`] and [`Change`]s are JSON; `port::record` puts them between the steps.
//!
//! Source: docs/spec/pipeline.md §13.

use serde::{Deserialize, Serialize};
use weft_config::Sources;
use weft_dataplane::config::{MirrorConfig, SwitchConfig};
use weft_dataplane::fdb::{FdbKey, StaticEntry};
use weft_dataplane::types::{PortId, PortSet};
use weft_parsers::{AddrKey, MacAddr, Vid};

use crate::report::watermarks::Mark;

/// Header of a record: all that a replay needs to build the same switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    pub weft: String,
    /// Texts of the configuration and its flags.
    pub sources: Sources,
    /// Addresses of the ports, by number: a device's own address is not in the configuration.
    pub macs: Vec<String>,
    /// Key that the numbers of its loop probes are made from.
    #[serde(default)]
    pub probe_key: [u64; 2],
    /// Chunks of its pool, including those that devices held.
    #[serde(default)]
    pub chunks: Option<usize>,
}

impl Header {
    /// Header for a switch of this configuration, whose devices are open.
    #[must_use]
    pub fn new(sources: Sources, switch: &SwitchConfig) -> Self {
        let macs = switch.ports.iter().map(|port| port.parse.port_mac.to_string()).collect();
        let probe_key = switch.forward.probe_key;
        let weft = env!("CARGO_PKG_VERSION").to_owned();
        Self { weft, sources, macs, probe_key, chunks: None }
    }

    /// Addresses of the ports, by number; `None` if a text is not an address.
    #[must_use]
    pub fn addresses(&self) -> Option<Vec<MacAddr>> {
        self.macs.iter().map(|mac| mac.parse().ok()).collect()
    }
}

/// A static entry: VLAN, space and address as [`AddrKey::to_bits`], port, and the ports that it is spread over as a bit
/// set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry(u16, u64, u8, #[serde(default)] u64);

impl Entry {
    fn new(entry: &StaticEntry) -> Self {
        let (key, spread) = (entry.key, entry.spread.bits());
        Self(key.vid().get(), key.addr().to_bits(), entry.port.get(), spread)
    }

    /// The entry; `None` if port or address are out of range.
    pub(super) fn read(self) -> Option<StaticEntry> {
        let port = PortId::new(self.2.into())?;
        let (key, spread) = (key(self.0, self.1)?, PortSet::from_bits(self.3));
        Some(StaticEntry { key, port, spread })
    }
}

/// Key of `addr`, as by [`AddrKey::to_bits`], in VLAN `vid`.
pub(super) fn key(vid: u16, addr: u64) -> Option<FdbKey> {
    let addr = AddrKey::from_bits(addr)?;
    Some(FdbKey::new(Vid::from_low_bits(vid), addr))
}

/// A change that control made between two steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum Change {
    /// A new configuration was tried; a replay finds out whether it was accepted.
    Config {
        /// Texts of the configuration; `None` if they are as before.
        sources: Option<Sources>,
        /// All static entries, those added by management included.
        entries: Vec<Entry>,
        /// Ports that are mirrored, as a bit set, and the port that gets the copies.
        mirror: Option<(u64, u8)>,
        /// Outputs whose queues are held, as a bit set.
        #[serde(default)]
        tx_off: u64,
    },
    FdbDel {
        vid: u16,
        /// Space and address, as [`AddrKey::to_bits`].
        addr: u64,
    },
    RestartWatermarks {
        /// The restarted ones; an empty list means all.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        marks: Vec<Mark>,
    },
}

impl Change {
    /// A configuration `switch` is tried; `sources` are its texts if they are new.
    #[must_use]
    pub fn config(switch: &SwitchConfig, sources: Option<&Sources>) -> Self {
        Self::Config {
            sources: sources.cloned(),
            entries: switch.forward.static_entries.iter().map(Entry::new).collect(),
            mirror: switch.mirror.map(|mirror| (mirror.from.bits(), mirror.to.get())),
            tx_off: switch.tx_off.bits(),
        }
    }

    #[must_use]
    pub fn fdb_del(key: FdbKey) -> Self {
        Self::FdbDel { vid: key.vid().get(), addr: key.addr().to_bits() }
    }
}

/// A mirror to a port; `None` if there can be no such port.
pub(super) fn mirror(from: u64, to: u8) -> Option<MirrorConfig> {
    Some(MirrorConfig { from: PortSet::from_bits(from), to: PortId::new(to.into())? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_read_as_they_were_written() {
        let key = FdbKey::new(Vid::from_low_bits(7), AddrKey::gen1(0x12_3456_789A));
        let entry = StaticEntry::over(key, PortSet::from_bits(3 << 62)).unwrap();
        assert_eq!(Entry::new(&entry).read(), Some(entry));
        assert_eq!(serde_json::from_str::<Entry>("[1, 2, 3]").unwrap(), Entry(1, 2, 3, 0));
        assert_eq!(Entry(1, 1, 64, 0).read(), None, "no such port");
        assert_eq!(Entry(1, u64::MAX, 0, 0).read(), None, "no such address");
        let sources = Sources { port: vec!["a=null".into()], ..Sources::default() };
        let changes = [
            Change::Config {
                sources: Some(sources),
                entries: vec![Entry::new(&entry)],
                mirror: Some((1 << 63, 2)),
                tx_off: 1 << 62,
            },
            Change::fdb_del(key),
            Change::RestartWatermarks { marks: Vec::new() },
            Change::RestartWatermarks { marks: vec![Mark::Depth(63, 7), Mark::Shared] },
        ];
        for change in changes {
            let text = serde_json::to_vec(&change).unwrap();
            assert_eq!(serde_json::from_slice::<Change>(&text).unwrap(), change);
        }
        assert!(mirror(1, 64).is_none());
    }
}
