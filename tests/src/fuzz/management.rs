//! The management socket: any bytes as one line of a client.
//!
//! Any bytes get exactly one line of JSON, an answer or an error.
//!
//! Source: ARCHITECTURE.md "Control".

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use weft_control::conform::Params;
use weft_control::report::process::ProcessReport;
use weft_control::report::{FdbRow, ShowTopic, StatsSnapshot};
use weft_control::requests::{Backend, MirrorTarget, TraceStream, Traced, handle_line};
use weft_parsers::AddrKey;
use weft_rpc::Refused;

/// A switch without ports that agrees to everything.
struct Agreeable;

/// A trace that is over at once.
struct Over;

impl TraceStream for Over {
    fn next(&mut self, _wait: Duration) -> Traced {
        Traced::Ended(json!({ "frames": 0 }))
    }
}

impl Backend for Agreeable {
    fn stats(&self, _restart: Option<ShowTopic>) -> StatsSnapshot {
        StatsSnapshot::default()
    }

    fn process(&self) -> Result<ProcessReport, Refused> {
        Ok(ProcessReport::default())
    }

    fn fdb(&self) -> Vec<FdbRow> {
        Vec::new()
    }

    fn fdb_add(&self, _vid: u16, _addr: AddrKey, _port: &str) -> Result<(), Refused> {
        Ok(())
    }

    fn fdb_del(&self, _vid: u16, _addr: AddrKey) -> Result<(), Refused> {
        Ok(())
    }

    fn reload(&self, _path: Option<&Path>) -> Result<Value, Refused> {
        Ok(Value::Null)
    }

    fn mirror(&self, _port: &str, _to: Option<&MirrorTarget>) -> Result<(), Refused> {
        Ok(())
    }

    fn port_tx(&self, _port: &str, _on: bool) -> Result<(), Refused> {
        Ok(())
    }

    fn conform_params(&self, packet_size: u64) -> Params {
        Params { packet_size, ..Params::default() }
    }

    fn pbr_edge(&self, _port: &str, _hpa: u64) -> Result<Value, Refused> {
        Ok(Value::Null)
    }

    fn pbr_route(&self, _dpid: u16) -> Result<Value, Refused> {
        Ok(Value::Null)
    }

    fn trace(
        &self,
        _filter: Option<&str>,
        _count: u64,
        _bytes: bool,
    ) -> Result<Box<dyn TraceStream>, Refused> {
        Ok(Box::new(Over))
    }
}

/// Answers `bytes` as a line.
///
/// # Panics
/// The answer is not one line of JSON with an answer or an error.
pub fn run(bytes: &[u8]) {
    let answer = handle_line(bytes, &Agreeable);
    let Some((b'\n', line)) = answer.split_last() else { panic!("an answer ends its line") };
    assert!(!line.contains(&b'\n'), "an answer is one line");
    let value: Value = serde_json::from_slice(line).expect("an answer is JSON");
    let met = value.get("ok").is_some();
    let refused = value.get("error").and_then(|error| error.get("code")).is_some();
    assert!(met != refused, "either an answer or an error: {value}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_line_is_answered() {
        for line in [
            r#"{"cmd":"show","what":"ports"}"#,
            r#"{"cmd":"fdb_add","addr":"02:00:00:00:00:01","port":"p0"}"#,
            r#"{"cmd":"trace","count":18446744073709551615,"bytes":true}"#,
            r#"{"cmd":"fdb_del","addr":"x","vid":70000}"#,
            "{",
            "",
        ] {
            run(line.as_bytes());
        }
        run(&vec![0xFF; 100_000]);
    }
}
