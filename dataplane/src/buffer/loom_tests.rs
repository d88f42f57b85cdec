//! Depths that one worker reads while others change them, under the model checker.

use weft_base::ring::ring;

use super::*;
use crate::config::{BufferConfig, Sharing};

/// A frame that one worker has queued and the other has not dequeued is never missing from the
/// depth, neither for the worker that queued it nor while it leaves.
#[test]
fn depths_are_never_below_what_is_queued() {
    loom::model(|| {
        let config = BufferConfig {
            cell_bytes: 256,
            total_cells: 8,
            sharing: Sharing::Dt,
            alpha: PerPri::default(),
            voq_reserve_cells: 0,
            pg_reserve_cells: 0,
            headroom_cells: vec![0],
            xon_offset_cells: 0,
        };
        let plan = BufferPlan::new(&config, 1, 1, 1, PriSet::EMPTY, 1).unwrap();
        let thresholds = Thresholds::new(&config, &plan);
        let buffer = weft_base::sync::Arc::new(Buffer::new(1, 1, 2));
        let (port, pri) = (PortId::default(), Pri::default());
        let (mut tx, mut rx) = ring(2);
        let leaver = loom::thread::spawn({
            let (buffer, thresholds) = (buffer.clone(), thresholds.clone());
            move || {
                let mut lease = Lease::new(1, PortSet::EMPTY);
                if rx.pop().is_some() {
                    let mut run = buffer.leaving(&lease, &thresholds, port, pri);
                    run.lossy(port, 1);
                    let _ = run.shallow(1);
                    run.end(&mut lease);
                    return 1;
                }
                0
            }
        });
        let mut lease = Lease::new(0, PortSet::only(port));
        for _ in 0..2 {
            let voq = QueueKey { input: port, output: port, pri };
            let got = buffer.admit_voq(&mut lease, &thresholds, voq, 1);
            assert_eq!(got.verdict, Verdict::Queue);
            assert!(tx.push(()).is_ok());
            // One of them at most has left.
            assert!((0..=2).contains(&buffer.depth(port, pri)), "{}", buffer.depth(port, pri));
        }
        assert!(buffer.depth(port, pri) >= 1);
        let left = leaver.join().unwrap();
        assert_eq!(buffer.depth(port, pri), 2 - left);
        buffer.catch_up(&mut lease, &thresholds, PriSet::EMPTY);
        assert_eq!(buffer.voq_used(QueueKey { input: port, output: port, pri }), 2 - left);
    });
}
