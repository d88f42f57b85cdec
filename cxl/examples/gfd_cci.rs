//! A G-FAM device that a fabric manager can command over TCP: what `tests/py/check_cci.py --kind gfd` is run against.
//!
//! Prints the address that it listens on; each connection is a session of a fabric manager.
//!
//! Units: bytes.
//! Source: docs/spec/cxl-fabric.md "The fabric manager" (the stream); docs/spec/wire-formats.md §4.7.
#![expect(clippy::print_stdout, reason = "the address is what whoever starts it waits for")]
#![expect(clippy::disallowed_methods, reason = "an example reads the clock")]

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};

use weft_base::wait;
use weft_cxl::cci::{Component, Session, StreamServer};
use weft_cxl::gfd::dmp::{Dmp, Media, Region};
use weft_cxl::gfd::{Config, Gfd, Memory, ReturnCode};
use weft_cxl::gfd_end::Device;
use weft_dataplane::time::{Instant, LinkRate};
use weft_parsers::fabric::{Dpa, Pid};

/// 1 GiB in one partition and one region, nothing of it given out.
fn device() -> Result<Device, ReturnCode> {
    let len = 1 << 30;
    let config = Config { dmps: 1, regions: 1, ..Config::full(Pid::NONE, LinkRate::gbps(100)) };
    let mut gfd = Gfd::new(config, Memory::anonymous(len));
    let (base, block, media) = (Dpa(0), 256 << 20, Media::default());
    gfd.set_dmps(&[Dmp { index: 0, base, decode_len: len, len, block, media }])?;
    gfd.set_region(Region { id: 0, block, sanitize: true, base, decode_len: len, len })?;
    Ok(Device::new(gfd, 1))
}

/// Serves what has come by one connection; false once it is over.
fn serve(
    device: &mut Device,
    now: Instant,
    stream: &mut TcpStream,
    server: &mut StreamServer,
) -> bool {
    let mut bytes = [0; 4_096];
    match stream.read(&mut bytes) {
        Ok(0) => false,
        Ok(len) => {
            let mut out = Vec::new();
            let bytes = bytes.get(..len).unwrap_or_default();
            let taken = server.receive(device, now, bytes, &mut out);
            stream.write_all(&out).is_ok() && taken.is_ok()
        }
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut device = device()?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    println!("{}", listener.local_addr()?);
    let start = std::time::Instant::now();
    let (mut connections, mut next) = (BTreeMap::new(), 0);
    loop {
        if let Ok((stream, _)) = listener.accept() {
            stream.set_nonblocking(true)?;
            connections.insert(next, (stream, StreamServer::new(Session::Fm(next))));
            next += 1;
        }
        let ns = u64::try_from(start.elapsed().as_nanos())?;
        connections.retain(|number, (stream, server)| {
            let open = serve(&mut device, Instant::from_ns(ns), stream, server);
            if !open {
                device.common_mut().forget(Session::Fm(*number));
            }
            open
        });
        wait::pause(std::time::Duration::from_micros(200));
    }
}
