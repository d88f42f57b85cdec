//! What control puts into a record: what it begins with, and what was changed between steps.
//!
//! [`Header`] and [`Change`]s as JSON, between the steps that `port::record` writes.
//!
//! Source: docs/spec/pipeline.md §13.

use serde::{Deserialize, Serialize};
use weft_config::Sources;
use weft_dataplane::config::{MirrorConfig, SwitchConfig};
use weft_dataplane::fdb::{FdbKey, StaticEntry};
use weft_dataplane::types::{PortId, PortSet};
use weft_parsers::{AddrKey, MacAddr, Vid};

use crate::report::watermarks::Mark;

/// What a record begins with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Version of weft that wrote it.
    pub weft: String,
    /// Its configuration.
    pub sources: Sources,
    /// Addresses of the ports, which their devices may have had.
    pub macs: Vec<String>,
    /// What the numbers of its loop probes are made from.
    #[serde(default)]
    pub probe_key: [u64; 2],
    /// Chunks of its pool, of which devices may have had some.
    #[serde(default)]
    pub chunks: Option<usize>,
}

impl Header {
    /// For a switch of this configuration, its devices open.
    #[must_use]
    pub fn new(sources: Sources, switch: &SwitchConfig) -> Self {
        let macs = switch.ports.iter().map(|port| port.parse.port_mac.to_string()).collect();
        let probe_key = switch.forward.probe_key;
        let weft = env!("CARGO_PKG_VERSION").to_owned();
        Self { weft, sources, macs, probe_key, chunks: None }
    }

    /// The ports' addresses; none if one is not an address.
    #[must_use]
    pub fn addresses(&self) -> Option<Vec<MacAddr>> {
        self.macs.iter().map(|mac| mac.parse().ok()).collect()
    }
}

/// A static entry: VLAN, space and address as [`AddrKey::to_bits`], port, ports that it is spread over as a
/// bit set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry(u16, u64, u8, #[serde(default)] u64);

impl Entry {
    fn new(entry: &StaticEntry) -> Self {
        let (key, spread) = (entry.key, entry.spread.bits());
        Self(key.vid().get(), key.addr().to_bits(), entry.port.get(), spread)
    }

    /// The entry; none if it is not one.
    pub(super) fn read(self) -> Option<StaticEntry> {
        let port = PortId::new(self.2.into())?;
        let (key, spread) = (key(self.0, self.1)?, PortSet::from_bits(self.3));
        Some(StaticEntry { key, port, spread })
    }
}

/// The key of `addr`, as [`AddrKey::to_bits`], in VLAN `vid`.
pub(super) fn key(vid: u16, addr: u64) -> Option<FdbKey> {
    let addr = AddrKey::from_bits(addr)?;
    Some(FdbKey::new(Vid::from_low_bits(vid), addr))
}

/// What control changed between two steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum Change {
    /// A new configuration was tried.
    Config {
        /// What it was made from, unless that is as before.
        sources: Option<Sources>,
        /// All static entries.
        entries: Vec<Entry>,
        /// Ports that are mirrored to a port, as a bit set, and that port.
        mirror: Option<(u64, u8)>,
        /// Outputs whose queues are held, as a bit set.
        #[serde(default)]
        tx_off: u64,
    },
    /// An entry of the FDB was removed.
    FdbDel {
        /// VLAN.
        vid: u16,
        /// Space and address.
        addr: u64,
    },
    /// Watermarks began again.
    RestartWatermarks {
        /// Which; none for all of them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        marks: Vec<Mark>,
    },
}

impl Change {
    /// `switch` is tried, made from `sources` if they are new.
    #[must_use]
    pub fn config(switch: &SwitchConfig, sources: Option<&Sources>) -> Self {
        Self::Config {
            sources: sources.cloned(),
            entries: switch.forward.static_entries.iter().map(Entry::new).collect(),
            mirror: switch.mirror.map(|mirror| (mirror.from.bits(), mirror.to.get())),
            tx_off: switch.tx_off.bits(),
        }
    }

    /// Entry `key` is removed.
    #[must_use]
    pub fn fdb_del(key: FdbKey) -> Self {
        Self::FdbDel { vid: key.vid().get(), addr: key.addr().to_bits() }
    }
}

/// A mirror, or none if the port cannot be.
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
