//! `weft-bench`: measures, prints, and exits 1 when a figure is missed.
//!
//! One line a figure: subject, measured value, wanted value.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use weft_bench::islip_slot::{self, Load};
use weft_bench::model::{self, Pattern, Work};
use weft_bench::path::{self, ALLOCATIONS, PathLoad};
use weft_bench::pbr::{self, Segments};
use weft_bench::{cxl_mem, fabric_mem, gfd, gfd_link};
use weft_bench::{discovery, routes};
use weft_dataplane::pbr::Kind;
use weft_sim::islip_model::IslipModel;

/// The system's allocator, counted.
struct Counting;

// SAFETY: every call is handed to the system's allocator unchanged.
#[expect(unsafe_code, reason = "a counting allocator is the proof that no frame allocates")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: `at` came from `System.alloc` with this layout, as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Least million frames a second through the whole path.
const PATH_MPPS: f64 = 10.0;

/// Most ticks of the time-stamp counter for a frame through the whole path, and the goal, which
/// fails no run.
const PATH_TSC: f64 = 95.0;
const PATH_TSC_GOAL: f64 = 75.0;

/// TLPs a second through the whole path, against Ethernet frames.
const TLP_RATIO: f64 = 0.7;

/// Least cells a port and slot that the crossbar accepts at load 1.0 in one iteration.
const ISLIP_THROUGHPUT: f64 = 0.985;

/// Frames to run: fewer under an instrumenting profiler.
fn frames() -> u64 {
    let set = std::env::var("WEFT_BENCH_FRAMES").ok();
    set.and_then(|frames| frames.parse().ok()).unwrap_or(75_000_000)
}

/// The rows of the G-FAM device.
fn gfd_rows(report: &mut impl FnMut(&str, String, String, bool)) {
    let mut device = match gfd::device() {
        Ok(device) => device,
        Err(code) => {
            return report("GFD, its setting up", code.to_string(), "success".to_owned(), false);
        }
    };
    let (check_ns, median_ns, refused) = gfd::check(&device, frames() / 3);
    report(
        "GFD, GDT + MGT + SAT of an access, 4,095 requesters x 8 decoders, 4 ways, random, one core",
        format!("{check_ns:.1} ns (median of the rounds {median_ns:.1} ns), {refused} refused"),
        format!("{:.0} ns or less, none refused", gfd::GOAL_NS),
        check_ns <= gfd::GOAL_NS && refused == 0,
    );
    for (len, writes) in [(4_096, false), (4_096, true), (64, false), (64, true)] {
        let verb = if writes { "writes" } else { "reads" };
        let rate = gfd::copy(&mut device, len, writes).unwrap_or(0.0);
        // Small pieces are bound by the miss of each, not by the rate of copying.
        let goal = if len < 4_096 { 0.0 } else { gfd::GOAL_GBPS };
        report(
            &format!("GFD, {verb} of {len} bytes with all checks, random in 128 MiB, one core"),
            format!("{rate:.2} GB/s"),
            if goal > 0.0 { format!("{goal:.0} GB/s or more") } else { "told only".to_owned() },
            rate > goal,
        );
    }
}

/// The rows of a G-FAM device at the end of a link.
fn gfd_link_rows(report: &mut impl FnMut(&str, String, String, bool)) {
    let device = gfd::device().map_err(|code| gfd_link::LinkError::Made(code.to_string()));
    let [writes, reads, copies] = match device.and_then(gfd_link::measure) {
        Ok(rates) => rates,
        Err(error) => {
            return report("GFD over a link", error.to_string(), "success".to_owned(), false);
        }
    };
    for (verb, rate) in [("writes", writes), ("reads", reads)] {
        report(
            &format!(
                "GFD over a pipe, UIO {verb} of 4 KiB, 4 streams, requester and device on one core"
            ),
            format!("{rate:.2} GB/s (copying the same memory: {copies:.2} GB/s)"),
            format!("{:.0} GB/s or more", gfd_link::GOAL_GBPS),
            rate >= gfd_link::GOAL_GBPS,
        );
    }
}

