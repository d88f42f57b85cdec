//! The metrics server: metrics for Prometheus, and the page of the switch.
//!
//! Shape: `GET` of [`PATHS`] in, a response out; one request a connection, a few connections at a time.
//! Units: bytes, seconds.
//! Source: RFC 9110, RFC 9112; request heads are read by `httparse`; docs/page.md.

use std::io::{self, Read};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use weft_base::threads::Role;

use crate::events::{self, Kind};
use crate::page::feed::{Feed, VIEWERS};
use crate::page::guard::Guard;
use crate::page::{self, Page};
use crate::report::prometheus;
use crate::requests::Backend;
use crate::serve::{Client, Limits, Protocol, Stream, TcpError, TcpServer, Trust};

/// What clients may use: those that are sent events, and as many others.
pub const LIMITS: Limits = Limits {
    clients: 8 + VIEWERS,
    unknown: 0,
    idle: Duration::from_secs(5),
    request: Duration::from_secs(5),
    answer: Duration::from_secs(10),
    unread: 64 << 20,
};
/// Longest request head.
const HEAD_LEN_MAX: usize = 8 * 1024;
/// What can be asked for.
pub const PATHS: [&str; 4] = ["/", "/metrics", "/api/state", "/api/events"];
const TEXT: &str = "text/plain; charset=utf-8";
/// What every response says: it is what it says it is, nobody keeps it, and no other page uses it.
const ALWAYS: &str = "X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n\
                      Referrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\n";

/// Serves `backend`'s report at `addr`; port 0 takes any.
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

/// What a request is answered.
#[derive(Debug, PartialEq, Eq)]
enum Response {
    /// This.
    Whole(Vec<u8>),
    /// This, and events for as long as it stays.
    Events(Vec<u8>),
}

impl Protocol for Pages {
    fn role(&self) -> Role {
        Role::Metrics
    }

    fn name(&self) -> &'static str {
        "weft-metrics"
    }

    fn trust(&self, _stream: &Stream) -> Result<Trust, Vec<u8>> {
        Ok(Trust::Owner) // nobody can tell who it is: all places are for all
    }

    fn serve(&self, client: &Client) {
        // Whatever ends a connection, the others go on.
        let _ = self.answer(client);
    }
}

impl Pages {
    fn answer(&self, mut client: &Client) -> io::Result<()> {
        let mut head = Vec::new();
        let mut part = [0; 1024];
        let response = loop {
            let count = client.read(&mut part)?;
            client.asking();
            head.extend_from_slice(part.get(..count).unwrap_or_default());
            if let Some(response) = self.respond(&head, count == 0) {
                break response;
            }
        };
        let response = match response {
            Response::Whole(response) => response,
            Response::Events(head) => {
                if let Some(viewer) = self.feed.viewers.enter() {
                    client.working();
                    return page::events::serve(client, &head, &self.feed, &viewer);
                }
                let why = format!("{VIEWERS} clients are sent events already\n");
                events::post(Kind::ClientRefused, "metrics", why.trim_end());
                message("503 Service Unavailable", TEXT, "Retry-After: 5\r\n", &why)
            }
        };
        let (_held, response) = match client.hold(response.capacity()) {
            Ok(held) => (Some(held), response),
            Err(_) => (None, message("503 Service Unavailable", TEXT, "Retry-After: 5\r\n", "")),
        };
        client.send(&response)?;
        client.stream().finish();
        Ok(())
    }

    /// The response to a request whose first bytes are `head`; none while more is needed.
    fn respond(&self, head: &[u8], is_all: bool) -> Option<Response> {
        const END: &[u8] = b"\r\n\r\n";
        let mut response = self.respond_with_body(head, is_all)?;
        if let (true, Response::Whole(whole)) = (head.starts_with(b"HEAD "), &mut response)
            && let Some(at) = whole.windows(END.len()).position(|four| four == END)
        {
            whole.truncate(at + END.len());
        }
        Some(response)
    }

    fn respond_with_body(&self, head: &[u8], is_all: bool) -> Option<Response> {
        const HEADERS_MAX: usize = 64;
        let whole = |status: &str, extra: &str, body: &str| {
            Some(Response::Whole(message(status, TEXT, extra, body)))
        };
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(head) {
            Ok(httparse::Status::Complete(_)) => {}
            Ok(httparse::Status::Partial) if is_all => return whole("400 Bad Request", "", ""),
            Ok(httparse::Status::Partial) if head.len() <= HEAD_LEN_MAX => return None,
            Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
                return whole("431 Request Header Fields Too Large", "", "");
            }
            Err(_) => return whole("400 Bad Request", "", ""),
        }
        let is_head = match request.method {
            Some("GET") => false,
            Some("HEAD") => true,
            _ => return whole("405 Method Not Allowed", "Allow: GET, HEAD\r\n", ""),
        };
        let path = request.path.map_or("", |path| path.split('?').next().unwrap_or(""));
        // Collectors of metrics may call this machine what they like, as ever.
        let refused = self.guard.check(request.headers, !path.starts_with("/api/"));
        if let Some(why) = refused.filter(|_| path != "/metrics") {
            return whole("403 Forbidden", "", why);
        }
        let (kind, extra, body) = match path {
            "/" => {
                let policy = format!("Content-Security-Policy: {}\r\n", self.page.policy);
                ("text/html; charset=utf-8", policy, self.page.html.clone())
            }
            "/metrics" => {
                let stats = self.backend.stats(None);
                (prometheus::CONTENT_TYPE, String::new(), prometheus::render(&stats))
            }
            "/api/state" => {
                ("application/json", String::new(), self.feed.latest().1.to_string() + "\n")
            }
            "/api/events" if is_head => ("text/event-stream", String::new(), String::new()),
            "/api/events" => {
                let head = format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n{ALWAYS}Connection: close\r\n\r\n"
                );
                return Some(Response::Events(head.into_bytes()));
            }
            _ => {
                let why = format!("there are {}\n", PATHS.join(", "));
                return whole("404 Not Found", "", &why);
            }
        };
        Some(Response::Whole(message("200 OK", kind, &extra, &body)))
    }
}

fn message(status: &str, kind: &str, extra: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n{ALWAYS}{extra}Content-Length: {length}\r\n\
         Connection: close\r\n\r\n"
    );
    head.into_bytes().into_iter().chain(body.bytes()).collect()
}

#[cfg(test)]
mod tests;
