//! Records of live runs: any bytes behind a header, or as a whole file, replayed.
//!
//! Bytes are entries for a switch, which carries them out, or are refused.
//!
//! Source: docs/spec/pipeline.md §13.

use std::io::{self, Cursor, Write};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use weft_base::rng::Rng;
use weft_config::{Config, Sources, Timing};
use weft_control::record::Header;
use weft_control::rerun::{Job, Record, replay};
use weft_dataplane::port::record::Recorder;

/// A small switch of three ports, so that frames can be flooded.
pub const CONFIG: &str = "[switch]\nname = \"fuzz\"\nseed = 1\n[buffer]\nbuffer_size_mb = 2\n\
    peer_response_us = 10\n[fdb]\ncapacity = 64\nageing_s = 10\n[port_defaults]\n\
    rx_ring_frames = 64\n[[port]]\nname = \"a\"\nkind = \"null\"\n\
    [[port]]\nname = \"b\"\nkind = \"null\"\n[[port]]\nname = \"c\"\nkind = \"null\"\n";

/// First bytes of every record.
const MAGIC: &[u8] = b"WEFTREC";

#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The beginning of a record of the switch of [`CONFIG`].
fn preamble() -> &'static [u8] {
    static PREAMBLE: OnceLock<Vec<u8>> = OnceLock::new();
    PREAMBLE.get_or_init(|| {
        let file = Some(("fuzz.toml".to_owned(), CONFIG.to_owned()));
        let sources = Sources { file, ..Sources::default() };
        let settings = sources.settings().expect("the configuration is right");
        let config = Config::resolve(&settings, Timing::Live).expect("it holds together");
        let header = Header::new(sources, &config.switch);
        let header = serde_json::to_vec(&header).expect("texts");
        let memory = Memory::default();
        let out = Box::new(memory.clone());
        Recorder::start(out, &header, 3, Box::new(|_| {})).expect("memory takes all");
        let bytes = memory.0.lock().unwrap_or_else(PoisonError::into_inner);
        bytes.clone()
    })
}

/// Replays `bytes`: behind a header, unless they begin with a record's own.
///
/// # Panics
/// The switch loses count of its frames.
pub fn run(bytes: &[u8]) {
    drop(steps(bytes));
}

/// As [`run`]; returns the number of steps.
///
/// # Errors
/// The record is refused before its first step, with the reason.
///
/// # Panics
/// The switch loses count of its frames.
pub fn steps(bytes: &[u8]) -> Result<u64, String> {
    // so both entries and headers are fuzzed: few random bytes pass as a header
    let before = if bytes.starts_with(MAGIC) { &[][..] } else { preamble() };
    let whole = Cursor::new([before, bytes].concat());
    let record = Record::open(whole).map_err(|problem| problem.to_string())?;
    let report = replay(record, &Job::default(), None, &|_| ());
    let report = report.map_err(|problem| problem.to_string())?;
    assert_eq!(report.conservation.imbalance, 0, "{report:?}");
    assert_eq!((report.conservation.queued, report.buffer.chunks_used), (0, 0), "{report:?}");
    Ok(report.steps)
}

/// A record with up to three bytes changed, cut off or put in, most of them behind its header.
#[must_use]
pub fn damaged(whole: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    for _ in 0..=rng.below(3) {
        let at = usize::try_from(rng.below(bytes.len() as u64)).unwrap_or(0);
        let [draw, ..] = rng.next_u64().to_le_bytes();
        match rng.below(8) {
            0 => bytes.truncate(at.max(1)),
            1 => bytes.insert(at, draw),
            2 if bytes.len() > 1 => drop(bytes.remove(at)),
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << (draw & 7);
                }
            }
        }
    }
    bytes
}