/// The rows of fabric memory transfers.
fn fabric_mem_rows(report: &mut impl FnMut(&str, String, String, bool)) {
    let what = "fabric memory, 1 MiB pieces, 4 streams, host, switch and GFD on one core";
    for uio_max in [4_096, 256] {
        let rates = match fabric_mem::measure(uio_max) {
            Ok(rates) => rates,
            Err(error) => return report(what, error.to_string(), "success".to_owned(), false),
        };
        for (verb, at) in [("writes", 0), ("reads", 1)] {
            let of = |rates: [f64; 2]| rates.get(at).copied().unwrap_or(0.0);
            let (rate, plain, copies) = (of(rates.transfers), of(rates.plain), rates.copies);
            // 256 bytes fit every interleave granularity; the goal is set for the longest requests
            let goal = if uio_max == 4_096 { fabric_mem::GOAL_GBPS } else { 0.0 };
            report(
                &format!("{what}, {verb}, UIO requests of {uio_max} bytes"),
                format!("{rate:.2} GB/s (plain UIO: {plain:.2} GB/s, memcpy: {copies:.2} GB/s)"),
                if goal > 0.0 { format!("{goal:.0} GB/s or more") } else { "told only".to_owned() },
                rate >= goal,
            );
        }
    }
}

/// The rows of loads by CXL.mem.
fn cxl_mem_rows(report: &mut impl FnMut(&str, String, String, bool)) {
    let what = "CXL.mem loads of 64 bytes, host, switch and GFD on one core";
    let wanted =
        format!("{:.0} M/s or more; aimed at: {:.0} M/s", cxl_mem::MUST_MPS, cxl_mem::GOAL_MPS);
    let loads = usize::try_from(frames() / 75).unwrap_or(usize::MAX);
    let device = gfd::device().map_err(|code| cxl_mem::MemError::Made(code.to_string()));
    match device.and_then(|gfd| cxl_mem::measure(gfd, loads)) {
        Ok(rates) => {
            for (order, rate) in ["rising", "scattered over 128 MiB"].into_iter().zip(rates) {
                let (what, holds) = (format!("{what}, {order}"), rate >= cxl_mem::MUST_MPS);
                report(&what, format!("{rate:.2} M/s"), wanted.clone(), holds);
            }
        }
        Err(error) => report(what, error.to_string(), wanted, false),
    }
}

/// The rows of the crossbar.
fn islip_rows(report: &mut impl FnMut(&str, String, String, bool)) {
    let (slot_ns, median_ns) = islip_slot::measure(Load::goal(), frames() / 375);
    report(
        "iSLIP, 64 ports x 4 priorities, all VOQs busy, 2 iterations",
        format!("{slot_ns:.0} ns a slot (median of the rounds {median_ns:.0} ns)"),
        format!("{:.0} ns or less", islip_slot::GOAL_NS),
        slot_ns <= islip_slot::GOAL_NS,
    );
    for ports in [16, 32] {
        let model = IslipModel { ports, iterations: 1, load: 1.0, slots: 200_000, seed: 1 };
        let throughput = model.run(&mut |_| ()).map_or(0.0, |result| result.throughput);
        report(
            &format!("iSLIP, {ports} ports, load 1.0, one iteration, 200,000 slots"),
            format!("{throughput:.4} accepted"),
            format!("{ISLIP_THROUGHPUT} or more"),
            throughput >= ISLIP_THROUGHPUT,
        );
    }
}

/// Best rates of csg-htsim's RoCE, in packets a second: an incast of 127 to 1, and a permutation of
/// 1,024 hosts (docs/spec/model-reference.md "13. Speed").
const HTSIM_INCAST: f64 = 63_500.0 / 0.31;
const HTSIM_PERMUTATION: f64 = 512_000.0 / 7.5;

