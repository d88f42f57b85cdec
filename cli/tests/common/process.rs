//! A switch as a child process of a test.
//!
//! Starts `weft run`, and waits until it reports that it is up.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStderr, Command, Stdio};

/// A process that does not outlive its test.
pub struct Guard(pub Child);

impl Drop for Guard {
    fn drop(&mut self) {
        // It has usually ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts `weft` with the arguments that `args` adds, and waits until the switch is up; returns the rest of standard
/// error to read.
pub fn start(args: impl FnOnce(&mut Command) -> &mut Command) -> (Guard, BufReader<ChildStderr>) {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("weft"));
    let command = args(&mut command).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut err = BufReader::new(child.stderr.take().unwrap());
    let child = Guard(child);
    let mut said = String::new();
    while !said.lines().last().is_some_and(|line| line.contains("is up")) {
        let more = err.read_line(&mut said).unwrap();
        assert_ne!(more, 0, "the switch ended before it was up: {said}");
    }
    (child, err)
}
