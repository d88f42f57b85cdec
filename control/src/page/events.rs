//! Server-sent events: each new state to a client, until it goes or is too slow.
//!
//! [`serve`] writes a response without an end.
//!
//! Units: bytes; [`Duration`]s.
//! Source: WHATWG HTML, "Server-sent events"; docs/page.md.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use super::feed::{Feed, Viewer};
use crate::serve::{Client, wait};

/// How long a client may take to make room for more of an event. One that takes a little now and then has the time for an
/// answer ([`Limits::answer`](crate::serve::Limits)) for all of it.
const SLOW: Duration = Duration::from_secs(2);
/// What the kernel keeps for a client that does not read, so that it is soon known.
const SEND_BUFFER: usize = 64 * 1024;

/// Sends the head, and then each state as it is read.
///
/// # Errors
/// The connection is over.
pub fn serve(client: &Client, head: &[u8], feed: &Feed, viewer: &Viewer<'_>) -> io::Result<()> {
    let _ = rustix::net::sockopt::set_socket_send_buffer_size(client.stream(), SEND_BUFFER); // else it is known later
    client.send(head)?;
    let mut seen = 0;
    while !client.is_over() {
        let (number, state) = feed.latest();
        if number != seen {
            seen = number;
            let event = format!("id: {number}\ndata: {state}\n\n");
            let Ok(_held) = client.hold(event.len()) else {
                viewer.is_slow(); // others do not read, or this one
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
        let [has_more] = wait([client.stream().as_fd()], Some(feed.due_in()));
        if has_more {
            return Ok(()); // it has gone; there is nothing that it could say
        }
    }
    Ok(())
}