/// The rows of networks in virtual time.
#[expect(clippy::float_arithmetic, clippy::cast_precision_loss, reason = "rates for people")]
fn model_rows(report: &mut impl FnMut(&str, String, String, bool)) {
    let loop_s = model::calibrate();
    report("model, calibration loop", format!("{loop_s:.3} s"), "told only".to_owned(), true);
    match model::instructions() {
        Ok(each) => report(
            "model, permutation of 8 hosts, instructions a frame-hop",
            format!("{each:.0}"),
            "2500 or less, goal 1200".to_owned(),
            each <= 2_500.0,
        ),
        Err(why) => {
            let what = "model, permutation of 8 hosts, instructions a frame-hop";
            let _ = writeln!(std::io::stdout(), "skip {what}: {why} (wanted: 2500 or less)");
        }
    }
    let mut rate =
        |what: &str, work: Work, wanted: &str, least: f64, of: fn(&model::Cost) -> f64| {
            match model::run(work) {
                Ok(cost) => {
                    let (rate, end) = (of(&cost), if cost.done { "" } else { ", and not done" });
                    let figure = format!(
                        "{rate:.0} ({} frame-hops in {:.2} s{end})",
                        cost.hops, cost.seconds
                    );
                    report(what, figure, wanted.to_owned(), cost.done && rate >= least);
                    rate
                }
                Err(error) => {
                    report(what, error.to_string(), wanted.to_owned(), false);
                    0.0
                }
            }
        };
    let hops = |cost: &model::Cost| cost.hops as f64 / cost.seconds;
    let delivered = |cost: &model::Cost| cost.delivered as f64 / cost.seconds;
    let work = |pattern, hosts, frames, threads| Work { pattern, hosts, frames, threads };
    rate(
        "model, permutation of 8 hosts at one switch, frame-hops a second",
        work(Pattern::Permutation, 8, 200_000, 1),
        "3000000 or more, goal 6000000",
        3e6,
        hops,
    );
    rate(
        "model, incast of 127 to 1 with PFC on a fat tree, delivered frames a second",
        work(Pattern::Incast, 128, 500, 1),
        "0.5 x htsim or more: 102419, goal 204839",
        HTSIM_INCAST / 2.0,
        delivered,
    );
    // 1,489 frames each, the 7.5 M frame-hops of data of 2 MB, in 6 s.
    let whole = work(Pattern::Permutation, 1_024, 1_489, 1);
    let what = "model, permutation of 2 MB, 1,024 hosts on a fat tree, delivered frames a second";
    let least = (1_024.0 * 1_489.0 / 6.0_f64).max(1.5 * HTSIM_PERMUTATION);
    let alone = rate(what, whole, "254123 or more (6 s; 1.5 x htsim: 102400)", least, delivered);
    let both = rate(
        "the same with two threads",
        Work { threads: 2, ..whole },
        "1.4 x that of one or more, goal 1.7",
        1.4 * alone,
        delivered,
    );
    let _ = writeln!(std::io::stdout(), "     two threads against one: {:.2}", both / alone);
}

/// A ring all-reduce of 64 MiB among 1,024 hosts.
fn model_ring(report: &mut impl FnMut(&str, String, String, bool)) {
    let frames = (64_u64 << 20).div_ceil(1_024).div_ceil(1_344);
    let work = Work { pattern: Pattern::Ring, hosts: 1_024, frames, threads: 1 };
    let wanted = "240 s or less, goal 120 s".to_owned();
    let what = "model, ring all-reduce of 64 MiB, 1,024 hosts on a fat tree";
    match model::run(work) {
        Ok(cost) => {
            let figure = format!("{:.1} s, {} frame-hops", cost.seconds, cost.hops);
            report(what, figure, wanted, cost.done && cost.seconds <= 240.0);
        }
        Err(error) => report(what, error.to_string(), wanted, false),
    }
}

