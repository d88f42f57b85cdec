//! A switch that is only numbers, for tests.
//!
//! [`Recorder`] answers every request and remembers it.

use std::sync::Mutex;

use super::*;
use crate::report::{ConservationReport, QueueReport};

/// The requests so far, as text; and the number of queues in its report.
#[derive(Default)]
pub(crate) struct Recorder(pub(crate) Mutex<Vec<String>>, pub(crate) usize);

impl Recorder {
    fn note(&self, text: String) {
        self.0.lock().unwrap().push(text);
    }
}

struct Countdown(u64);

impl TraceStream for Countdown {
    fn next(&mut self, _wait: Duration) -> Traced {
        match self.0.checked_sub(1) {
            Some(left) => {
                self.0 = left;
                Traced::Path(ShownPath { frame: left, ..ShownPath::default() })
            }
            None => Traced::Ended(json!({ "frames": 0 })),
        }
    }
}

/// Never has a path.
struct Silent;

impl TraceStream for Silent {
    fn next(&mut self, wait: Duration) -> Traced {
        weft_base::wait::pause(wait);
        Traced::Nothing
    }
}

impl Backend for Recorder {
    fn stats(&self, restart: Option<ShowTopic>) -> StatsSnapshot {
        self.note(format!("stats {}", restart.is_some()));
        let conservation = ConservationReport { rx: 5, tx: 5, holds: true, ..Default::default() };
        let queues = vec![QueueReport::default(); self.1];
        StatsSnapshot { switch: "s".into(), conservation, queues, ..Default::default() }
    }

    fn process(&self) -> Result<ProcessReport, Refused> {
        Ok(ProcessReport { pid: 7, sandbox: "on".into(), ..Default::default() })
    }

    fn fdb(&self) -> Vec<FdbRow> {
        vec![FdbRow { vid: 1, addr: "id:0005".into(), port: "p0".into(), ..Default::default() }]
    }

    fn fdb_add(&self, vid: u16, addr: AddrKey, port: &str) -> Result<(), Refused> {
        self.note(format!("add {vid} {addr} {port}"));
        if port == "p9" { Err(Refused::because("no port p9")) } else { Ok(()) }
    }

    fn fdb_del(&self, vid: u16, addr: AddrKey) -> Result<(), Refused> {
        self.note(format!("del {vid} {addr}"));
        Ok(())
    }

    fn reload(&self, path: Option<&Path>) -> Result<Value, Refused> {
        self.note(format!("reload {path:?}"));
        Ok(json!({ "epoch": 1 }))
    }

    fn mirror(&self, port: &str, to: Option<&MirrorTarget>) -> Result<(), Refused> {
        self.note(format!("mirror {port} {to:?}"));
        Ok(())
    }

    fn port_tx(&self, port: &str, on: bool) -> Result<(), Refused> {
        self.note(format!("tx {port} {on}"));
        Ok(())
    }

    fn conform_params(&self, packet_size: u64) -> Params {
        Params { packet_size, ..Params::default() }
    }

    fn pbr_edge(&self, port: &str, hpa: u64) -> Result<Value, Refused> {
        self.note(format!("edge {port} {hpa:#x}"));
        Ok(json!({ "port": port }))
    }

    fn pbr_route(&self, dpid: u16) -> Result<Value, Refused> {
        self.note(format!("route {dpid:#x}"));
        Ok(json!({ "dpid": dpid }))
    }

    fn trace(
        &self,
        filter: Option<&str>,
        count: u64,
        _bytes: bool,
    ) -> Result<Box<dyn TraceStream>, Refused> {
        match filter {
            Some("silent") => Ok(Box::new(Silent)),
            Some(filter) => Err(Refused::bad_request(format!("no filter {filter}"))),
            None => Ok(Box::new(Countdown(count))),
        }
    }
}
