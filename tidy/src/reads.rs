//! Reading files: only through `weft_base::files`, which keeps no service waiting.
//!
//! It finds calls that open a file to read, in code outside of tests.
//!
//! Source: docs/privileges.md "Files".

use super::{Finding, Tree};

/// Calls that open a file of any kind.
const OPEN: [&str; 5] =
    ["File::open(", "fs::read(", "fs::read_to_string(", "pem_file_iter(", "from_pem_file("];

/// Paths of the kernel's files, which always answer.
const KERNEL: [&str; 4] = ["\"/proc/", "\"/sys/", "\"/dev/null\"", "/sys/class"];

/// Places where a file may be opened otherwise, with the reason.
const MAY: [(&str, &str); 9] = [
    ("base/src/files.rs", "the one place"),
    ("bench/", "measures, and serves no clients"),
    ("cli/src/commands/bench/machine.rs", "reads below /sys and /proc, and a test's copy of them"),
    ("cli/src/interfaces.rs", "a file of /proc, by a constant"),
    ("control/src/serve/dir.rs", "a directory, which is locked"),
    ("dataplane/src/port/af_xdp/btf.rs", "a file of /sys, by a constant"),
    ("dataplane/src/port/capture/read.rs", "captures, which commands also read from pipes"),
    ("tidy/", "reads the tree"),
    ("xdp/", "a file of /sys, by a constant; its build"),
];

/// Files are opened to read in one place, which knows whether a service opens them.
#[must_use]
pub fn reads(tree: &Tree) -> Vec<Finding> {
    let files = tree.rust().filter(|file| {
        let is_of_program = !file.is_test()
            && !["tests/", "fuzz/"].iter().any(|dir| file.path.starts_with(dir))
            && !["/examples/", "/benches/", "build.rs"].iter().any(|part| file.path.contains(part));
        is_of_program && !MAY.iter().any(|(path, _)| file.path.starts_with(path))
    });
    let found = files.flat_map(|file| {
        let opens = file.code().filter(|(_, line)| {
            OPEN.iter().any(|call| line.contains(call))
                && !KERNEL.iter().any(|path| line.contains(path))
        });
        opens.map(|(line, _)| {
            Finding::new(
                file,
                line,
                "open files by weft_base::files, which waits for no pipe in a service",
            )
        })
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_opened_in_one_place_and_the_kernels_anywhere() {
        #[rustfmt::skip] // columns: path, text, findings
        let cases = [
            ("control/src/a.rs", "let a = std::fs::read(path)?;\n", 1),
            ("control/src/a.rs", "let a = File::open(&path)?;\n", 1),
            ("control/src/a.rs", "CertificateDer::pem_file_iter(path)\n", 1),
            ("control/src/a.rs", "std::fs::read_to_string(\"/proc/self/stat\")\n", 0),
            ("control/src/a.rs", "// File::open(path)\n", 0),
            ("control/src/a.rs", "#[cfg(test)]\nmod tests { fn a() { fs::read(path) } }\n", 0),
            ("cli/tests/a.rs", "fs::read(path)\n", 0),
            ("base/src/files.rs", "File::open(path)\n", 0),
        ];
        for (path, text, want) in cases {
            assert_eq!(reads(&Tree::of(&[(path, text)])).len(), want, "{path}: {text}");
        }
    }
}
