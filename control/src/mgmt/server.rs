//! The server of the management socket: one blocking thread a client, up to a bound.
//!
//! Shape: lines in, answers of [`Backend`] out; a client must be of our user, or root.
//! Units: octets, seconds.
//! Source: unix(7), `SO_PEERCRED`.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::json;

use super::dir::{SocketError, clean_up, listen};
use super::{
    Answer, Backend, LINE_LEN_MAX, Lines, OfSwitch, Refused, TraceStream, Traced, to_line,
};

/// Most clients at a time.
pub const CLIENTS_MAX: usize = 32;
/// A client that asks nothing for so long is sent away.
const IDLE_MAX: Duration = Duration::from_secs(300);
/// A client that takes no answer for so long is sent away.
const WRITE_MAX: Duration = Duration::from_secs(5);
/// How often a trace without frames looks whether its client is still there.
const TRACE_WAIT: Duration = Duration::from_millis(200);

/// Clients that are connected, so that stopping can reach them.
#[derive(Default)]
struct Clients {
    stopping: AtomicBool,
    streams: Mutex<Registered>,
}

#[derive(Default)]
struct Registered {
    next: u64,
    streams: BTreeMap<u64, UnixStream>,
    threads: BTreeMap<u64, JoinHandle<()>>,
}

impl Clients {
    fn lock(&self) -> MutexGuard<'_, Registered> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A management socket that is being served; dropping it ends that.
pub struct Server {
    path: PathBuf,
    clients: Arc<Clients>,
    acceptor: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves `backend` at `path`.
    ///
    /// # Errors
    /// The socket cannot be made, is in use, or would be open to others.
    pub fn start(path: &Path, backend: Arc<dyn Backend>) -> Result<Self, SocketError> {
        Self::serve(path, Arc::new(OfSwitch(backend)))
    }

    /// Serves whoever answers lines at `path`.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn serve(path: &Path, backend: Arc<dyn Lines>) -> Result<Self, SocketError> {
        let listener = listen(path)?;
        let clients = Arc::new(Clients::default());
        let shared = clients.clone();
        let acceptor = std::thread::Builder::new()
            .name("weft-mgmt".to_owned())
            .spawn(move || accept(&listener, &shared, &backend))
            .map_err(|source| SocketError::Io {
                call: "start a thread for",
                path: path.to_owned(),
                source,
            })?;
        Ok(Self { path: path.to_owned(), clients, acceptor: Some(acceptor) })
    }

    /// Where it listens.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.clients.stopping.store(true, Ordering::SeqCst);
        // Wakes the acceptor; when nobody can connect it is gone already.
        let woken = UnixStream::connect(&self.path).is_ok();
        if let Some(acceptor) = self.acceptor.take()
            && woken
        {
            let _ = acceptor.join(); // a panic has been printed
        }
        let (streams, threads) = {
            let mut registered = self.clients.lock();
            (std::mem::take(&mut registered.streams), std::mem::take(&mut registered.threads))
        };
        for stream in streams.values() {
            let _ = stream.shutdown(Shutdown::Both); // it may be closed already
        }
        for thread in threads.into_values() {
            let _ = thread.join(); // a panic has been printed
        }
        clean_up(&self.path);
    }
}

fn accept(listener: &UnixListener, clients: &Arc<Clients>, backend: &Arc<dyn Lines>) {
    for stream in listener.incoming() {
        if clients.stopping.load(Ordering::SeqCst) {
            return;
        }
        // Too many files: the client sees that it is closed, and others end meanwhile.
        let Ok(stream) = stream else { continue };
        if let Err(refused) = admit(&stream, clients, backend) {
            // It learns why, if it listens at all.
            let _ = stream.set_write_timeout(Some(TRACE_WAIT));
            let _ = (&stream).write_all(&to_line(&json!({ "error": refused })));
        }
    }
}

