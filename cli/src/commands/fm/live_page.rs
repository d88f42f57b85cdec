//! `weft fm topology --html --listen`: serves the page of the fabric to browsers, rendered anew while one looks.
//!
//! `GET /` asks the fabric manager for an overview ([`Request::Overview`]) and renders it. Browsers reload the page by
//! themselves.
//!
//! Source: docs/fm.md "The page of a fabric"; RFC 9110; the header `Refresh` is that of WHATWG HTML "Pragma
//! directives".

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use weft_base::threads::Role;
use weft_control::http::{self, Asked, HTML, TEXT, message};
use weft_control::live::confine::{self, CapabilitySet};
use weft_control::log::Log;
use weft_control::metrics;
use weft_control::page::guard::Guard;
use weft_control::serve::{Client, Limits, Protocol, Stream, TcpServer, Trust};
use weft_control::supervise::{Supervisor, no_reload};
use weft_dataplane::time::{Instant, Span};
use weft_dataplane::worker::Clock;
use weft_fm::service::{Request, Response};

use super::{AskArgs, FmClient, page};
use crate::error::CliError;

/// Limits of the HTTP server.
const LIMITS: Limits = Limits { clients: 16, ..metrics::LIMITS };
/// Shortest time between two renderings; requests in between get the last page.
const EVERY: Span = Span::from_ms(1_000);
/// After rendering, wait SHARE times the render time, so that rendering takes at most a tenth of the manager's time: it
/// does nothing else meanwhile, and a silent host makes it slow.
const SHARE: u64 = 10;
/// Headers of a page: reload after 2 s, and refuse to be framed by other pages. The page itself limits its content.
const AGAIN: &str = "Refresh: 2\r\nContent-Security-Policy: frame-ancestors 'none'\r\n";
/// Headers of an error: the same, and no content may be loaded at all.
const NOT_YET: &str =
    "Refresh: 2\r\nContent-Security-Policy: default-src 'none'; frame-ancestors 'none'\r\n";

/// Renders the page, or returns the reason why it cannot.
type Make = Box<dyn Fn() -> Result<String, String> + Send + Sync>;

struct Pages {
    make: Make,
    guard: Guard,
    clock: Clock,
    /// The last response, and the time from which it may be replaced.
    last: Mutex<Option<(Instant, Vec<u8>)>>,
}

impl Pages {
    fn new(make: Make, addr: SocketAddr) -> Self {
        Self { make, guard: Guard::new(addr), clock: Clock::start(), last: Mutex::new(None) }
    }

    /// The page, or an error; shared by all requests until it may be replaced.
    fn page(&self) -> Vec<u8> {
        // Held while rendering: concurrent requests wait for this page instead of asking the manager themselves.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((due, response)) if self.clock.now() < *due => response.clone(),
            _ => {
                let begin = self.clock.now();
                let response = match (self.make)() {
                    Ok(html) => message("200 OK", HTML, AGAIN, &html),
                    Err(why) => message("503 Service Unavailable", TEXT, NOT_YET, &(why + "\n")),
                };
                let end = self.clock.now();
                let pause = EVERY.max(Span::from_ns(end.since(begin).as_ns() * SHARE));
                last.insert((end + pause, response)).1.clone()
            }
        }
    }

    fn response(&self, asked: &Asked<'_>) -> Vec<u8> {
        // Links from other sites may lead here: the same-origin policy keeps those sites from reading the answer.
        let mut response = match self.guard.check(asked.headers, true) {
            Some(why) => message("403 Forbidden", TEXT, "", why),
            None if asked.path == "/" => self.page(),
            None => message("404 Not Found", TEXT, "", "there is /\n"),
        };
        if asked.is_head {
            http::drop_body(&mut response);
        }
        response
    }

    fn answer(&self, client: &Client) -> io::Result<()> {
        let response = http::read(client, |head, is_all| {
            http::respond(head, is_all, |asked| {
                client.working();
                self.response(asked)
            })
        })?;
        http::send(client, response)
    }
}

impl Protocol for Pages {
    fn role(&self) -> Role {
        Role::Metrics
    }

    fn name(&self) -> &'static str {
        "weft-page"
    }

    fn trust(&self, _stream: &Stream) -> Result<Trust, Vec<u8>> {
        Ok(Trust::Owner) // nobody can tell who it is: all places are for all
    }

    fn serve(&self, client: &Client) {
        let _ = self.answer(client); // whatever ends a connection, the others go on
    }
}

