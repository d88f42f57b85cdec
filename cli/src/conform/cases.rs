//! The conformance cases, each a function.
//!
//! [`CASES`] gives their names and descriptions. A case begins with empty queues and all ports sending, so thresholds
//! are those of an empty buffer. Watermarks are in bytes of whole cells.
//!
//! Source: docs/spec/pipeline.md §2, §4, §7, §8, §9; docs/conform.md.

use weft_control::conform::{Port, Row};
use weft_dataplane::time::Span;
use weft_parsers::Ecn;

use super::bench::Bench;
use super::links::{Links, Tag};
use super::{Case, CaseError, same};

/// Frames of each port pair and priority in `mesh`.
const EACH: u64 = 5;
/// Frames held in `hold`, and frames dropped beyond a threshold.
const FEW: u64 = 50;
const MORE: u64 = 5;
/// `shares`: frames of each priority, their length, and attempts. An attempt fails without fault of the switch if its
/// thread waits for a processor, as queues run empty meanwhile.
const SHARED: u64 = 150;
const SHARED_LEN: usize = 1_000;
const LOOKS: usize = 3;
/// Frames that an egress queue may have taken from a VOQ already, where the scheduler's choice no longer moves them.
const EGRESS: u64 = 64;

/// All cases, with the least demanding ones first: name, description, function.
pub(super) const CASES: &[(&str, &str, Case)] = &[
    (
        "mesh",
        "each port sends to each other one in each priority; all arrive, and are counted in their queue",
        mesh,
    ),
    ("dscp", "frames of each DSCP are in the queue of its priority", dscp),
    ("pcp", "tagged frames of each PCP are in the queue of its priority", pcp),
    ("hold", "a held port sends nothing, loses nothing, and then sends all in order", hold),
    (
        "xoff",
        "PAUSE is sent at the frame of the closed form, again and again, for no other class",
        xoff,
    ),
    ("xon", "the pause is released at the closed form, and not one frame earlier", xon),
    (
        "headroom",
        "frames after PAUSE are in the headroom; the first drop is at the input, where it is full",
        headroom,
    ),
    (
        "lossy",
        "a lossy queue drops at its threshold, counted at the output, and pauses nobody",
        lossy,
    ),
    (
        "watermarks",
        "watermarks of group, headroom, queue and pool are what was there, and restart",
        watermarks,
    ),
    ("ecn", "frames below the lower threshold have no mark, and all above the upper one", ecn),
    ("shares", "an output is shared by strict priority, then by weight", shares),
];

/// Input and output of most cases: the first and the last port.
fn way(bench: &Bench) -> (usize, usize) {
    (0, bench.ports() - 1)
}

fn lossless(bench: &Bench, src: usize) -> Result<(u8, Row), CaseError> {
    let none = || CaseError::Skip(format!("port {} has no lossless priority", bench.name(src)));
    let pri = bench.priority(src, true).ok_or_else(none)?;
    Ok((pri, bench.row(src, pri).cloned().unwrap_or_default()))
}

fn lossy_of(bench: &Bench, src: usize) -> Result<(u8, Row), CaseError> {
    let none = || CaseError::Skip(format!("port {} has no lossy priority", bench.name(src)));
    let pri = bench.priority(src, false).ok_or_else(none)?;
    Ok((pri, bench.row(src, pri).cloned().unwrap_or_default()))
}

/// A threshold that the case needs; skips the case if the parameters lack it.
fn known(what: &str, number: Option<u64>) -> Result<u64, CaseError> {
    number.ok_or_else(|| CaseError::Skip(format!("the parameters say no {what}")))
}

