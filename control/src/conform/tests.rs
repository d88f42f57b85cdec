use weft_base::rng::Rng;
use weft_dataplane::buffer::{Buffer, Lease, Verdict};
use weft_dataplane::config::{LiveSizes, Sharing, SwitchConfig};
use weft_dataplane::time::LinkRate;
use weft_dataplane::types::{Alpha, GroupKey, PerPri, PriSet, QueueKey};

use super::*;

fn config(cells: u32, cell_bytes: u32, headroom_cells: u32) -> SwitchConfig {
    let mut config = SwitchConfig::live(&LiveSizes {
        names: (0..4).map(|port| format!("p{port}")).collect(),
        rate: LinkRate::gbps(100),
        pris: 8,
        cells,
        cell_bytes,
        headroom_cells,
        frame_len_max: 1_518,
    });
    config.pfc.enabled = true;
    config
}

fn row(params: &Params, pri: u8) -> &Row {
    params.rows.iter().find(|row| row.port == "p0" && row.pri == pri).expect("a row")
}

/// 16 MiB in cells of 2 KiB, alpha 1/8, 64 cells of headroom: XOFF at 2 + (7664 - s)/8 cells (s: of the shared part), so that
/// 853 frames fit; with alpha 1, half of the shared part: 3,832.
#[test]
fn numbers_are_those_of_the_formula_by_hand() {
    let mut config = config(8_192, 2_048, 64);
    config.pfc.lossless = [3, 4].map(Pri::from_low_bits).into_iter().collect::<PriSet>();
    config.buffer.pg_reserve_cells = 2;
    config.buffer.xon_offset_cells = 10;
    config.buffer.alpha = PerPri([0, 0, 0, -3, -3, 0, 0, 0].map(Alpha::shift));
    let snapshot = Snapshot::compile(config, 0).expect("a configuration");
    assert_eq!(snapshot.thresholds.shared(), 7_664);
    let params = Params::of(&snapshot, 64, 1);
    assert_eq!((params.cell_size, params.packet_cells, params.rows.len()), (2_048, 1, 32));
    let lossless = row(&params, 3);
    // 854 do not fit: 2 + (7664 - 851)/8 = 853. Of 853, 9 have to leave until 2 + (7664 - s)/8 - 10 is reached, and the one
    // in headroom before them.
    let want = Row {
        port: "p0".into(),
        pri: 3,
        pg: 3,
        lossless: true,
        pfc_classes: vec![3],
        fill_min: 2,
        trig_pfc: Some(854),
        trig_ingr_drp: Some(918),
        dismiss_pfc: Some(10),
        headroom: Some(64),
        trig_egr_drp: None,
        margin: 0,
    };
    assert_eq!(*lossless, want);
    let lossy = row(&params, 0);
    assert_eq!((lossy.trig_egr_drp, lossy.trig_pfc, lossy.fill_min), (Some(3_833), None, 0));
}

/// The buffer does what the formulas say, frame by frame.
#[test]
fn numbers_are_what_the_buffer_does() {
    let mut rng = Rng::new(19);
    for round in 0..200 {
        let mut below = |most: u64| u32::try_from(rng.below(most)).expect("small");
        let cell_bytes = 64 << below(6);
        let mut config = config(600 + below(5_000), cell_bytes, below(20));
        config.buffer.pg_reserve_cells = below(9);
        config.buffer.voq_reserve_cells = below(3);
        config.buffer.xon_offset_cells = below(40);
        let alpha = Alpha::ratio(1 + u64::from(below(64)), 8).expect("1/8 to 8");
        config.buffer.alpha = PerPri([alpha; 8]);
        if below(5) == 0 {
            config.buffer.sharing = Sharing::Static;
        }
        let packet_size = u64::from(60 + below(1_400));
        let Ok(snapshot) = Snapshot::compile(config, 0) else { continue };
        let params = Params::of(&snapshot, packet_size, 1);
        for pri in snapshot.pris.iter() {
            let row = row(&params, pri.get());
            if row.lossless {
                fill_group(&snapshot, pri, row, params.packet_cells, round);
            } else {
                fill_voq(&snapshot, pri, row, params.packet_cells, round);
            }
        }
    }
}

fn ports() -> (PortId, PortId) {
    (PortId::new(0).expect("a port"), PortId::new(1).expect("a port"))
}

fn fill_group(snapshot: &Snapshot, pri: Pri, row: &Row, cells: u64, round: usize) {
    let (buffer, mut lease) = (Buffer::new(4, 8, 1), Lease::default());
    let thresholds = &snapshot.thresholds;
    let ((input, output), cells) = (ports(), u32::try_from(cells).expect("small"));
    let mut paused = None;
    for frame in 1.. {
        let group = GroupKey { input, pri };
        let verdict = buffer.admit_group(&mut lease, thresholds, group, cells).verdict;
        if verdict != Verdict::Queue {
            paused.get_or_insert(frame);
        }
        if matches!(verdict, Verdict::Drop(_)) {
            assert_eq!(
                (paused, Some(frame)),
                (row.trig_pfc, row.trig_ingr_drp),
                "round {round}: {row:?}"
            );
            break;
        }
        buffer.deepen_by(&lease, QueueKey { input, output, pri }, cells);
    }
    let (trig_pfc, trig_ingr_drp) =
        (row.trig_pfc.expect("lossless"), row.trig_ingr_drp.expect("lossless"));
    let leave = |lease: &mut Lease| {
        let mut run = buffer.leaving(lease, thresholds, output, pri);
        run.lossless_alike(std::iter::once(input), cells);
        run.end(lease);
    };
    // Back to where the pause began; the frame that began it may have been dropped.
    let held = if row.headroom == Some(0) { trig_pfc - 1 } else { trig_pfc };
    for _ in held..trig_ingr_drp - 1 {
        leave(&mut lease);
    }
    if row.headroom == Some(0) {
        return; // it is not where `dismiss_pfc` begins
    }
    let mut left = 0;
    loop {
        let limit = buffer.group_limit(&lease, thresholds, pri);
        let used = buffer.group_used(input, pri) + buffer.headroom_used(input, pri);
        if used <= thresholds.xon(limit) {
            break;
        }
        leave(&mut lease);
        left += 1;
    }
    assert_eq!(Some(left), row.dismiss_pfc, "round {round}: {row:?}");
}

fn fill_voq(snapshot: &Snapshot, pri: Pri, row: &Row, cells: u64, round: usize) {
    let (buffer, mut lease) = (Buffer::new(4, 8, 1), Lease::default());
    let ((input, output), cells) = (ports(), u32::try_from(cells).expect("small"));
    let queue = QueueKey { input, output, pri };
    let mut admits = || {
        buffer.admit_voq(&mut lease, &snapshot.thresholds, queue, cells).verdict == Verdict::Queue
    };
    let dropped = (1..100_000).find(|_| !admits());
    assert_eq!(dropped, row.trig_egr_drp, "round {round}: {row:?}");
}
