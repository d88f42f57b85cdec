//! Requests and answers as JSON, a line each, over Unix sockets.
//!
//! A line in, `{"ok": ...}` or `{"error": {...}}` out; some answers are followed by more lines.
//! [`LineHandler`] is the server's side, [`Client`] the client's.
//!
//! Source: ARCHITECTURE.md "Control"; JSON is RFC 8259.
//!
//! A server that adds, and a client that asks it:
//!
//! ```
//! use std::io::{BufRead, BufReader, Write};
//! use std::os::unix::net::UnixListener;
//! use serde::{Deserialize, Serialize};
//! use serde_json::json;
//! use weft_rpc::{Answer, Client, LineHandler, Refused, ok_line, parse, to_line};
//!
//! #[derive(Serialize, Deserialize)]
//! struct Add(u32, u32);
//!
//! struct Adder;
//!
//! impl LineHandler for Adder {
//!     fn answer(&self, line: &[u8]) -> Answer {
//!         let sum = parse(line).and_then(|Add(a, b)| {
//!             a.checked_add(b).ok_or_else(|| Refused::because("expected a sum below 2^32"))
//!         });
//!         let line = sum.and_then(|sum| ok_line(&sum));
//!         Answer::Line(line.unwrap_or_else(|refused| to_line(&json!({ "error": refused }))))
//!     }
//! }
//!
//! # let path = std::env::temp_dir().join(format!("weft-rpc-front-{}.sock", std::process::id()));
//! # let _ = std::fs::remove_file(&path);
//! let listener = UnixListener::bind(&path)?;
//! std::thread::spawn(move || -> std::io::Result<()> {
//!     let (mut stream, _) = listener.accept()?;
//!     for line in BufReader::new(stream.try_clone()?).split(b'\n') {
//!         if let Answer::Line(answer) = Adder.answer(&line?) {
//!             stream.write_all(&answer)?;
//!         }
//!     }
//!     Ok(())
//! });
//! let mut client = Client::connect(&path)?;
//! assert_eq!(client.request(&Add(2, 3))?, json!(5));
//! let refused = client.request(&Add(u32::MAX, 1)).expect_err("it is too much");
//! assert_eq!(refused.to_string(), "expected a sum below 2^32");
//! # std::fs::remove_file(&path)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Refused`] has the reason why a request is not carried out, with a code for programs;
//! [`Answer::Stream`] goes on after the first line, and [`Client::follow`] reads the lines.

mod client;

use std::io::{self, Write};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use client::{Client, ClientError};

/// Longest request, in bytes with its newline.
pub const LINE_LEN_MAX: usize = 64 * 1024;

/// A refusal: why a request was not carried out; goes to the client as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{message}")]
pub struct Refused {
    /// `bad_request`, `refused`, `unavailable`: for programs.
    pub code: String,
    /// One sentence for people.
    pub message: String,
}

impl Refused {
    /// A refusal because the request itself is wrong.
    #[must_use]
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self { code: "bad_request".to_owned(), message: message.into() }
    }

    /// A refusal because the server will not do it.
    #[must_use]
    pub fn because(message: impl Into<String>) -> Self {
        Self { code: "refused".to_owned(), message: message.into() }
    }

    /// A refusal because the server cannot do it now.
    #[must_use]
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self { code: "unavailable".to_owned(), message: message.into() }
    }
}

/// Answers requests, a line each; all methods may be called from several threads at once.
pub trait LineHandler: Send + Sync {
    /// Answers one line, which may be longer than [`LINE_LEN_MAX`].
    fn answer(&self, line: &[u8]) -> Answer;
}

/// Answer to a request line.
pub enum Answer {
    /// One line, with its newline.
    Line(Vec<u8>),
    /// A line, then others until they end.
    Stream(Vec<u8>, Box<dyn LineStream>),
}

