//! `weft fm topology`: switches, links, and the hosts and devices attached to them.
//!
//! The fabric manager makes the drawing ([`Request::Topology`]); the page is rendered here, from [`Request::Overview`].
//!
//! Source: `docs/fm.md`.

use std::net::SocketAddr;

use clap::Args;
use weft_fm::service::request::TopologyFormat;
use weft_fm::service::{Request, Response};
use weft_fm::show::display_names::DisplayNames;
use weft_fm::show::topology::tree;

use super::{Query, page};
use crate::error::CliError;

/// Arguments of `weft fm topology`.
#[derive(Args, Debug)]
pub struct TopologyArgs {
    /// Print a graph for Graphviz (dot)
    #[arg(long, conflicts_with_all = ["svg", "html", "json"])]
    dot: bool,
    /// Print an SVG picture
    #[arg(long, conflicts_with_all = ["html", "json"])]
    svg: bool,
    /// Print one HTML page: picture, bindings, and a memory map for each host
    #[arg(long, conflicts_with = "json")]
    html: bool,
    /// Serve the page at this address until SIGINT or SIGTERM, updated while a browser shows it; port 0 picks a free
    /// port
    #[arg(long, value_name = "ADDRESS:PORT", requires = "html")]
    pub(super) listen: Option<SocketAddr>,
}

impl Query for TopologyArgs {
    fn request(&self) -> Result<Request, CliError> {
        if self.html {
            return Ok(Request::Overview);
        }
        let drawn = match (self.dot, self.svg) {
            (true, _) => TopologyFormat::Dot,
            (_, true) => TopologyFormat::Svg,
            _ => TopologyFormat::Text,
        };
        Ok(Request::Topology { drawn })
    }

    fn json_request(&self) -> Result<Request, CliError> {
        // clap refuses `--json` after `topology` (`conflicts_with`), but not before it.
        if self.dot || self.svg || self.html {
            return Err(CliError::Usage(
                "expected --json, or one of --dot, --svg and --html".to_owned(),
            ));
        }
        Ok(Request::Topology { drawn: TopologyFormat::Data })
    }

    fn text(&self, response: &Response) -> Option<String> {
        match response {
            Response::Topology(text) => Some(text.clone()),
            Response::Overview(overview) => Some(page::page(overview)),
            Response::Inventory(inventory) => {
                let mut text = String::new();
                let _ = tree(inventory, &DisplayNames::default(), &mut text); // a String takes everything
                Some(text)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_refused, assert_requests};
    use super::*;

    #[test]
    fn words_become_requests() {
        let topology = |drawn| Request::Topology { drawn };
        assert_requests([
            ("topology", topology(TopologyFormat::Text)),
            ("topology --svg", topology(TopologyFormat::Svg)),
            ("topology --dot", topology(TopologyFormat::Dot)),
            ("topology --json", topology(TopologyFormat::Data)),
            ("--json topology", topology(TopologyFormat::Data)),
            ("topology --html", Request::Overview),
        ]);
        assert_refused([
            ("topology --dot --svg", "cannot be used with"),
            ("topology --html --svg", "cannot be used with"),
            ("topology --html --dot", "cannot be used with"),
            ("topology --html --json", "cannot be used with"),
            ("--json topology --html", "expected --json, or one of"),
            ("--json topology --svg", "expected --json, or one of"),
            ("--json topology --dot", "expected --json, or one of"),
            ("topology --listen 127.0.0.1:0", "--html"),
            ("topology --html --listen 9465", "invalid socket address"),
        ]);
    }
}
