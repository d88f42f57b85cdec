//! The metrics server: metrics for Prometheus, and the page of the switch.
//!
//! It answers `GET` of [`PATHS`], one request for each connection, and a few connections at a time.
//!
//! Source: docs/page.md.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use weft_base::threads::Role;

use crate::events::{self, Kind};
use crate::http::{self, ALWAYS, Asked, HTML, TEXT, message};
use crate::page::feed::{Feed, VIEWERS};
use crate::page::guard::Guard;
use crate::page::{self, Page};
use crate::report::prometheus;
use crate::requests::Backend;
use crate::serve::{Client, Limits, Protocol, Stream, TcpError, TcpServer, Trust};

/// Limits for all clients together: those that are sent events, and as many others.
pub const LIMITS: Limits = Limits {
    clients: 8 + VIEWERS,
    unknown: 0,
    idle: Duration::from_secs(5),
    request: Duration::from_secs(5),
    answer: Duration::from_secs(10),
    unread: 64 << 20,
};
/// Paths that can be requested.
pub const PATHS: [&str; 4] = ["/", "/metrics", "/api/state", "/api/events"];

/// Serves the report of `backend` at `addr`; port 0 takes any port.
///
/// # Errors
/// The address cannot be had.
pub fn start(addr: SocketAddr, backend: Arc<dyn Backend>) -> Result<TcpServer, TcpError> {
    let feed = Feed::new(backend.clone());
    let pages = Pages { backend, feed, page: page::live(), guard: Guard::new(addr) };
    TcpServer::start("metrics server", addr, LIMITS, Arc::new(pages))
}

struct Pages {
    backend: Arc<dyn Backend>,
    feed: Feed,
    page: Page,
    guard: Guard,
}

/// Answer to a request.
#[derive(Debug, PartialEq, Eq)]
enum Response {
    /// A whole response.
    Whole(Vec<u8>),
    /// The head of a response, with events after it for as long as the client stays.
    Events(Vec<u8>),
}

impl From<Vec<u8>> for Response {
    fn from(whole: Vec<u8>) -> Self {
        Self::Whole(whole)
    }
}

impl Protocol for Pages {
    fn role(&self) -> Role {
        Role::Metrics
    }

    fn name(&self) -> &'static str {
        "weft-metrics"
    }

    fn trust(&self, _stream: &Stream) -> Result<Trust, Vec<u8>> {
        // Clients cannot be told apart, so no place is kept for anyone.
        Ok(Trust::Owner)
    }

    fn serve(&self, client: &Client) {
        // An error ends this connection only.
        let _ = self.answer(client);
    }
}

impl Pages {
    fn answer(&self, client: &Client) -> io::Result<()> {
        let response = match http::read(client, |head, is_all| self.respond(head, is_all))? {
            Response::Whole(response) => response,
            Response::Events(head) => {
                if let Some(viewer) = self.feed.viewers.enter() {
                    // No time limit holds while a client is `working`; `events::serve` ends viewers that do not read.
                    client.working();
                    return page::events::serve(client, &head, &self.feed, &viewer);
                }
                let why = format!("{VIEWERS} clients are sent events already\n");
                events::post(Kind::ClientRefused, "metrics", why.trim_end());
                message("503 Service Unavailable", TEXT, "Retry-After: 5\r\n", &why)
            }
        };
        http::send(client, response)
    }

    /// Response to a request whose first bytes are `head`; `None` while more bytes are needed.
    fn respond(&self, head: &[u8], is_all: bool) -> Option<Response> {
        http::respond(head, is_all, |asked| {
            let mut response = self.response(asked);
            if let (true, Response::Whole(whole)) = (asked.is_head, &mut response) {
                http::drop_body(whole);
            }
            response
        })
    }

    fn response(&self, asked: &Asked<'_>) -> Response {
        let path = asked.path;
        // Collectors of metrics reach this machine by any name that they are configured with.
        let refused = self.guard.check(asked.headers, !path.starts_with("/api/"));
        if let Some(why) = refused.filter(|_| path != "/metrics") {
            return message("403 Forbidden", TEXT, "", why).into();
        }
        let (kind, extra, body) = match path {
            "/" => {
                let policy = format!("Content-Security-Policy: {}\r\n", self.page.policy);
                (HTML, policy, self.page.html.clone())
            }
            "/metrics" => {
                // Exact counters, for which workers are held; the page gets a glance, as it asks five times a second.
                let stats = self.backend.stats(None);
                (prometheus::CONTENT_TYPE, String::new(), prometheus::render(&stats))
            }
            "/api/state" => {
                ("application/json", String::new(), self.feed.latest().1.to_string() + "\n")
            }
            "/api/events" if asked.is_head => ("text/event-stream", String::new(), String::new()),
            "/api/events" => {
                let head = format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n{ALWAYS}Connection: close\r\n\r\n"
                );
                return Response::Events(head.into_bytes());
            }
            _ => {
                let why = format!("there are {}\n", PATHS.join(", "));
                return message("404 Not Found", TEXT, "", &why).into();
            }
        };
        message("200 OK", kind, &extra, &body).into()
    }
}

#[cfg(test)]
mod tests;
