//! Writes paths: JSON lines (an event a line), text (a stage a line), or pcapng (the received frame with its path as
//! comment).
//! Source: draft-ietf-opsawg-pcapng-05, 3.5 (comments).

use std::io::{self, Write};

use serde::Serialize;
use serde_json::Value;
use weft_dataplane::port::capture::{CaptureError, CaptureWriter, Meta};
use weft_dataplane::time::Instant;

use super::{ShownPath, Stage};

#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// Writing text or JSON failed.
    #[error("write trace")]
    Write(#[from] io::Error),
    /// Writing pcapng failed.
    #[error("write trace")]
    Capture(#[from] CaptureError),
}

impl TraceError {
    /// Whether the reader of a pipe has gone.
    #[must_use]
    pub fn is_broken_pipe(&self) -> bool {
        let source = match self {
            Self::Write(source) | Self::Capture(CaptureError::Write { source, .. }) => source,
            Self::Capture(_) => return false,
        };
        source.kind() == io::ErrorKind::BrokenPipe
    }
}

/// Output of a trace, in one of three forms.
pub struct Sink<'a> {
    form: Form<'a>,
}

enum Form<'a> {
    Json(Box<dyn Write + 'a>),
    Text(Box<dyn Write + 'a>),
    Capture { capture: Box<CaptureWriter>, base_ns: u64 },
}

/// Longest comment in bytes: its length is a 16-bit field.
const COMMENT_LEN_MAX: usize = u16::MAX as usize;

impl<'a> Sink<'a> {
    pub fn json(out: impl Write + 'a) -> Self {
        Self { form: Form::Json(Box::new(out)) }
    }

    pub fn text(out: impl Write + 'a) -> Self {
        Self { form: Form::Text(Box::new(out)) }
    }

    /// pcapng with an interface for each of `ports`. Timestamps are the time of receipt, counted from `base_ns`.
    ///
    /// # Errors
    /// The capture cannot be written.
    pub fn capture(
        mut capture: CaptureWriter,
        ports: &[String],
        base_ns: u64,
    ) -> Result<Self, TraceError> {
        for port in ports {
            capture.add_interface(port)?;
        }
        Ok(Self { form: Form::Capture { capture: Box::new(capture), base_ns } })
    }

    /// Whether the bytes of frames are needed.
    #[must_use]
    pub const fn wants_bytes(&self) -> bool {
        matches!(self.form, Form::Capture { .. })
    }

    /// Whether events can be written one by one, without collecting paths.
    #[must_use]
    pub const fn takes_events(&self) -> bool {
        matches!(self.form, Form::Json(_))
    }

    /// Whether stages are lines of their own, so that those of several frames can be put in order of time.
    #[must_use]
    pub const fn takes_stages(&self) -> bool {
        !matches!(self.form, Form::Capture { .. })
    }

    /// Writes one event; does nothing unless [`Self::takes_events`].
    ///
    /// # Errors
    /// It cannot be written.
    pub fn event(&mut self, event: &Value) -> Result<(), TraceError> {
        let Form::Json(out) = &mut self.form else { return Ok(()) };
        json_line(out, event)
    }

    /// Writes one stage; does nothing unless [`Self::takes_stages`].
    ///
    /// # Errors
    /// It cannot be written.
    pub fn stage(&mut self, stage: &Stage) -> Result<(), TraceError> {
        match &mut self.form {
            Form::Json(out) => json_line(out, &stage.event),
            Form::Text(out) => Ok(writeln!(out, "{}", stage.text)?),
            Form::Capture { .. } => Ok(()),
        }
    }

    ///
    /// # Errors
    /// It cannot be written.
    pub fn path(&mut self, path: &ShownPath) -> Result<(), TraceError> {
        match &mut self.form {
            Form::Json(_) | Form::Text(_) => path.stages.iter().try_for_each(|s| self.stage(s)),
            Form::Capture { capture, base_ns } => {
                let comment = comment(path);
                let meta = Meta {
                    ts_ns: base_ns.saturating_add(Instant::from_ps(path.t_ps).as_ns()),
                    interface: u32::from(path.port),
                    orig_len: u32::from(path.len),
                    comment: Some(&comment),
                    ..Meta::default()
                };
                Ok(capture.write_with(meta, &path.bytes)?)
            }
        }
    }

    /// Hands buffered output to the system.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn flush(&mut self) -> Result<(), TraceError> {
        match &mut self.form {
            Form::Json(out) | Form::Text(out) => Ok(out.flush()?),
            Form::Capture { capture, .. } => Ok(capture.flush()?),
        }
    }
}

fn json_line(out: &mut dyn Write, value: &impl Serialize) -> Result<(), TraceError> {
    serde_json::to_writer(&mut *out, value).map_err(io::Error::from)?;
    Ok(out.write_all(b"\n")?)
}

/// The path as text: as many whole lines as fit.
fn comment(path: &ShownPath) -> String {
    let mut comment = String::new();
    for Stage { text, .. } in &path.stages {
        if comment.len() + 1 + text.len() > COMMENT_LEN_MAX {
            break;
        }
        if !comment.is_empty() {
            comment.push('\n');
        }
        comment.push_str(text);
    }
    comment
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_cut_between_lines() {
        let stage = Stage { text: "\u{e9}".repeat(500), ..Stage::default() };
        let path = ShownPath { stages: vec![stage; 100], ..ShownPath::default() };
        let comment = comment(&path);
        assert_eq!(comment.lines().count(), 65);
        assert_eq!(comment.len(), 65 * 1_001 - 1);
        assert!(comment.lines().all(|line| line.len() == 1_000));
    }
}