fn mesh(bench: &mut Bench) -> Result<String, CaseError> {
    let ports = bench.ports();
    let mut pairs = 0;
    for dst in 0..ports {
        let pris: Vec<u8> = (0..8).filter(|&pri| bench.row(dst, pri).is_some()).collect();
        let sources: Vec<usize> = (0..ports).filter(|&src| src != dst).collect();
        for pri in pris {
            let before = bench.left(dst, pri)?;
            let mut sent = 0;
            for &src in &sources {
                if bench.tag(src, pri).is_some() {
                    bench.fill((src, dst), pri, EACH)?;
                    sent += EACH;
                    pairs += 1;
                }
            }
            let came = bench.delivered(dst, sent)?;
            for &src in &sources {
                let of_src = came.iter().filter(|(from, ..)| *from == src).count() as u64;
                let expected = if bench.tag(src, pri).is_some() { EACH } else { 0 };
                same(&format!("frames from {}", bench.name(src)), expected, of_src)?;
            }
            // A frame may arrive here before the switch has published the queue's count.
            let what = format!("frames counted in queue {pri} of {}", bench.name(dst));
            bench.until(&what, |bench| Ok(bench.left(dst, pri)? == before + sent))?;
        }
    }
    Ok(format!("{pairs} ways of port, port and priority, {EACH} frames each"))
}

/// Sends a frame with each of `tags`, and checks which queue has sent it.
fn by_field(bench: &mut Bench, tags: &[(Tag, u8)]) -> Result<(), CaseError> {
    let (src, dst) = way(bench);
    let counts = |bench: &mut Bench| -> Result<Vec<u64>, CaseError> {
        (0..8)
            .filter(|&pri| bench.row(dst, pri).is_some())
            .collect::<Vec<_>>()
            .into_iter()
            .map(|pri| bench.left(dst, pri))
            .collect()
    };
    for &(tag, pri) in tags {
        let mut expected = counts(bench)?;
        let frame = bench.frame_with((src, dst), tag, Ecn::NotEct)?;
        bench.send(src, &frame, 1)?;
        bench.delivered(dst, 1)?;
        if let Some(count) = expected.get_mut(usize::from(pri)) {
            *count += 1;
        }
        let mut found = Vec::new();
        let done = bench.until("a count", |bench| {
            found = counts(bench)?;
            // Any queue's count ends the wait: a frame in the wrong queue is a difference, not a timeout.
            Ok(found.iter().sum::<u64>() >= expected.iter().sum())
        });
        done?;
        same(
            &format!("frames by queue after {tag:?}"),
            format!("{expected:?}"),
            format!("{found:?}"),
        )?;
    }
    Ok(())
}

fn dscp(bench: &mut Bench) -> Result<String, CaseError> {
    let map = bench.params.dscp_to_pri.clone();
    by_map(bench, "dscp", Tag::Dscp, &map)
}

fn pcp(bench: &mut Bench) -> Result<String, CaseError> {
    let map = bench.params.pcp_to_pri.clone();
    by_map(bench, "pcp", Tag::Pcp, &map)
}

/// Runs [`by_field`] for each code of `map`.
fn by_map(
    bench: &mut Bench,
    field: &str,
    tag: fn(u8) -> Tag,
    map: &[u8],
) -> Result<String, CaseError> {
    if map.is_empty() || !bench.trusts(0, field) {
        let name = field.to_uppercase();
        let why = format!("the port does not go by {name}, or the parameters have no map");
        return Err(CaseError::Skip(why));
    }
    let tags: Vec<_> = (0..).map(tag).zip(map.iter().copied()).collect();
    by_field(bench, &tags)?;
    Ok(format!("{} codes", tags.len()))
}

fn hold(bench: &mut Bench) -> Result<String, CaseError> {
    let way @ (src, dst) = way(bench);
    let (pri, _) = lossy_of(bench, src).or_else(|_| lossless(bench, src))?;
    let dropped = (bench.dropped_in(src)?, bench.dropped_out(dst)?);
    bench.send_on(dst, false)?;
    let before = bench.left(dst, pri)?;
    bench.fill(way, pri, FEW)?;
    let what = "frames out of a held port";
    same(what, before, bench.stays(what, |bench| bench.left(dst, pri), Span::ZERO)?)?;
    bench.send_on(dst, true)?;
    bench.delivered(dst, FEW)?;
    same(
        "drops",
        format!("{dropped:?}"),
        format!("{:?}", (bench.dropped_in(src)?, bench.dropped_out(dst)?)),
    )?;
    Ok(format!("{FEW} frames held, none sent, all sent afterwards"))
}

