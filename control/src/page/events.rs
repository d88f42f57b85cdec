//! Server-sent events: sends each new state to a client, until it goes or is too slow.
//!
//! [`serve`] writes a response that does not end.
//!
//! Source: WHATWG HTML, "Server-sent events"; docs/page.md.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use super::feed::{Feed, Viewer};
use crate::serve::{Client, wait};

/// Longest time until a client makes room for more of an event. A client that takes a little now and then has the time
/// of an answer ([`Limits::answer`](crate::serve::Limits)) for the whole event.
const SLOW: Duration = Duration::from_secs(2);
/// Send buffer in the kernel: small, so that a client that does not read is noticed soon.
const SEND_BUFFER: usize = 64 * 1024;

/// Sends the head, and then each state as it is read.
///
/// # Errors
/// The connection has ended.
pub fn serve(client: &Client, head: &[u8], feed: &Feed, viewer: &Viewer<'_>) -> io::Result<()> {
    // A kernel that refuses it only delays the moment at which a slow client is noticed.
    let _ = rustix::net::sockopt::set_socket_send_buffer_size(client.stream(), SEND_BUFFER);
    client.send(head)?;
    let mut seen = 0;
    while !client.is_over() {
        let (number, state) = feed.latest();
        if number != seen {
            seen = number;
            let event = format!("id: {number}\ndata: {state}\n\n");
            let Ok(_held) = client.hold(event.len()) else {
                // This client does not read, or others do not and use the memory.
                viewer.is_slow();
                return Ok(());
            };
            match client.answering(|stream| stream.send_within(event.as_bytes(), SLOW)) {
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    viewer.is_slow();
                    return Err(error);
                }
                sent => sent?,
            }
        }
        // Sleeps until the next state is due; a client that closes wakes it.
        let [has_more] = wait([client.stream().as_fd()], Some(feed.due_in()));
        if has_more {
            // A client of events sends nothing after its request: it has closed.
            return Ok(());
        }
    }
    Ok(())
}