/// Serves the page at `addr` until a signal arrives; the manager may stop and start meanwhile.
///
/// # Errors
/// The server cannot listen at the address.
pub(super) fn run(addr: SocketAddr, ask: &AskArgs) -> Result<(), CliError> {
    let ask = ask.clone();
    let make = move || {
        // A connection for each page, as the manager may have restarted.
        let answer = FmClient::connect(&ask).and_then(|mut fm| fm.ask(&Request::Overview));
        match answer.map_err(|error| error.to_string())? {
            Response::Overview(overview) => Ok(page::page(&overview)),
            _ => Err("the fabric manager answered another request".to_owned()),
        }
    };
    confine::keep_only(CapabilitySet::empty())
        .map_err(|source| CliError::system("give up capabilities", source))?;
    let mut supervisor = Supervisor::begin(Log::default())?;
    let pages = Arc::new(Pages::new(Box::new(make), addr));
    let server = TcpServer::start("page of the fabric", addr, LIMITS, pages);
    let server = server.map_err(|source| CliError::system("serve the page", source))?;
    anstream::eprintln!("the page of the fabric is at http://{}/", server.addr());
    let signal = supervisor.wait(no_reload);
    anstream::eprintln!("stopping on {signal}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn said(pages: &Pages, head: &str) -> String {
        let response = http::respond(head.as_bytes(), true, |asked| pages.response(asked));
        String::from_utf8(response.unwrap()).unwrap()
    }

    #[test]
    fn there_is_one_page_for_who_may_look() {
        let made = Arc::new(AtomicU32::new(0));
        let count = made.clone();
        let make = move || Ok(format!("<p>{}</p>", count.fetch_add(1, Ordering::SeqCst)));
        let pages = Pages::new(Box::new(make), "127.0.0.1:9465".parse().unwrap());
        #[rustfmt::skip] // columns: head, start and end of the response
        let cases = [
            ("GET / HTTP/1.1\r\nHost: localhost:9465\r\n\r\n", "HTTP/1.1 200 OK", "<p>0</p>"),
            ("GET /?x HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK", "<p>0</p>"),
            ("HEAD / HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK", "\r\n\r\n"),
            ("GET / HTTP/1.1\r\nHost: rebind.example\r\n\r\n", "HTTP/1.1 403 ", "there alone\n"),
            ("GET /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 404 ", "there is /\n"),
            ("POST / HTTP/1.1\r\n\r\n", "HTTP/1.1 405 ", "\r\n\r\n"),
            ("GET / HTTP", "HTTP/1.1 400 ", "\r\n\r\n"),
        ];
        for (head, start, end) in cases {
            let got = said(&pages, head);
            assert!(got.starts_with(start) && got.ends_with(end), "{head:?}: {got}");
            assert!(got.contains("X-Content-Type-Options: nosniff\r\n"), "{head:?}: {got}");
            let is_page = start.contains("200");
            assert_eq!(got.contains("\r\nRefresh: 2\r\n"), is_page, "{head:?}: {got}");
            assert_eq!(got.contains("frame-ancestors 'none'"), is_page, "{head:?}: {got}");
        }
        assert_eq!(made.load(Ordering::SeqCst), 1, "made once in a second, and only for a page");
    }

    /// Browsers do not keep the manager busy when a silent host makes its answers slow.
    #[test]
    fn a_page_that_takes_long_is_made_the_more_seldom() {
        let make = || {
            weft_base::wait::pause(std::time::Duration::from_millis(300));
            Ok(String::new())
        };
        let pages = Pages::new(Box::new(make), "127.0.0.1:9465".parse().unwrap());
        let begin = pages.clock.now();
        pages.page();
        let due = pages.last.lock().unwrap().as_ref().unwrap().0;
        assert!(due.since(begin) >= Span::from_ms(3_290), "{:?}", due.since(begin));
    }

    #[test]
    fn browsers_ask_again_when_there_is_no_page() {
        let make = || Err("no fabric manager listens at <b>".to_owned());
        let pages = Pages::new(Box::new(make), "127.0.0.1:9465".parse().unwrap());
        let got = said(&pages, "GET / HTTP/1.1\r\n\r\n");
        assert!(got.starts_with("HTTP/1.1 503 ") && got.contains("\r\nRefresh: 2\r\n"), "{got}");
        assert!(got.contains("Content-Type: text/plain") && got.ends_with("at <b>\n"), "{got}");
    }
}
