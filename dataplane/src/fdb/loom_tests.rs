//! The entry's protocol under the model checker: every order of two threads' steps.
//!
//! A reader beside a writer that gives the place away and back.

use weft_base::sync::Arc;

use super::entry::{Entry, FdbKey, Tick, Value};
use crate::time::Instant;
use crate::types::PortId;
use weft_parsers::{AddrKey, Vid};

fn key(address: u16) -> FdbKey {
    FdbKey::new(Vid::from_low_bits(1), AddrKey::id16(address))
}

fn value(version: u32, port: u8) -> Value {
    Value::new(version, PortId::from_low_bits(port), Tick::at(Instant::ZERO), false)
}

/// Key 1 is at port 1, then 3; key 2 at port 2 in between: no reader finds key 1 at port 2.
#[test]
fn value_belongs_to_the_key() {
    loom::model(|| {
        let entry = Arc::new(Entry::default());
        entry.fill(key(1), value(1, 1));
        let writer = {
            let entry = Arc::clone(&entry);
            loom::thread::spawn(move || {
                entry.fill(key(2), value(2, 2));
                entry.fill(key(1), value(3, 3));
            })
        };
        if entry.holds(key(1))
            && let Some(value) = entry.read(key(1))
        {
            assert!(matches!(value.port().get(), 1 | 3), "{value:?}");
        }
        writer.join().unwrap();
    });
}

/// A refresh that comes late does not bring the old port back under the new key.
#[test]
fn refresh_never_undoes_a_fill() {
    loom::model(|| {
        let entry = Arc::new(Entry::default());
        entry.fill(key(1), value(1, 1));
        let writer = {
            let entry = Arc::clone(&entry);
            loom::thread::spawn(move || entry.fill(key(2), value(2, 2)))
        };
        if entry.holds(key(1))
            && let Some(seen) = entry.read(key(1))
        {
            entry.refresh(seen, Tick::from_bits(9));
        }
        writer.join().unwrap();
        assert_eq!(entry.both(), Some((key(2), value(2, 2))));
    });
}
