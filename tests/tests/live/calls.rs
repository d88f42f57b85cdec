//! Workers at full load spend at most one system call on sixteen frames.
//!
//! Two stations send to each other through one worker; the kernel's tracing counts the calls of
//! that thread, weft its frames.
//!
//! Units: calls, frames.
//! Source: Linux `Documentation/trace/events.rst`.
#![expect(clippy::unwrap_used, reason = "a test fails that way")]

use std::collections::BTreeMap;
use std::fs::{create_dir, read_dir, read_to_string, remove_dir, write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_setaffinity};
use weft_base::wait::{LONG, pause, until};
use weft_tests::netns::{Net, Switch};
use weft_tests::stations::{BURST, Load, Station, frame, mac};

/// Frames that one call must do for.
const FRAMES_A_CALL: u64 = 16;
/// How long is counted.
const COUNTED: Duration = Duration::from_secs(1);
const TRACING: &str = "/sys/kernel/tracing";

/// Counts the system calls of some threads, in a buffer of its own.
struct Calls(PathBuf);

impl Calls {
    /// Starts to count, or says why that cannot be.
    fn start(threads: &[u32]) -> Result<Self, String> {
        let said = |what: String| move |error: std::io::Error| format!("{what}: {error}");
        if !Path::new(TRACING).join("instances").is_dir() {
            let done = Command::new("mount").args(["-t", "tracefs", "nodev", TRACING]).output();
            let done = done.map_err(said("mount".to_owned()))?;
            if !done.status.success() {
                return Err(String::from_utf8_lossy(&done.stderr).trim().to_owned());
            }
        }
        let ids: Vec<String> = threads.iter().map(u32::to_string).collect();
        let name = format!("weft-{}", ids.join("-"));
        let calls = Self(Path::new(TRACING).join("instances").join(name));
        create_dir(&calls.0).map_err(said("a tracing instance".to_owned()))?;
        let set =
            |file: &str, text: &str| write(calls.0.join(file), text).map_err(said(file.to_owned()));
        set("set_event_pid", &ids.join(" "))?;
        set("events/raw_syscalls/sys_enter/enable", "1")?;
        Ok(calls)
    }

    /// Calls so far: those in the buffer and those that were overwritten.
    fn count(&self) -> u64 {
        let mut count = 0;
        for cpu in read_dir(self.0.join("per_cpu")).unwrap() {
            let stats = read_to_string(cpu.unwrap().path().join("stats")).unwrap();
            let number =
                |line: &str| line.split(':').nth(1).and_then(|n| n.trim().parse::<u64>().ok());
            let ours = |line: &&str| line.starts_with("entries:") || line.starts_with("overrun:");
            count += stats.lines().filter(ours).filter_map(number).sum::<u64>();
        }
        count
    }

    /// The calls that are in the buffer, by number: the last ones.
    fn by_number(&self) -> BTreeMap<String, u64> {
        let text = read_to_string(self.0.join("trace")).unwrap_or_default();
        let mut found = BTreeMap::new();
        for line in text.lines() {
            if let Some((_, rest)) = line.split_once(" NR ") {
                let number = rest.split(' ').next().unwrap_or_default().to_owned();
                *found.entry(number).or_default() += 1;
            }
        }
        found
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        drop(write(self.0.join("events/raw_syscalls/sys_enter/enable"), "0"));
        drop(remove_dir(&self.0));
    }
}

/// The worker threads of a process.
fn workers(pid: u32) -> Vec<u32> {
    let tasks = read_dir(format!("/proc/{pid}/task")).unwrap().map(|task| task.unwrap().path());
    let works = |task: &PathBuf| {
        read_to_string(task.join("comm")).is_ok_and(|name| name.starts_with("weft-worker"))
    };
    let id = |task: PathBuf| task.file_name()?.to_str()?.parse().ok();
    tasks.filter(works).filter_map(id).collect()
}

/// Frames that the workers have received.
fn frames(switch: &Switch) -> u64 {
    let workers = switch.show("workers");
    workers.as_array().unwrap().iter().map(|worker| worker["frames"].as_u64().unwrap()).sum()
}

#[test]
fn af_xdp_takes_one_call_for_sixteen_frames() {
    few_calls("af_xdp_takes_one_call_for_sixteen_frames", "af_xdp");
}

fn few_calls(test: &str, kind: &str) {
    let Some(mut net) = Net::new(test) else { return };
    net.add_wires(2);
    let ports = [format!("p0={kind}:s0"), format!("p1={kind}:s1")];
    // One core for both, taken in turn, so that much has come whenever it is the worker's.
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let core = usize::from(kind == "af_packet") % cores;
    let set = format!("run.cores=[{core}]");
    let more = ["--set", &set, "--set", "run.poll=busy"];
    let switch = Switch::start_with(&net, &[&ports[0], &ports[1]], "", &more);
    let threads = workers(switch.pid());
    assert_eq!(threads.len(), 1);
    let calls = match Calls::start(&threads) {
        Ok(calls) => calls,
        Err(why) => {
            eprintln!("SKIPPED {test}: system calls cannot be counted: {why}");
            return;
        }
    };
    let stations = ["f0", "f1"].map(|device| Station::sender(&net, "far", device));
    let mut is_pinned = false;
    let load = Load::start(stations.into(), move |index, burst, _| {
        if !core::mem::replace(&mut is_pinned, true) {
            let mut cores = CpuSet::new();
            cores.set(core);
            sched_setaffinity(None, &cores).unwrap();
        }
        let (from, to) = if index == 0 { (mac(0), mac(1)) } else { (mac(1), mac(0)) };
        burst.resize_with(BURST, || frame(to, from, 60, 0));
    });
    // Both are known, and the load is at its rate.
    until(LONG, "a load", || (frames(&switch) > 20_000).then_some(()));
    let before = (calls.count(), frames(&switch));
    pause(COUNTED); // a rate is over a span
    let after = (frames(&switch), calls.count());
    drop(load);
    let (frames, calls_made) = (after.0 - before.1, after.1 - before.0);
    println!("{kind}: {calls_made} system calls for {frames} frames");
    assert!(frames > 20_000, "that was no load: {frames} frames");
    assert!(calls_made > 0, "nothing was counted");
    assert!(
        calls_made * FRAMES_A_CALL <= frames,
        "{kind}: {calls_made} system calls for {frames} frames; the last ones by number: {:?}",
        calls.by_number()
    );
}

#[test]
fn af_packet_takes_one_call_for_sixteen_frames() {
    few_calls("af_packet_takes_one_call_for_sixteen_frames", "af_packet");
}
