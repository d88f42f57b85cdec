//! `weft fm cdat`: latency and bandwidth of paths, or the CDAT of a component.
//!
//! Prints latencies in ns and bandwidths in MB/s, or the table's hexadecimal digits.
//!
//! Source: `docs/fm.md`.

use clap::Args;
use weft_fm::service::request::CostRow;
use weft_fm::service::{Request, Response};

use super::Query;
use super::text::{pid, table};
use crate::error::CliError;

/// Arguments of `weft fm cdat`.
#[derive(Args, Debug)]
pub struct CdatArgs {
    /// Read the CDAT of this PID
    #[arg(long, value_name = "PID")]
    read: Option<String>,
}

impl Query for CdatArgs {
    fn request(&self) -> Result<Request, CliError> {
        Ok(Request::Cdat { read: self.read.clone() })
    }

    fn text(&self, response: &Response) -> Option<String> {
        match response {
            Response::Costs(rows) => Some(of_costs(rows)),
            Response::Bytes(digits) => Some(format!("{digits}\n")),
            _ => None,
        }
    }
}

fn of_costs(rows: &[CostRow]) -> String {
    let cells = rows.iter().map(|row| {
        let rate = match row.bandwidth_mbps {
            0 => "unbound".to_owned(),
            rate => rate.to_string(),
        };
        [pid(row.from), pid(row.to), row.what.clone(), row.latency_ns.to_string(), rate]
    });
    table(["from", "to", "what", "latency ns", "MB/s"], cells)
}

#[cfg(test)]
mod tests {
    use super::super::tests::assert_requests;
    use super::*;

    #[test]
    fn words_become_requests() {
        assert_requests([
            ("cdat", Request::Cdat { read: None }),
            ("cdat --read 003", Request::Cdat { read: Some("003".to_owned()) }),
        ]);
    }
}
