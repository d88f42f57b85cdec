//! Requests and responses of the small HTTP servers of this program: one request for each connection.
//!
//! [`read`] a request from a client, [`respond`] to its head, [`send`].
//!
//! Source: RFC 9110, RFC 9112; request heads are read by `httparse`.

use std::io::{self, Read};

use crate::serve::Client;

/// Longest request head, in bytes.
pub const HEAD_LEN_MAX: usize = 8 * 1024;
/// Most headers of a request.
const HEADERS_MAX: usize = 64;
pub const TEXT: &str = "text/plain; charset=utf-8";
pub const HTML: &str = "text/html; charset=utf-8";
/// Headers of every response: browsers take its type as given, do not store it, send no referrer, and let no other site
/// use it.
pub const ALWAYS: &str = "X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n\
                          Referrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\n";

/// A request, as far as the servers need it.
#[derive(Debug)]
pub struct Asked<'a> {
    /// The path without the query.
    pub path: &'a str,
    pub headers: &'a [httparse::Header<'a>],
    /// Whether the method is HEAD, not GET.
    pub is_head: bool,
}

#[must_use]
pub fn message(status: &str, kind: &str, extra: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n{ALWAYS}{extra}Content-Length: {length}\r\n\
         Connection: close\r\n\r\n"
    );
    head.into_bytes().into_iter().chain(body.bytes()).collect()
}

/// Makes the response to GET one to HEAD: the same head without the body.
pub fn drop_body(response: &mut Vec<u8>) {
    const END: &[u8] = b"\r\n\r\n";
    if let Some(at) = response.windows(END.len()).position(|four| four == END) {
        response.truncate(at + END.len());
    }
}

/// The response to a request whose first bytes are `head`: that of `answer`, or a refusal; `None` while more bytes are
/// needed. With `is_all` nothing comes after `head`.
pub fn respond<R: From<Vec<u8>>>(
    head: &[u8],
    is_all: bool,
    answer: impl FnOnce(&Asked<'_>) -> R,
) -> Option<R> {
    let whole = |status: &str, extra: &str| Some(message(status, TEXT, extra, "").into());
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(head) {
        Ok(httparse::Status::Complete(_)) => {}
        // The client has closed its side: the rest of the head will not come.
        Ok(httparse::Status::Partial) if is_all => return whole("400 Bad Request", ""),
        Ok(httparse::Status::Partial) if head.len() <= HEAD_LEN_MAX => return None,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return whole("431 Request Header Fields Too Large", "");
        }
        Err(_) => return whole("400 Bad Request", ""),
    }
    let is_head = match request.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return whole("405 Method Not Allowed", "Allow: GET, HEAD\r\n"),
    };
    let path = request.path.map_or("", |path| path.split('?').next().unwrap_or(""));
    Some(answer(&Asked { path, headers: request.headers, is_head }))
}

/// Reads until `respond` has a response.
///
/// # Errors
/// The client goes, or is sent away.
pub fn read<R>(mut client: &Client, respond: impl Fn(&[u8], bool) -> Option<R>) -> io::Result<R> {
    let (mut head, mut part) = (Vec::new(), [0; 1024]);
    loop {
        let count = client.read(&mut part)?;
        client.asking();
        head.extend_from_slice(part.get(..count).unwrap_or_default());
        if let Some(response) = respond(&head, count == 0) {
            return Ok(response);
        }
    }
}

/// Sends a response, if there is memory for it, and ends the connection.
///
/// # Errors
/// The client goes, or is sent away.
pub fn send(client: &Client, response: Vec<u8>) -> io::Result<()> {
    // The share is held until the client has taken the response; without one a short refusal is sent.
    let (_held, response) = match client.hold(response.capacity()) {
        Ok(held) => (Some(held), response),
        Err(_) => (None, message("503 Service Unavailable", TEXT, "Retry-After: 5\r\n", "")),
    };
    client.send(&response)?;
    // Only the sending side: closing both at once could lose the response to unread bytes of the client.
    client.stream().finish();
    Ok(())
}
