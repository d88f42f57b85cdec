//! `weft fm events`: prints the fabric manager's events, one a line.
//!
//! Source: `docs/fm.md`.

use clap::Args;
use weft_fm::service::{Request, Response};

use super::Query;
use crate::error::CliError;

/// Arguments of `weft fm events`.
#[derive(Args, Debug)]
pub struct EventsArgs {
    /// Show only events after this number
    #[arg(long, default_value_t = 0)]
    after: u64,
}

impl Query for EventsArgs {
    fn request(&self) -> Result<Request, CliError> {
        Ok(Request::Events { after: self.after })
    }

    fn text(&self, response: &Response) -> Option<String> {
        let Response::Events(events) = response else { return None };
        Some(events.iter().fold(String::new(), |text, event| {
            text + &format!("{} {}\n", event.number, event.what)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::assert_requests;
    use super::*;

    #[test]
    fn words_become_requests() {
        assert_requests([
            ("events", Request::Events { after: 0 }),
            ("events --after 7", Request::Events { after: 7 }),
        ]);
    }
}
