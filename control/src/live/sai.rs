//! The running switch as the SAI service sees it: [`SwitchHandle`] implements [`SaiSwitch`].
//!
//! Counters are read while workers run. Watermarks restart while workers are held.
//! Source: docs/sai.md.

use weft_dataplane::config::PortRole;
use weft_dataplane::fdb::FdbKey;
use weft_dataplane::pipeline::PortLedger;
use weft_dataplane::types::{PortId, Pri};
use weft_parsers::AddrKey;
use weft_rpc::Refused;

use super::backend::SwitchHandle;
use crate::record::Change;
use crate::report::watermarks::{Mark, Reader};
use crate::requests::Backend;
use crate::sai::service::{SaiSwitch, Shape};

impl SaiSwitch for SwitchHandle {
    fn shape(&self) -> Shape {
        let snapshot = self.live().core().snapshot.load();
        let config = &snapshot.config;
        let name = |port: &weft_dataplane::config::PortConfig| {
            // SAI is told of front-panel ports only; the pipe to the agent has no number there.
            (port.role != PortRole::Cpu).then(|| port.name.clone())
        };
        Shape {
            names: config.ports.iter().map(name).collect(),
            cell_bytes: config.buffer.cell_bytes.into(),
            pris: config.pris,
            pri_to_pg: config.maps.pri_to_pg.0,
            classes: config.pfc.classes,
        }
    }

    fn port(&self, port: PortId) -> PortLedger {
        self.live().glance(port)
    }

    fn lossy_cells(&self, input: PortId, pri: Pri) -> u64 {
        self.live().core().buffer.lossy_used(input, pri)
    }

    fn watermarks(&self, marks: &[Mark], restart: bool) -> Result<Vec<u64>, Refused> {
        let core = self.live().core();
        let read =
            || marks.iter().map(|&mark| self.marks().read(Reader::Sai, core, mark)).collect();
        // Reading alone needs no quiesced workers, and SONiC polls often: frames would wait at each poll.
        if !restart {
            return Ok(read());
        }
        // Read and restarted in one hold, so that no peak falls between the two.
        let begin_again = || {
            let values = read();
            self.restart(Reader::Sai, marks);
            values
        };
        let done = self.live().workers().with_quiesced(begin_again);
        done.map_err(|stuck| Refused::unavailable(stuck.to_string()))
    }

    fn set_tx(&self, port: &str, on: bool) -> Result<(), Refused> {
        self.port_tx(port, on)
    }

    fn add_station(&self, vid: u16, addr: AddrKey, port: &str) -> Result<(), Refused> {
        self.fdb_add(vid, addr, port)
    }

    fn remove_station(&self, vid: u16, addr: AddrKey) -> Result<(), Refused> {
        self.fdb_del(vid, addr)
    }

    fn flush_stations(&self) -> Result<(), Refused> {
        let (live, now) = (self.live(), self.live().now());
        let core = live.core();
        let flush = || {
            let learned = core.fdb.iter(now).filter(|entry| !entry.is_static);
            // Keys are collected first: `del` changes the table that `iter` walks.
            let keys: Vec<FdbKey> = learned.map(|entry| entry.key).collect();
            for key in keys {
                // Each deletion goes to the record on its own: a replay has learned the same entries by then.
                live.note(&Change::fdb_del(key));
                core.fdb.del(key);
            }
        };
        let done = live.workers().with_quiesced(flush);
        done.map_err(|stuck| Refused::unavailable(stuck.to_string()))
    }
}