/// The lines that follow an answer, for one client: a subscription.
pub trait LineStream: Send {
    /// The next line; waits for it, but no longer than `wait`.
    fn next(&mut self, wait: Duration) -> Next;
}

/// The outcome of waiting for a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// A line, with its newline.
    Line(Vec<u8>),
    Nothing,
    /// The last line, with its newline.
    End(Vec<u8>),
}

/// Reads a request from its line.
///
/// # Errors
/// The line is too long, or not a request; a request that has no fields comes with some.
pub fn parse<T: Serialize + serde::de::DeserializeOwned>(line: &[u8]) -> Result<T, Refused> {
    if line.len() > LINE_LEN_MAX {
        let message = format!("expected at most {LINE_LEN_MAX} bytes, found {}", line.len());
        return Err(Refused::bad_request(message));
    }
    let bad = |error: serde_json::Error| Refused::bad_request(error.to_string());
    let request: T = serde_json::from_slice(line).map_err(bad)?;
    // serde ignores the fields of a variant that has none, also where unknown ones are denied.
    let read = serde_json::to_value(&request).map_err(bad)?;
    if read.as_object().is_some_and(|read| read.len() == 1)
        && let Value::Object(given) = serde_json::from_slice(line).map_err(bad)?
        && let Some((field, _)) =
            given.iter().find(|(field, value)| read.get(*field).is_none() && !is_default(value))
    {
        return Err(Refused::bad_request(format!(
            "unknown field `{field}`: this request has none"
        )));
    }
    Ok(request)
}

/// Whether a field with this value may be left out, so that the parsed request need not have it.
fn is_default(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_u64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(true) => false,
    }
}

/// Writes `value` as JSON on one line, with its newline.
#[must_use]
pub fn to_line(value: &Value) -> Vec<u8> {
    let mut line = value.to_string().into_bytes();
    line.push(b'\n');
    line
}

/// A buffer that reports when there is no memory for more, in place of ending the process.
#[derive(Default)]
struct Carefully(Vec<u8>);

impl Write for Carefully {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_reserve(bytes.len()).map_err(io::Error::other)?;
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes `value` as a line `{"ok": value}`, without a copy of it in between.
///
/// # Errors
/// There is no memory for it.
pub fn ok_line(value: &impl serde::Serialize) -> Result<Vec<u8>, Refused> {
    let mut line = Carefully::default();
    let mut write = || -> io::Result<()> {
        line.write_all(b"{\"ok\":")?;
        serde_json::to_writer(&mut line, value)?;
        line.write_all(b"}\n")
    };
    write().map_err(|error| Refused::unavailable(error.to_string()))?;
    Ok(line.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(tag = "cmd", rename_all = "snake_case", deny_unknown_fields)]
    enum Request {
        Bare,
        With {
            #[serde(default, skip_serializing_if = "Option::is_none")]
            after: Option<u64>,
        },
    }

    #[test]
    fn a_request_without_fields_takes_none() {
        let read = |line: &str| parse::<Request>(line.as_bytes());
        assert_eq!(read(r#"{"cmd": "bare"}"#).unwrap(), Request::Bare);
        let with = |after| Request::With { after };
        assert_eq!(read(r#"{"cmd": "with"}"#).unwrap(), with(None));
        assert_eq!(read(r#"{"cmd": "with", "after": null}"#).unwrap(), with(None));
        assert_eq!(read(r#"{"cmd": "with", "after": 3}"#).unwrap(), with(Some(3)));
        for (line, part) in [
            (r#"{"cmd": "bare", "after": 3}"#, "unknown field `after`"),
            (r#"{"cmd": "bare", "force": true}"#, "unknown field `force`"),
            (r#"{"cmd": "with", "force": true}"#, "unknown field `force`"),
            (r#"{"cmd": "dance"}"#, "dance"),
            ("", "EOF"),
            ("[1, 2]", "expected"),
        ] {
            let message = read(line).unwrap_err().message;
            assert!(message.contains(part), "{line}: {message}");
        }
    }
}