/// Fills a group up to `margin` frames short of `trigger`, checks that no PAUSE is sent, and fills it `margin` beyond.
fn to_xoff(
    bench: &mut Bench,
    way: (usize, usize),
    pri: u8,
    trigger: u64,
    margin: u64,
) -> Result<(), CaseError> {
    let class = bench.class(way.0, pri);
    let what = format!("PFC frames before frame {trigger}");
    // The release of an earlier pause may still be under way, and is a PFC frame too.
    let paused = bench.settles(&what, |bench| bench.pfc(way.0, class))?;
    bench.fill(way, pri, (trigger - 1).saturating_sub(margin))?;
    same(&what, paused, bench.stays(&what, |bench| bench.pfc(way.0, class), Span::ZERO)?)?;
    // To frame `trigger + margin`: where a PAUSE is due even if the threshold is off by the whole margin.
    bench.fill(way, pri, 1 + 2 * margin)
}

fn xoff(bench: &mut Bench) -> Result<String, CaseError> {
    const OTHERS: &str = "PFC frames of other classes";
    let way @ (src, dst) = way(bench);
    let (pri, row) = lossless(bench, src)?;
    let trigger = known("trig_pfc", row.trig_pfc)?;
    let class = bench.class(src, pri);
    // Releases of other cases' pauses may still be under way.
    let others = bench.settles(OTHERS, |bench| bench.other_pfc(src, class))?;
    bench.send_on(dst, false)?;
    to_xoff(bench, way, pri, trigger, row.margin)?;
    bench.is_paused(src, class)?;
    // A priority with several classes pauses all of them in one frame, and SAI counts each.
    if row.pfc_classes.len() <= 1 {
        same(OTHERS, others, bench.other_pfc(src, class)?)?;
    }
    bench.release(dst, pri, trigger + row.margin)?;
    Ok(format!("priority {pri}: PAUSE at frame {trigger}, margin {}", row.margin))
}

fn xon(bench: &mut Bench) -> Result<String, CaseError> {
    if bench.ports() < 4 {
        return Err(CaseError::Skip("three outputs are wanted: give four ports".to_owned()));
    }
    let src = 0;
    let (pri, row) = lossless(bench, src)?;
    let (trigger, dismiss) =
        (known("trig_pfc", row.trig_pfc)?, known("dismiss_pfc", row.dismiss_pfc)?);
    if row.margin > 0 || dismiss < 2 || dismiss >= trigger || row.headroom == Some(0) {
        let why = "the point is not exact with several workers, or leaves no frame on either side";
        return Err(CaseError::Skip(why.to_owned()));
    }
    let class = bench.class(src, pri);
    for dst in 1..4 {
        bench.send_on(dst, false)?;
    }
    // All outputs share the input's group, so the three fills add up to `trigger` frames. Releasing output 3 leaves one
    // frame above the release point, and releasing output 2 reaches it exactly.
    bench.fill((src, 1), pri, trigger - dismiss)?;
    bench.fill((src, 2), pri, 1)?;
    bench.fill((src, 3), pri, dismiss - 1)?;
    bench.is_paused(src, class)?;
    bench.release(3, pri, dismiss - 1)?;
    // Still paused one frame above XON. The time of these repetitions is how long silence must last below.
    let repeated = bench.is_paused(src, class).map_err(|_| {
        CaseError::differs("the pause one frame above XON", "PAUSE again and again", "none")
    })?;
    bench.release(2, pri, 1)?;
    bench.until("the release of the pause", |bench| {
        let rests = match bench.stays("PFC frames", |bench| bench.pfc(src, class), repeated) {
            // Refreshes or the release itself were still sent: wait for the next silence.
            Err(CaseError::Differs { .. }) => return Ok(false),
            rests => rests?,
        };
        // Silence counts only of a switch that was running all the while.
        bench.passes((src, 3))?;
        Ok(bench.pfc(src, class)? == rests)
    })?;
    bench.release(1, pri, trigger - dismiss)?;
    Ok(format!("priority {pri}: of {trigger} frames {dismiss} had to leave"))
}

