//! Messages of a serving process on standard error: lines of text, or JSON objects, one a line.
//!
//! A [`Log`] has the least level and the form; events of the event log are written in the same form. Times in JSON are
//! wall clock, RFC 3339, UTC.
//!
//! Source: JSON is RFC 8259; docs/running.md "Events".

use std::io::{self, Write};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::json;
use weft_config::Settings;
use weft_config::choice::{Choice, LogFormat, LogLevel};

use crate::events::{self, Event};

pub use crate::events::Level;

/// Longest time that [`say_in_time`] waits for a message to be written.
const SAY_MAX: Duration = Duration::from_millis(500);

/// Which messages are written, and in which form.
#[derive(Clone, Copy, Debug)]
pub struct Log {
    /// Least level that is written.
    pub least: LogLevel,
    pub format: LogFormat,
}

impl Default for Log {
    fn default() -> Self {
        Self { least: LogLevel::Info, format: LogFormat::Text }
    }
}

impl Log {
    /// The log that `settings` ask for; the default where they have no known word.
    #[must_use]
    pub fn of(settings: &Settings) -> Self {
        let word = |key| settings.table("run", key).and_then(|set| set.value.as_text());
        let default = Self::default();
        Self {
            least: word("log").and_then(LogLevel::from_name).unwrap_or(default.least),
            format: word("log_format").and_then(LogFormat::from_name).unwrap_or(default.format),
        }
    }

    const fn wants(self, level: Level) -> bool {
        match level {
            Level::Error => true,
            Level::Warn => !matches!(self.least, LogLevel::Error),
            Level::Info => matches!(self.least, LogLevel::Info | LogLevel::Debug),
        }
    }

    /// A message as a line, with its newline.
    #[must_use]
    pub fn line(self, level: Level, kind: &str, message: &str) -> String {
        match self.format {
            LogFormat::Text => match level {
                Level::Error => format!("error: {message}\n"),
                Level::Warn => format!("warning: {message}\n"),
                Level::Info => format!("{message}\n"),
            },
            LogFormat::Json => {
                let time = events::wall_clock();
                let line = json!({
                    "time": time, "level": level, "kind": kind, "message": message
                });
                format!("{line}\n")
            }
        }
    }

    /// Writes a message of the start or the end of the process; waits for the reader of standard error.
    pub fn say(self, level: Level, kind: &str, message: &str) {
        if self.wants(level) {
            anstream::eprint!("{}", self.line(level, kind, message));
        }
    }

    /// As [`say`](Self::say), but does not wait longer than [`say_in_time`].
    pub fn say_in_time(self, level: Level, kind: &str, message: &str) {
        if self.wants(level) {
            say_in_time(&self.line(level, kind, message));
        }
    }

    pub fn event(self, event: &Event) {
        if !self.wants(event.level) {
            return;
        }
        match self.format {
            LogFormat::Text => anstream::eprintln!("{event}"),
            LogFormat::Json => {
                anstream::eprintln!("{}", serde_json::to_value(event).unwrap_or_default());
            }
        }
    }
}

/// Writes to standard error, if that can be done in half a second: its reader may not read, and a thread that has ended
/// may hold its lock.
pub fn say_in_time(text: &str) {
    let text = text.to_owned();
    let (said, heard) = mpsc::channel::<()>();
    // In a thread of its own, which stays behind if it blocks; the caller goes on.
    let say = move || {
        // If standard error fails there is no other place to report it.
        let _ = io::stderr().write_all(text.as_bytes());
        drop(said);
    };
    if std::thread::Builder::new().spawn(say).is_ok() {
        let _ = heard.recv_timeout(SAY_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_left_out_and_lines_are_of_one_form() {
        let at = |least| Log { least, format: LogFormat::Text };
        #[rustfmt::skip] // columns: least level, errors, warnings, information
        let cases = [
            (LogLevel::Error, [true, false, false]), (LogLevel::Warn, [true, true, false]),
            (LogLevel::Info, [true, true, true]), (LogLevel::Debug, [true, true, true]),
        ];
        for (least, want) in cases {
            assert_eq!([Level::Error, Level::Warn, Level::Info].map(|l| at(least).wants(l)), want);
        }
        let log = Log { format: LogFormat::Json, ..Log::default() };
        let line = log.line(Level::Warn, "start", "a \"b\"\nc");
        let value: serde_json::Value = serde_json::from_str(line.trim_end()).unwrap();
        assert_eq!((&value["level"], &value["message"]), (&"warn".into(), &"a \"b\"\nc".into()));
        assert_eq!(line.matches('\n').count(), 1, "{line}");
    }
}
