//! Client of a server: one request at a time, its answer, and the lines that follow it.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Refused;

/// Time that an answer may take: a reload compiles tables.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// Why a request got no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nothing listens at the socket.
    #[error("nothing listens at {}", path.display())]
    Connect { path: PathBuf, source: io::Error },
    #[error("connection to the server")]
    Io(#[source] io::Error),
    /// The server closed the connection before it had answered.
    #[error("the server has closed the connection: it has stopped, or has sent this client away")]
    Closed,
    #[error("{0}")]
    Refused(#[from] Refused),
    /// The answer cannot be read: another version of weft?
    #[error("answer of the server is not understood: {0}")]
    Answer(String),
    /// It is not clear which switch is meant.
    #[error("{0}")]
    Ambiguous(String),
}

impl From<io::Error> for ClientError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Self::Closed,
            _ => Self::Io(error),
        }
    }
}

/// A line of the server.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Ok(Value),
    Error(Refused),
}

/// A connection to a server.
#[derive(Debug)]
pub struct Client {
    reader: BufReader<UnixStream>,
}

impl Client {
    /// Connects to the server that listens at `path`.
    ///
    /// # Errors
    /// Nothing listens there, or the kernel refuses.
    pub fn connect(path: &Path) -> Result<Self, ClientError> {
        Self::connect_for(path, ANSWER_MAX)
    }

    /// As [`connect`](Self::connect), with an answer that may take as long as `longest`.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn connect_for(path: &Path, longest: Duration) -> Result<Self, ClientError> {
        let stream = UnixStream::connect(path)
            .map_err(|source| ClientError::Connect { path: path.to_owned(), source })?;
        stream.set_read_timeout(Some(longest))?;
        // a server that reads nothing must not hold its client up either
        stream.set_write_timeout(Some(ANSWER_MAX))?;
        Ok(Self { reader: BufReader::new(stream) })
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// A refusal, or a connection that broke.
    pub fn request(&mut self, request: &impl Serialize) -> Result<Value, ClientError> {
        let mut line = serde_json::to_vec(request).map_err(io::Error::other)?;
        line.push(b'\n');
        self.reader.get_ref().write_all(&line)?;
        match self.line()? {
            Line::Ok(value) => Ok(value),
            Line::Error(refused) => Err(refused.into()),
        }
    }

    /// The next line that follows an answer.
    ///
    /// # Errors
    /// A connection that broke, or a line that is not a `T`.
    pub fn follow<T: DeserializeOwned>(&mut self) -> Result<T, ClientError> {
        self.reader.get_ref().set_read_timeout(None)?; // they come when they come
        self.line()
    }

    /// Waits for `time` at most; whether [`follow`](Self::follow) would return at once, with a line
    /// or the end.
    ///
    /// # Errors
    /// The kernel refuses to wait.
    pub fn has_line(&self, time: Duration) -> Result<bool, ClientError> {
        // a line that is buffered already does not make the socket readable
        Ok(!self.reader.buffer().is_empty() || !self.wait(time)?)
    }

    /// Waits for `time`; false if the server closed the connection meanwhile.
    ///
    /// # Errors
    /// The kernel refuses to wait.
    pub fn wait(&self, time: Duration) -> Result<bool, ClientError> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let timeout = Timespec::try_from(time).map_err(io::Error::other)?;
        let mut fds = [PollFd::new(self.reader.get_ref(), PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(ready) => Ok(ready == 0),
            // a signal says nothing about the server
            Err(rustix::io::Errno::INTR) => Ok(true),
            Err(error) => Err(io::Error::from(error).into()),
        }
    }

    fn line<T: DeserializeOwned>(&mut self) -> Result<T, ClientError> {
        let mut line = String::new();
        self.reader.read_line(&mut line)?;
        // a line that breaks off is the end of the connection, not an answer
        if !line.ends_with('\n') {
            return Err(ClientError::Closed);
        }
        serde_json::from_str(&line).map_err(|error| ClientError::Answer(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    /// A server that goes is said to have gone, however far it came.
    #[test]
    fn a_connection_that_is_closed_is_no_answer() {
        let dir = tempfile::tempdir().unwrap();
        for (at, said) in ["", "{\"ok\"", "{\"ok\":1}"].into_iter().enumerate() {
            let path = dir.path().join(at.to_string());
            let listener = UnixListener::bind(&path).unwrap();
            let mut client = Client::connect(&path).unwrap();
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(said.as_bytes()).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            assert!(matches!(client.request(&1), Err(ClientError::Closed)), "{said:?}");
            drop(stream);
            assert!(matches!(client.request(&1), Err(ClientError::Closed)), "{said:?}, later");
        }
    }
}