/// Fills a held queue to just before the first drop, checks that `drops` has not moved, and sends [`MORE`] frames (and
/// twice the margin) to see them dropped. Returns the number of frames that are queued then.
fn to_drops(
    bench: &mut Bench,
    way: (usize, usize),
    pri: u8,
    trigger: u64,
    margin: u64,
    drops: &dyn Fn(&mut Bench) -> Result<u64, CaseError>,
) -> Result<u64, CaseError> {
    let (before, held) = (drops(bench)?, (trigger - 1).saturating_sub(margin));
    bench.send_on(way.1, false)?;
    bench.fill(way, pri, held)?;
    let what = format!("drops before frame {trigger}");
    same(&what, before, bench.stays(&what, drops, Span::ZERO)?)?;
    let more = MORE + 2 * margin;
    bench.fill(way, pri, more)?;
    let found = drops(bench)? - before;
    if found < MORE || found > more {
        let expected = if margin == 0 { MORE.to_string() } else { format!("{MORE} to {more}") };
        return Err(CaseError::differs(format!("drops from frame {trigger} on"), expected, found));
    }
    Ok(held + more - found)
}

fn headroom(bench: &mut Bench) -> Result<String, CaseError> {
    let way @ (src, dst) = way(bench);
    let (pri, row) = lossless(bench, src)?;
    let trigger = known("trig_ingr_drp", row.trig_ingr_drp)?;
    let dropped = bench.dropped_out(dst)?;
    let queued = to_drops(bench, way, pri, trigger, row.margin, &|bench| bench.dropped_in(src))?;
    same("drops at the output", dropped, bench.dropped_out(dst)?)?;
    bench.release(dst, pri, queued)?;
    Ok(format!("priority {pri}: first drop at frame {trigger}, margin {}", row.margin))
}

fn lossy(bench: &mut Bench) -> Result<String, CaseError> {
    let way @ (src, dst) = way(bench);
    let (pri, row) = lossy_of(bench, src)?;
    let trigger = known("trig_egr_drp", row.trig_egr_drp)?;
    let dropped = bench.dropped_in(src)?;
    let paused = bench.settles("PFC frames", |bench| bench.all_pfc(src))?;
    let queued = to_drops(bench, way, pri, trigger, row.margin, &|bench| bench.dropped_out(dst))?;
    same("drops at the input", dropped, bench.dropped_in(src)?)?;
    same("PFC frames", paused, bench.all_pfc(src)?)?;
    bench.release(dst, pri, queued)?;
    Ok(format!("priority {pri}: first drop at frame {trigger}, margin {}", row.margin))
}

fn watermarks(bench: &mut Bench) -> Result<String, CaseError> {
    let way @ (src, dst) = way(bench);
    let (pri, row) = lossless(bench, src)?;
    let trigger = known("trig_pfc", row.trig_pfc)?;
    let room = row.headroom.unwrap_or(0).min(MORE);
    if row.margin > 0 || room == 0 {
        return Err(CaseError::Skip(
            "not exact with several workers, or without headroom".to_owned(),
        ));
    }
    let frame = bench.params.packet_cells * bench.params.cell_size;
    for _ in 0..2 {
        bench.group_mark(src, pri)?;
        bench.headroom_mark(src, pri)?;
        bench.queue_mark(dst, pri)?;
        bench.pool_marks()?;
    }
    bench.send_on(dst, false)?;
    bench.fill(way, pri, trigger - 1 + room)?;
    bench.release(dst, pri, trigger - 1 + room)?;
    // XOFF is crossed at frame `trigger`: it and the rest are counted in the headroom.
    same("watermark of the group", (trigger - 1) * frame, bench.group_mark(src, pri)?)?;
    same("watermark of the headroom", room * frame, bench.headroom_mark(src, pri)?)?;
    same("watermark of the queue", (trigger - 1 + room) * frame, bench.queue_mark(dst, pri)?)?;
    let (shared, headroom) = bench.pool_marks()?;
    // The first frames of a group fill its reserve, which is no part of the shared pool.
    let reserve = row.fill_min * frame;
    same("watermark of the shared part", ((trigger - 1) * frame).saturating_sub(reserve), shared)?;
    same("watermark of all headroom", room * frame, headroom)?;
    let again = [
        bench.group_mark(src, pri)?,
        bench.headroom_mark(src, pri)?,
        bench.queue_mark(dst, pri)?,
        bench.pool_marks()?.0,
    ];
    same("watermarks that have restarted", "[0, 0, 0, 0]".to_owned(), format!("{again:?}"))?;
    Ok(format!("priority {pri}: {} frames in the group, {room} in the headroom", trigger - 1))
}

