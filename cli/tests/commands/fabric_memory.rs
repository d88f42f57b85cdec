//! docs/fabric-memory.md: every command block of the page is run, in order, by one shell on a running fabric.
//!
//! The page's blocks of `sh` become a script, whose output is compared with the blocks of `text`.
//!
//! Source: docs/fabric-memory.md.

use std::path::Path;
use std::process::Command;

const PAGE: &str = include_str!("../../../docs/fabric-memory.md");

/// The page's blocks of a language, in order.
fn blocks(language: &str) -> Vec<&'static str> {
    let start = format!("```{language}\n");
    let parts = PAGE.split(start.as_str()).skip(1);
    parts.map(|part| part.split("```").next().unwrap()).collect()
}

/// Whether a line is as the page has it, where `#` stands for a number and `*` for a word.
fn is_like(line: &str, want: &str) -> bool {
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let (have, want) = (words(line), words(want));
    let like = |(have, want): (&String, &String)| match want.trim_end_matches(':') {
        "#" => have.trim_end_matches(':').bytes().all(|byte| byte.is_ascii_digit()),
        "*" => true,
        _ => have == want,
    };
    have.len() == want.len() && have.iter().zip(&want).all(like)
}

#[test]
fn every_command_of_the_page_does_what_it_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let weft = Path::new(env!("CARGO_BIN_EXE_weft"));
    let folder = tempfile::tempdir().unwrap();
    for part in ["pcaps", "lab"] {
        std::os::unix::fs::symlink(root.join(part), folder.path().join(part)).unwrap();
    }
    let path = format!("{}:{}", weft.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let script =
        format!("set -eu\ntrap 'kill $up 2>/dev/null || true' EXIT\n{}", blocks("sh").concat());
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).current_dir(folder.path()).env("PATH", path);
    let done = shell.output().unwrap();
    let (said, errors) =
        (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{said}\n{errors}");
    let want = blocks("text").concat();
    let (lines, want): (Vec<&str>, Vec<&str>) = (said.lines().collect(), want.lines().collect());
    for (line, want) in lines.iter().zip(&want) {
        assert!(is_like(line, want), "{line:?} is not {want:?}\n{said}\n{errors}");
    }
    assert_eq!(lines.len(), want.len(), "{said}");
}

/// Options that exclude each other are refused before a port is opened, by name.
#[test]
fn options_that_exclude_each_other_are_refused() {
    let weft = Path::new(env!("CARGO_BIN_EXE_weft"));
    let host = ["endpoint", "host", "--port", "af_packet:nowhere", "--fabric-window", "1TiB:1GiB"];
    let cases: [(&[&str], &str); 4] = [
        (&["--enable-use-fabric-mem", "--fabric-mem", "buffer_pool=4:8"], "exclude each other"),
        (
            &["--enable-use-fabric-mem", "--fabric-mem", "streams_per_transfer=99"],
            "at most streams_max",
        ),
        (&["--enable-use-fabric-mem", "--mode", "non-flit"], "flit mode only"),
        (&["--fabric-mem", "stream_depth=4"], "set enable_use_fabric_mem"),
    ];
    for (more, want) in cases {
        let done = Command::new(weft).args(host).args(more).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.code() == Some(2) && said.contains(want), "{more:?}: {said}");
    }
}
