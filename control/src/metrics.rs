//! Metrics over HTTP, for Prometheus.
//!
//! Shape: `GET /metrics` in, [`prometheus::render`] of the backend's report out; one request a
//! connection, a few connections at a time.
//! Units: bytes, seconds.
//! Source: RFC 9110, RFC 9112; request heads are read by `httparse`.

use std::io::{self, Read};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use weft_base::threads::Role;

use crate::report::prometheus;
use crate::requests::Backend;
use crate::serve::{Client, Limits, Protocol, Stream, TcpError, TcpServer, Trust};

/// What clients may use.
pub const LIMITS: Limits = Limits {
    clients: 8,
    unknown: 0,
    idle: Duration::from_secs(5),
    request: Duration::from_secs(5),
    answer: Duration::from_secs(10),
    unread: 64 << 20,
};
/// Longest request head.
const HEAD_LEN_MAX: usize = 8 * 1024;

/// Serves `backend`'s report at `addr`; port 0 takes any.
///
/// # Errors
/// The address cannot be had.
pub fn start(addr: SocketAddr, backend: Arc<dyn Backend>) -> Result<TcpServer, TcpError> {
    TcpServer::start("metrics server", addr, LIMITS, Arc::new(Pages(backend)))
}

struct Pages(Arc<dyn Backend>);

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
        let _ = serve(client, self.0.as_ref());
    }
}

fn serve(mut client: &Client, backend: &dyn Backend) -> io::Result<()> {
    let mut head = Vec::new();
    let mut part = [0; 1024];
    loop {
        let count = client.read(&mut part)?;
        client.asking();
        head.extend_from_slice(part.get(..count).unwrap_or_default());
        let Some(response) = respond(&head, count == 0, backend) else { continue };
        let (_held, response) = match client.hold(response.capacity()) {
            Ok(held) => (Some(held), response),
            Err(_) => (None, message("503 Service Unavailable", "Retry-After: 5\r\n", b"")),
        };
        client.send(&response)?;
        client.stream().finish();
        return Ok(());
    }
}

/// The response to a request whose first bytes are `head`; none while more is needed.
#[must_use]
pub fn respond(head: &[u8], is_all: bool, backend: &dyn Backend) -> Option<Vec<u8>> {
    const HEADERS_MAX: usize = 64;
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(head) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) if is_all => {
            return Some(message("400 Bad Request", "", b""));
        }
        Ok(httparse::Status::Partial) if head.len() <= HEAD_LEN_MAX => return None,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Some(message("431 Request Header Fields Too Large", "", b""));
        }
        Err(_) => return Some(message("400 Bad Request", "", b"")),
    }
    let path = request.path.map_or("", |path| path.split('?').next().unwrap_or(""));
    let is_head = match request.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Some(message("405 Method Not Allowed", "Allow: GET, HEAD\r\n", b"")),
    };
    let (status, kind, body) = match path {
        "/metrics" => {
            ("200 OK", prometheus::CONTENT_TYPE, prometheus::render(&backend.stats(None)))
        }
        "/" => ("200 OK", "text/plain; charset=utf-8", "weft: see /metrics\n".to_owned()),
        _ => ("404 Not Found", "text/plain; charset=utf-8", "see /metrics\n".to_owned()),
    };
    let extra = format!("Content-Type: {kind}\r\n");
    let mut response = message(status, &extra, body.as_bytes());
    if is_head {
        response.truncate(response.len() - body.len());
    }
    Some(response)
}

fn message(status: &str, extra: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\n{extra}Content-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    let mut message = head.into_bytes();
    message.extend_from_slice(body);
    message
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpStream;

    use super::*;
    use crate::requests::testing::Recorder;

    #[test]
    fn requests_are_answered_by_method_and_path() {
        #[rustfmt::skip] // columns: head, whether that is all, wanted start and part
        let cases = [
            ("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", false, Some(("HTTP/1.1 200 OK", "weft_info{"))),
            ("GET /metrics?x=1 HTTP/1.0\r\n\r\n", false, Some(("HTTP/1.1 200 OK", "weft_info{"))),
            ("GET / HTTP/1.1\r\n\r\n", false, Some(("HTTP/1.1 200 OK", "see /metrics"))),
            ("GET /x HTTP/1.1\r\n\r\n", false, Some(("HTTP/1.1 404 Not Found", ""))),
            ("POST /metrics HTTP/1.1\r\n\r\n", false, Some(("HTTP/1.1 405 ", "Allow: GET"))),
            ("GET /metrics HTTP/1.1\r\nHost", false, None),
            ("GET /metrics HTTP/1.1\r\nHost", true, Some(("HTTP/1.1 400 ", ""))),
            ("\0\0\0\0", false, Some(("HTTP/1.1 400 ", ""))),
        ];
        let backend = Recorder::default();
        for (head, is_all, want) in cases {
            let got =
                respond(head.as_bytes(), is_all, &backend).map(|r| String::from_utf8(r).unwrap());
            match (got, want) {
                (None, None) => {}
                (Some(got), Some((start, part))) => {
                    assert!(got.starts_with(start) && got.contains(part), "{head:?}: {got}");
                }
                (got, _) => panic!("{head:?}: {got:?}"),
            }
        }
        let long = format!("GET / HTTP/1.1\r\nX: {}", "y".repeat(HEAD_LEN_MAX));
        let got = respond(long.as_bytes(), false, &backend).unwrap();
        assert!(got.starts_with(b"HTTP/1.1 431 "));
        let got = respond(b"HEAD /metrics HTTP/1.1\r\n\r\n", false, &backend).unwrap();
        assert!(got.ends_with(b"\r\n\r\n"));
    }

    /// All places are taken by heads that never end, and Prometheus is answered all the same.
    #[test]
    fn slow_clients_do_not_keep_prometheus_out() {
        let any = "127.0.0.1:0".parse().unwrap();
        let server = start(any, Arc::new(Recorder::default())).unwrap();
        let slow: Vec<_> = (0..3 * LIMITS.clients)
            .map(|_| {
                let mut stream = TcpStream::connect(server.addr()).unwrap();
                stream.write_all(b"GET /metr").unwrap();
                stream
            })
            .collect();
        let mut stream = TcpStream::connect(server.addr()).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        assert!(page.contains("\nweft_unaccounted_frames 0\n"), "{page}");
        drop(slow);
    }

    #[test]
    fn prometheus_reads_over_tcp() {
        let any = "127.0.0.1:0".parse().unwrap();
        let server = start(any, Arc::new(Recorder::default())).unwrap();
        let addr = server.addr();
        for _ in 0..2 * LIMITS.clients {
            let mut stream = TcpStream::connect(addr).unwrap();
            stream.write_all(b"GET /metr").unwrap();
            stream.write_all(b"ics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
            let mut page = String::new();
            stream.read_to_string(&mut page).unwrap();
            assert!(page.contains("\nweft_unaccounted_frames 0\n"), "{page}");
        }
        drop(server);
        assert!(TcpStream::connect(addr).is_err(), "nobody listens any more");
    }
}