fn ecn(bench: &mut Bench) -> Result<String, CaseError> {
    let way @ (src, dst) = way(bench);
    let marks = bench.params.ecn.ok_or_else(|| CaseError::Skip("ECN is off".to_owned()))?;
    let frame_bytes = bench.params.packet_cells * bench.params.cell_size;
    let (pri, row) = lossy_of(bench, src)?;
    let most = row.trig_egr_drp.map_or(0, |drop| drop - 1).saturating_sub(row.margin);
    let count = marks.high_bytes.div_ceil(frame_bytes) + FEW;
    if !matches!(bench.tag(src, pri), Some(Tag::Dscp(_))) || count > most {
        let why = format!("{count} frames are over the upper threshold; the queue holds {most}");
        return Err(CaseError::Skip(why));
    }
    let frame = bench.frame(way, pri, Ecn::Ect0)?;
    bench.send_on(dst, false)?;
    bench.fill_with(src, pri, &frame, count)?;
    bench.send_on(dst, true)?;
    let came = bench.delivered(dst, count)?;
    // The mark is set at dequeue, and the depth counts the departing frame (docs/spec/pipeline.md §8).
    for (left, (.., ecn)) in (1..=count).rev().zip(&came) {
        let depth = left * frame_bytes;
        let expected = match depth {
            depth if depth >= marks.high_bytes => Ecn::Ce,
            depth if depth < marks.low_bytes => Ecn::Ect0,
            // Between the thresholds the mark is drawn at random.
            _ => continue,
        };
        if *ecn != expected {
            let what = format!("ECN of a frame that leaves {depth} bytes");
            return Err(CaseError::differs(what, format!("{expected:?}"), format!("{ecn:?}")));
        }
    }
    let marked = came.iter().filter(|(.., ecn)| *ecn == Ecn::Ce).count();
    Ok(format!("priority {pri}: {marked} of {count} frames marked"))
}

fn shares(bench: &mut Bench) -> Result<String, CaseError> {
    let (src, dst) = way(bench);
    let port = bench.params.port(bench.name(dst)).cloned().unwrap_or_default();
    if port.max_rate_bps.is_none() {
        let why = "the output has no max_rate_gbps: shares of one without are those of this machine's processors";
        return Err(CaseError::Skip(why.to_owned()));
    }
    let is_ours = |pri: &u8| matches!(bench.tag(src, *pri), Some(Tag::Dscp(_)));
    let pris: Vec<u8> =
        (0..8).filter(is_ours).filter(|&pri| bench.row(dst, pri).is_some()).collect();
    // All frames must fit behind a held output, or drops would distort the shares.
    let each = room_for(bench, src, &pris)?.min(SHARED);
    let mut found = Ok(String::new());
    for _ in 0..LOOKS {
        bench.fresh()?;
        bench.send_on(dst, false)?;
        for &pri in &pris {
            let tag = bench.tag(src, pri).ok_or(CaseError::NoTag(pri))?;
            let frame = Links::frame(src, dst, tag, Ecn::NotEct, SHARED_LEN)?;
            bench.fill_with(src, pri, &frame, each)?;
        }
        bench.send_on(dst, true)?;
        let came = bench.delivered(dst, each * pris.len() as u64)?;
        let pri_of = |dscp: u8| bench.params.dscp_to_pri.get(usize::from(dscp)).copied();
        let order: Vec<u8> = came.iter().filter_map(|(_, dscp, _)| pri_of(*dscp)).collect();
        found = look(&order, &pris, &port, each);
        // One good attempt is enough: chance does not produce the configured shares.
        if found.is_ok() {
            break;
        }
    }
    found
}

