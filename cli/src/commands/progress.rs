//! Progress bars for long work, shown on standard error if that is a terminal.
//!
//! The caller advances them; `what` names the unit that is counted.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar for `total` of `what`; hidden unless standard error is a terminal.
#[must_use]
pub fn bar(total: u64, what: &'static str) -> ProgressBar {
    const TIMES_PER_SECOND: u8 = 10;
    let bar = ProgressBar::with_draw_target(
        Some(total),
        ProgressDrawTarget::stderr_with_hz(TIMES_PER_SECOND),
    );
    let template = "{bar:40} {human_pos}/{human_len} {msg}, {eta} left";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.with_message(what)
}

/// A count of `what` without a known end; hidden unless standard error is a terminal.
#[must_use]
pub fn spinner(what: &'static str) -> ProgressBar {
    const TIMES_PER_SECOND: u8 = 10;
    let target = ProgressDrawTarget::stderr_with_hz(TIMES_PER_SECOND);
    let bar = ProgressBar::with_draw_target(None, target);
    if let Ok(style) = ProgressStyle::with_template("{spinner} {human_pos} {msg}, {per_sec}") {
        bar.set_style(style);
    }
    bar.with_message(what)
}

/// A count of trials, each with a message of its own; hidden unless standard error is a terminal.
#[must_use]
pub fn trials() -> ProgressBar {
    const TIMES_PER_SECOND: u8 = 10;
    let target = ProgressDrawTarget::stderr_with_hz(TIMES_PER_SECOND);
    let bar = ProgressBar::with_draw_target(None, target);
    if let Ok(style) = ProgressStyle::with_template("{spinner} trial {human_pos}: {msg}, {elapsed}")
    {
        bar.set_style(style);
    }
    bar
}

/// A bar of a run in virtual time over about `hops` frame-hops; hidden unless standard error is a terminal.
#[must_use]
pub fn virtual_time(hops: u64) -> ProgressBar {
    const TIMES_PER_SECOND: u8 = 10;
    let bar = ProgressBar::with_draw_target(
        Some(hops),
        ProgressDrawTarget::stderr_with_hz(TIMES_PER_SECOND),
    );
    let template = "{bar:30} {percent}% at {msg} of virtual time, {per_sec} frame-hops, {eta} left";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}