fn admit(
    stream: &UnixStream,
    clients: &Arc<Clients>,
    backend: &Arc<dyn Lines>,
) -> Result<(), Refused> {
    let failed = |error: io::Error| Refused::unavailable(error.to_string());
    let peer = rustix::net::sockopt::socket_peercred(stream).map_err(|e| failed(e.into()))?;
    if !peer.uid.is_root() && peer.uid != rustix::process::geteuid() {
        return Err(Refused::because("only root and the user that runs the switch may ask"));
    }
    let mut registered = clients.lock();
    if registered.streams.len() >= CLIENTS_MAX {
        return Err(Refused::unavailable(format!("{CLIENTS_MAX} clients are connected already")));
    }
    stream.set_read_timeout(Some(IDLE_MAX)).map_err(failed)?;
    stream.set_write_timeout(Some(WRITE_MAX)).map_err(failed)?;
    let number = registered.next;
    registered.next += 1;
    let (kept, own) = (stream.try_clone().map_err(failed)?, stream.try_clone().map_err(failed)?);
    registered.streams.insert(number, kept);
    let (shared, backend) = (clients.clone(), backend.clone());
    let spawned =
        std::thread::Builder::new().name("weft-mgmt-client".to_owned()).spawn(move || {
            // Whatever ends a client, the others go on.
            let _ = serve(&own, backend.as_ref());
            let mut registered = shared.lock();
            registered.streams.remove(&number);
            registered.threads.remove(&number);
        });
    match spawned {
        Ok(thread) => {
            registered.threads.insert(number, thread);
            Ok(())
        }
        Err(error) => {
            registered.streams.remove(&number);
            Err(failed(error))
        }
    }
}

/// Answers one client's lines until it goes.
fn serve(stream: &UnixStream, backend: &dyn Lines) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut out = stream;
    let mut line = Vec::new();
    while read_line(&mut reader, &mut line)? {
        if line.len() > LINE_LEN_MAX {
            // What follows belongs to a line that nobody reads: the end.
            return match backend.answer(&line) {
                Answer::Line(answer) | Answer::Stream(answer, _) => out.write_all(&answer),
            };
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        match backend.answer(&line) {
            Answer::Line(answer) => out.write_all(&answer)?,
            Answer::Stream(first, mut paths) => {
                out.write_all(&first)?;
                stream_paths(stream, paths.as_mut())?;
            }
        }
    }
    Ok(())
}

/// Sends paths until they end or the client goes.
fn stream_paths(mut stream: &UnixStream, paths: &mut dyn TraceStream) -> io::Result<()> {
    loop {
        match paths.next(TRACE_WAIT) {
            Traced::Path(path) => stream.write_all(&to_line(&json!({ "path": path })))?,
            Traced::Ended(end) => return stream.write_all(&to_line(&json!({ "end": end }))),
            Traced::Nothing => {
                if has_gone(stream)? {
                    return Ok(());
                }
            }
        }
    }
}

/// Whether the other end has closed.
fn has_gone(stream: &UnixStream) -> io::Result<bool> {
    use rustix::net::RecvFlags;
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    match rustix::net::recv(stream, &mut [0_u8; 1][..], flags) {
        Ok((_, count)) => Ok(count == 0),
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Reads up to and without a newline into `line`; more than the bound is cut off one octet above it.
/// False at the end.
fn read_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    loop {
        let available = match reader.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        if available.is_empty() {
            return Ok(!line.is_empty());
        }
        let newline = available.iter().position(|byte| *byte == b'\n');
        let end = newline.unwrap_or(available.len());
        let room = (LINE_LEN_MAX + 1).saturating_sub(line.len());
        line.extend(available.iter().take(end.min(room)));
        if line.len() > LINE_LEN_MAX {
            return Ok(true);
        }
        reader.consume(newline.map_or(end, |at| at + 1));
        if newline.is_some() {
            return Ok(true);
        }
    }
}