/// Frames of [`SHARED_LEN`] that each of `pris` can queue when all of them queue as many.
fn room_for(bench: &Bench, src: usize, pris: &[u8]) -> Result<u64, CaseError> {
    let cells = (SHARED_LEN as u64).div_ceil(bench.params.cell_size.max(1));
    let of = |&pri: &u8| {
        let row = bench.row(src, pri)?;
        let first = row.trig_pfc.or(row.trig_egr_drp)?;
        // Dynamic thresholds fall as other queues fill, but never below 1/n of a lone queue's; n + 1 leaves room to
        // spare.
        Some((first - 1) * bench.params.packet_cells / cells / (pris.len() as u64 + 1))
    };
    let least = pris.iter().filter_map(of).min().unwrap_or(0);
    if least < FEW {
        let why = format!("there is room for {least} frames of each priority; {FEW} are wanted");
        return Err(CaseError::Skip(why));
    }
    Ok(least)
}

/// Checks that the order of arrival, `each` frames of every priority, is one that strict priorities and weights allow.
fn look(order: &[u8], pris: &[u8], port: &Port, each: u64) -> Result<String, CaseError> {
    let (strict, weighted): (Vec<u8>, Vec<u8>) =
        pris.iter().partition(|pri| port.strict.contains(pri));
    // Frames already in egress queues leave before a strict priority's frames that still wait in a VOQ.
    let first = strict.len() as u64 * each + weighted.len() as u64 * EGRESS;
    for pri in strict {
        let last = order.iter().rposition(|&of| of == pri).unwrap_or(0) as u64;
        if last > first {
            let what = format!("place of the last frame of strict priority {pri}");
            return Err(CaseError::differs(what, format!("at most {first}"), last));
        }
    }
    let rest: Vec<u8> = order.iter().copied().filter(|pri| weighted.contains(pri)).collect();
    // Weights show only while all queues have frames: from the first frame of the last priority to begin, to the last
    // frame of the first to end.
    let begins = weighted.iter().filter_map(|&pri| rest.iter().position(|&of| of == pri));
    let ends = weighted.iter().filter_map(|&pri| rest.iter().rposition(|&of| of == pri));
    let (begin, end) = (begins.max().unwrap_or(0), ends.min().unwrap_or(0));
    let window = rest.get(begin..end).unwrap_or_default();
    if weighted.len() > 1 && window.len() < rest.len() / 4 {
        let what = "frames while all priorities had some";
        return Err(CaseError::differs(what, format!("at least {}", rest.len() / 4), window.len()));
    }
    let weight =
        |pri: u8| u64::from(port.weights.get(usize::from(pri)).copied().unwrap_or(0).max(1));
    let total: u64 = weighted.iter().map(|&pri| weight(pri)).sum();
    let least = weighted.iter().map(|&pri| weight(pri)).min().unwrap_or(1);
    let mut told = Vec::new();
    for pri in weighted {
        let count: u64 = window.iter().map(|&of| u64::from(of == pri)).sum();
        let expected = window.len() as u64 * weight(pri) / total;
        // Deficit round robin is exact to a round and a frame; the smallest weight's quantum is the longest frame.
        let quantum = (weight(pri) * port.max_frame).div_ceil(least * SHARED_LEN as u64);
        let slack = (expected / 10).max(quantum + 2);
        if count.abs_diff(expected) > slack {
            let what = format!("frames of priority {pri} of {} while all had some", window.len());
            let expected = format!("{expected}, {slack} more or less");
            return Err(CaseError::differs(what, expected, count));
        }
        told.push(format!("{pri}: {count}"));
    }
    Ok(format!("of {} frames {}", window.len(), told.join(", ")))
}