fn main() -> ExitCode {
    // For a profiler: runs one pattern alone (a permutation unless another is named) with the given
    // frames, hosts and threads, and prints its number of frame-hops. `model::instructions` calls
    // this.
    if std::env::args().nth(1).as_deref() == Some("model-count") {
        let number = |at, other: u64| {
            std::env::args().nth(at).and_then(|text| text.parse().ok()).unwrap_or(other)
        };
        let size = |at, other| usize::try_from(number(at, other)).unwrap_or(usize::MAX);
        let (frames, hosts, threads) = (number(2, 1), size(3, 8), size(4, 1));
        let pattern = match std::env::args().nth(5).as_deref() {
            None | Some("permutation") => Pattern::Permutation,
            Some("incast") => Pattern::Incast,
            Some(_) => return ExitCode::FAILURE,
        };
        let work = Work { pattern, hosts, frames, threads };
        let Ok(cost) = model::run(work) else { return ExitCode::FAILURE };
        let _ = writeln!(std::io::stdout(), "{}", cost.hops);
        return ExitCode::SUCCESS;
    }
    let mut missed = 0;
    let mut report = |what: &str, figure: String, wanted: String, holds: bool| {
        // Whoever closes the pipe early still gets the exit code.
        let word = if holds { "ok" } else { "MISS" };
        let _ = writeln!(std::io::stdout(), "{word:4} {what}: {figure} (wanted: {wanted})");
        missed += u32::from(!holds);
    };
    // One name runs that part alone, for a profiler.
    let only = std::env::args().nth(1);
    let wanted = |part: &str| only.as_deref().is_none_or(|only| only == part);
    if wanted("path") {
        whole_path(&mut report);
    }
    if wanted("tlps") {
        tlps(&mut report);
    }
    if wanted("islip") {
        islip_rows(&mut report);
    }
    if wanted("pbr") {
        cxl(&mut report);
    }
    if wanted("gfd") {
        gfd_rows(&mut report);
    }
    if wanted("gfd-link") {
        gfd_link_rows(&mut report);
    }
    if wanted("cxl-mem") {
        cxl_mem_rows(&mut report);
    }
    if wanted("fabric-mem") {
        fabric_mem_rows(&mut report);
    }
    if wanted("discovery") {
        report_discovery(&mut report);
    }
    if wanted("routes") {
        report_routes(&mut report);
    }
    if wanted("model") {
        model_rows(&mut report);
    }
    // Minutes: by its name only.
    if only.as_deref() == Some("model-ring") {
        model_ring(&mut report);
    }
    if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Ethernet frames through the whole path.
#[expect(clippy::float_arithmetic, reason = "rates for people")]
fn whole_path(report: &mut impl FnMut(&str, String, String, bool)) {
    let load = PathLoad { ports: 16, macs: 1_000, frame_len: 64 };
    let path = path::measure(load, frames());
    let mpps = 1e3 / path.ns_per_frame;
    report(
        "null → whole path → null, 64 bytes, 1,000 MACs, 16 ports, one core",
        format!(
            "{mpps:.1} Mpps, {:.1} ns a frame (median of the rounds {:.1} ns)",
            path.ns_per_frame, path.median_ns_per_frame
        ),
        format!("{PATH_MPPS:.0} Mpps or more"),
        mpps >= PATH_MPPS,
    );
    if let Some((least, median)) = path.tsc_per_frame {
        report(
            "the same, in TSC cycles",
            format!("{least:.0} a frame (median of the rounds {median:.0})"),
            format!("{PATH_TSC:.0} or less, goal {PATH_TSC_GOAL:.0}"),
            least <= PATH_TSC,
        );
        let parts = path.tsc_of_parts.iter().map(|(name, cycles)| format!("{name} {cycles:.0}"));
        let parts: Vec<String> = parts.collect();
        // For people: reading the counter between the parts takes a few cycles itself.
        let _ = writeln!(std::io::stdout(), "     by part of a step: {}", parts.join(", "));
    }
    report(
        "allocations during those frames",
        path.allocations.to_string(),
        "0".to_owned(),
        path.allocations == 0,
    );
    report(
        "frames dropped on the way: those flooded before their station was learnt, and DT's",
        path.dropped.to_string(),
        "less than 1 in 1,000".to_owned(),
        path.dropped < frames() / 1_000,
    );
}

/// TLPs through the whole path, beside Ethernet frames of the same length in the same run.
#[expect(clippy::float_arithmetic, reason = "a ratio for people")]
fn tlps(report: &mut impl FnMut(&str, String, String, bool)) {
    let load = PathLoad { ports: 16, macs: 1_000, frame_len: 64 };
    let ethernet = path::measure(load, frames() / 2);
    let tlps = path::measure_tlps(16, 1_000, frames() / 2);
    let ratio = ethernet.ns_per_frame / tlps.ns_per_frame;
    let tsc =
        tlps.tsc_per_frame.map_or(String::new(), |(least, _)| format!(", {least:.0} TSC cycles"));
    report(
        "PBR TLPs of 64 bytes, 1,000 PIDs, 16 fabric ports, one core, against Ethernet",
        format!(
            "{ratio:.2} ({:.1} ns a TLP{tsc}; {:.1} ns a frame)",
            tlps.ns_per_frame, ethernet.ns_per_frame
        ),
        format!("{TLP_RATIO} or more"),
        ratio >= TLP_RATIO,
    );
    let parts = tlps.tsc_of_parts.iter().map(|(name, cycles)| format!("{name} {cycles:.0}"));
    let parts: Vec<String> = parts.collect();
    let _ = writeln!(std::io::stdout(), "     by part of a step: {}", parts.join(", "));
    let lost = (tlps.dropped, tlps.allocations);
    report("TLPs dropped, and allocations", format!("{lost:?}"), "none".to_owned(), lost == (0, 0));
}

/// Figures of the CXL stage's decision.
fn cxl(report: &mut impl FnMut(&str, String, String, bool)) {
    let figure = pbr::measure(Segments::Interleaved, Kind::UioRequest, frames());
    let ((ns, median), (alone, alone_median)) = (figure.ns, figure.alone_ns);
    let tsc = figure.tsc.map_or(String::new(), |(least, median)| {
        format!(", {least:.0} TSC cycles (median {median:.0})")
    });
    let wanted = format!("{:.0} ns or less", pbr::MUST_NS);
    report(
        "CXL: FAST + IDT + GMV + DRT, 4,096 segments, random addresses, one core",
        format!("{ns:.1} ns a TLP (median of the rounds {median:.1} ns){tsc}"),
        wanted.clone(),
        ns <= pbr::MUST_NS,
    );
    report(
        "the same, each waiting for the one before",
        format!("{alone:.1} ns a TLP (median of the rounds {alone_median:.1} ns)"),
        wanted.clone(),
        alone <= pbr::MUST_NS,
    );
    let mixed = pbr::measure(Segments::Mixed, Kind::UioRequest, frames());
    let (ns, median) = mixed.ns;
    report(
        "CXL: the first of these, half of the segments of one way, at random",
        format!("{ns:.1} ns a TLP (median of the rounds {median:.1} ns)"),
        wanted.clone(),
        ns <= pbr::MUST_NS,
    );
    let mem = pbr::measure(Segments::Interleaved, Kind::CxlMemRequest, frames());
    let (ns, median) = mem.ns;
    report(
        "CXL: the first of these, for CXL.mem requests",
        format!("{ns:.1} ns a message (median of the rounds {median:.1} ns)"),
        wanted,
        ns <= pbr::MUST_NS,
    );
    let allocations = figure.allocations + mixed.allocations + mem.allocations;
    report(
        "allocations during those decisions",
        allocations.to_string(),
        "0".to_owned(),
        allocations == 0,
    );
}

/// The fabric manager and real switches: from nothing, and after a link was lost.
#[expect(clippy::float_arithmetic, reason = "figures for people")]
fn report_discovery(report: &mut impl FnMut(&str, String, String, bool)) {
    let fabrics = discovery::fabrics().expect("of sizes that a graph takes");
    for (name, graph) in fabrics {
        let cost = match discovery::measure(&graph) {
            Ok(cost) => cost,
            Err(error) => {
                report(name, error, "a fabric that is up".to_owned(), false);
                continue;
            }
        };
        let whole_s = cost.discover_s + cost.number_s + cost.make_s;
        report(
            &format!(
                "{name}; discovery, {} PIDs, proved routes, with the switches' side",
                cost.pids
            ),
            format!(
                "{whole_s:.2} s ({:.2} discovery, {:.2} PIDs, {:.2} routes and proof); sent and read back in {:.2} s",
                cost.discover_s, cost.number_s, cost.make_s, cost.send_s
            ),
            format!("{:.0} s or less", routes::WHOLE_S),
            whole_s <= routes::WHOLE_S,
        );
        report(
            "the same after a lost link, from asking all ports to new tables read back from all",
            format!("{:.2} s, {} entries", cost.loss_s, cost.resent),
            format!("{:.0} s or less", routes::LOSS_S),
            cost.loss_s <= routes::LOSS_S,
        );
    }
}

/// Routes of the fabric manager: from nothing, and after a link was lost.
#[expect(clippy::float_arithmetic, reason = "figures for people")]
fn report_routes(report: &mut impl FnMut(&str, String, String, bool)) {
    let fabrics = routes::fabrics().expect("of sizes that a graph takes");
    for (name, graph, loss_max_s) in fabrics {
        let cost = match routes::measure(graph) {
            Ok(cost) => cost,
            Err(fault) => {
                report(name, fault.to_string(), "a proof".to_owned(), false);
                continue;
            }
        };
        let whole_s = cost.route_s + cost.proof_s;
        report(
            &format!("{name}; routes, proof found and checked"),
            format!("{whole_s:.2} s ({:.2} routes, {:.2} proof)", cost.route_s, cost.proof_s),
            format!("{:.0} s or less", routes::WHOLE_S),
            whole_s <= routes::WHOLE_S,
        );
        let loss_s = cost.loss_s + cost.loss_proof_s + cost.transit_s;
        let figure = format!(
            "{loss_s:.2} s ({:.2} routes, {:.2} proof, {:.2} the way there)",
            cost.loss_s, cost.loss_proof_s, cost.transit_s
        );
        let bound = format!("{loss_max_s:.0} s or less");
        report("the same after a lost link", figure, bound, loss_s <= loss_max_s);
        let (hops_max, static_max, mean) = cost.hops;
        // for people: lengths of the routes, and further costs of a change
        let _ = writeln!(
            std::io::stdout(),
            "     static {mean:.2} hops on average and {static_max} at most, dynamic {hops_max}; {} entries short of \
             groups; after the loss {} entries to send, {} PIDs withdrawn",
            cost.short,
            cost.sent,
            cost.withdrawn,
        );
    }
}
