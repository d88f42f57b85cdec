//! A switch of two ports in one process: a frame goes in by one and comes out of the other.
//!
//! `cargo run -p weft-dataplane --example two_ports`.
//!
//! Units: bytes without FCS.

#![expect(clippy::indexing_slicing, reason = "there are two of them")]

use std::error::Error;

use weft_dataplane::batch::Batch;
use weft_dataplane::pipeline::SwitchBuilder;
use weft_dataplane::pool::{Bufs, Pool};
use weft_dataplane::port::Port;
use weft_dataplane::port::pipe::{PipeConfig, pipe};
use weft_dataplane::time::{Instant, LinkRate};

fn main() -> Result<(), Box<dyn Error>> {
    let pool = Pool::in_memory(8_192, 1_518)?;
    let mut bufs = Bufs::new(pool.clone(), 64, 0);
    let (mut ours, mut theirs) = (Vec::new(), Vec::<Box<dyn Port>>::new());
    for name in ["left", "right"] {
        let names = [format!("host {name}"), name.to_owned()];
        let rate = LinkRate::gbps(10);
        let config =
            PipeConfig { names, depth: 64, rate, frame_len_max: 1_518, wakes_reader: false };
        let (mut host, port) = pipe(config)?;
        host.start(&mut bufs)?;
        ours.push(host);
        theirs.push(Box::new(port));
    }
    let mut switch = SwitchBuilder::new(theirs).pool(pool).build()?;

    let mut frame = [0; 60];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x90, 0x00]);
    let mut batch = Batch::new();
    batch.push(bufs.alloc_from(&frame).ok_or("no free chunk")?);
    let now = Instant::ZERO;
    switch.step(now); // the links are seen to be up
    ours[0].tx(now, &mut bufs, &mut batch);
    switch.step(now);
    ours[1].rx(now, &mut bufs, &mut batch);
    let came = batch.iter().next().ok_or("nothing came out")?;
    assert_eq!(bufs.bytes(came), frame);
    println!("a frame of {} bytes went in at left and came out at right, unchanged", came.len());
    Ok(())
}
