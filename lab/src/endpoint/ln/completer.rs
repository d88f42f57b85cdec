//! Status of a host's LN completer: a [`LncReport`] of a [`CxlHost`].
//!
//! Source: docs/endpoint.md "Lightweight Notification"; PCIe 5.0 section 6.21.

use weft_cxl::cxl_host::CxlHost;
use weft_cxl::ln::Watched;
use weft_rpc::Refused;

use crate::endpoint::command::Answer;
use crate::endpoint::ln_report::{LISTED_MAX, LncLine, LncReport, LncRequester};

/// Lists the watched lines with their watchers.
///
/// # Errors
/// The host was started without an LN completer.
pub fn status(host: &CxlHost) -> Result<Answer, Refused> {
    let lnc = host.ln_state().ok_or_else(|| {
        Refused::because(
            "the host has no Lightweight Notification: start it with --mode non-flit --ln-lines N",
        )
    })?;
    let lines = lnc.watched().take(LISTED_MAX).map(|(line, by)| {
        let addr = line.addr().0;
        match by {
            Watched::By(functions) => {
                let watchers = functions.iter().map(ToString::to_string).collect();
                LncLine { addr, watchers, broadcast: false }
            }
            Watched::Below(_) => LncLine { addr, watchers: Vec::new(), broadcast: true },
        }
    });
    let requesters = host.ln_requesters().into_iter().map(|(id, limit)| LncRequester {
        id: id.to_string(),
        on: limit.is_some(),
        limit: limit.map(|exponent| 1 << exponent),
        watches: lnc.held(id),
    });
    let spec = lnc.spec();
    Ok(Answer::LnCompleter(Box::new(LncReport {
        line: spec.line.bytes(),
        lines_max: spec.lines_max,
        watchers_max: spec.watchers_max,
        watched: lnc.lines(),
        lines: lines.collect(),
        requesters: requesters.collect(),
        pending: lnc.pending(),
        counts: serde_json::to_value(lnc.counts()).unwrap_or_default(),
    })))
}
