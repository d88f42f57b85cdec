//! `weft fm trace`: every lookup on the path of one address of one host.
//!
//! Source: `docs/fm.md`.

use std::fmt::Write;

use clap::{Args, ValueEnum};
use weft_fm::model::text::parse_address;
use weft_fm::service::{Request, Response};
use weft_fm::show::trace::{End, Trace, Via};

use super::Query;
use super::text::{pid, table};
use crate::error::CliError;

/// Arguments of `weft fm trace`.
#[derive(Args, Debug)]
pub struct TraceArgs {
    /// Host, or device, that makes the request
    #[arg(long)]
    host: String,
    /// Host physical address of the request
    #[arg(long, value_parser = parse_address)]
    hpa: u64,
    /// Kind of request
    #[arg(long, value_enum, default_value_t = ViaArg::Uio)]
    via: ViaArg,
}

/// Kind of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ViaArg {
    /// UIO requests
    Uio,
    /// CXL.mem loads and stores
    CxlMem,
}

impl Query for TraceArgs {
    fn request(&self) -> Result<Request, CliError> {
        let via = match self.via {
            ViaArg::Uio => Via::Uio,
            ViaArg::CxlMem => Via::CxlMem,
        };
        Ok(Request::Trace { host: self.host.clone(), hpa: self.hpa, via })
    }

    fn text(&self, response: &Response) -> Option<String> {
        let Response::Trace(trace) = response else { return None };
        Some(of_trace(trace))
    }
}

fn of_trace(trace: &Trace) -> String {
    let mut text = format!("host {} address {:#x}\n", pid(trace.spid), trace.hpa);
    let rows = trace.steps.iter().map(|step| {
        let asked = if step.asked { "" } else { "not asked" };
        [step.at.clone(), step.table.clone(), step.found.clone(), asked.to_owned()]
    });
    text += &table(["at", "table", "says", ""], rows);
    if !trace.hops.is_empty() {
        let _ = writeln!(text, "way: {}", trace.hops.join(", "));
    }
    if !trace.others.is_empty() {
        let _ = writeln!(text, "or, by routing groups: {}", trace.others.join(", "));
    }
    let end = match &trace.end {
        End::Memory => "memory that the host may use".to_owned(),
        End::Host => "another host's memory".to_owned(),
        End::Hierarchy => "the host's own hierarchy routes it".to_owned(),
        End::Refused(why) => format!("refused: {why}"),
        End::Unknown(why) => format!("not known: {why}"),
    };
    let to = trace.dpid.map_or(String::new(), |bits| format!(", DPID {}", pid(bits)));
    let dpa = trace.dpa.map_or(String::new(), |dpa| format!(", DPA {dpa:#x}"));
    let _ = writeln!(text, "ends: {end}{to}{dpa}");
    text
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_refused, assert_requests};
    use super::*;

    #[test]
    fn words_become_requests() {
        let trace = |via| Request::Trace { host: "h0".to_owned(), hpa: 4_096, via };
        assert_requests([
            ("trace --host h0 --hpa 4096", trace(Via::Uio)),
            ("trace --host h0 --hpa 4096 --via cxl-mem", trace(Via::CxlMem)),
        ]);
        assert_refused([("trace --host h0 --hpa 1 --via air", "possible values: uio, cxl-mem")]);
        assert_refused([("trace --host h0 --hpa 0xzz", "expected an address")]);
    }
}
