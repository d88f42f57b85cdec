//! A pool of a switch and of another thread: what the one takes and the other gives back goes round.
//!
//! A pipe whose far end has a handle of its own, a switch of one worker, a port that takes everything.
//!
//! Units: frames.
//! Source: ARCHITECTURE.md "The path of a frame".

use super::memory;
use weft_dataplane::batch::{BURST, Batch};
use weft_dataplane::pipeline::SwitchBuilder;
use weft_dataplane::pool::{Bufs, Pool};
use weft_dataplane::port::null::Null;
use weft_dataplane::port::pipe::{PipeConfig, pipe};
use weft_dataplane::port::{Port, PortCounters};
use weft_dataplane::time::{Instant, LinkRate};
use weft_dataplane::trace::NoTrace;

const CHUNKS: usize = 4_096;
/// Each chunk comes several times.
const FRAMES: usize = 8 * CHUNKS;

/// The far end of a pipe makes all frames, and the switch's one worker gives all chunks back: nobody is left without.
#[test]
fn what_the_far_end_of_a_pipe_takes_comes_back_to_it() {
    let pool = Pool::in_memory(CHUNKS, memory::FRAME_LEN_MAX).unwrap();
    let rate = LinkRate::gbps(10);
    let (near, mut far) = pipe(PipeConfig {
        names: ["near".to_owned(), "far".to_owned()],
        depth: 256,
        rate,
        frame_len_max: memory::FRAME_LEN_MAX,
        wakes_reader: false,
    })
    .unwrap();
    let mut bufs = Bufs::new(pool.clone(), 64, 0);
    let ports: Vec<Box<dyn Port>> = vec![Box::new(near), Box::new(Null::sink("sink", rate))];
    let config = memory::config(2, 4, 1_024, memory::CHUNK, 16);
    let mut built = SwitchBuilder::new(ports).config(config).pool(pool).build().unwrap();
    let (mut lane, mut ports) = built.lanes.pop().unwrap();
    far.start(&mut bufs).unwrap();
    let mut frame = [0; 60];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xB5]);
    let mut sent = 0;
    for round in 0..2 * FRAMES as u64 / BURST as u64 {
        let now = Instant::from_ns(round * 10_000);
        let most = far.tx_room(now).min(BURST).min(FRAMES - sent);
        let mut batch: Batch = (0..most).map_while(|_| bufs.alloc_from(&frame)).collect();
        assert_eq!(batch.len(), most, "no chunk is left after {sent} frames");
        sent += far.tx(now, &mut bufs, &mut batch);
        lane.step(now, &mut ports, &mut NoTrace);
    }
    assert_eq!(sent, FRAMES);
    assert_eq!(far.counters(), PortCounters::default(), "no send has failed");
}
