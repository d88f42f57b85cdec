//! Builds the kernel's programs, or says why it could not.
//!
//! The result is `OUT_DIR/object.rs`, a constant `OBJECTS: Result<[&[u8]; 2], &str>`; an error is also a warning of the
//! build. Without the programs weft builds and runs all the same, only slower.
//!
//! The target comes without a core library, so that is built from the toolchain's own sources (`rust-src`): by this
//! toolchain, told to allow it, or by a nightly one.
//!
//! Source: docs/express.md; rustc's `bpfel-unknown-none` target.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

const TARGET: &str = "bpfel-unknown-none";
const LINKER: &str = "bpf-linker";
/// Programs of `ebpf/`.
const OBJECTS: [&str; 2] = ["weft-ebpf", "weft-xmit"];
const NO_SOURCES: &str = "the toolchain has no sources of the core library (rustup component add \
                          rust-src, or the distribution's package of Rust's sources)";
const SOURCES: &str = "lib/rustlib/src/rust/library/core/src/lib.rs";

fn main() -> io::Result<()> {
    let root = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let out = PathBuf::from(variable("OUT_DIR"));
    for path in ["build.rs", "ebpf/src", "ebpf/Cargo.toml", "ebpf/Cargo.lock", "src", "../parsers"]
    {
        println!("cargo:rerun-if-changed={}", root.join(path).display());
    }
    println!("cargo:rerun-if-env-changed=WEFT_EBPF");
    let objects = match build(&root, &out) {
        Ok(folder) => {
            let mut text = "Ok([".to_owned();
            for name in OBJECTS {
                fs::copy(folder.join(name), out.join(name))?;
                text += "aya::include_bytes_aligned!(concat!(env!(\"OUT_DIR\"), \"/";
                text += name;
                text += "\")), ";
            }
            text + "])"
        }
        Err(why) => {
            println!("cargo:warning=no fast path in the kernel: {why}");
            format!("Err({why:?})")
        }
    };
    fs::write(
        out.join("object.rs"),
        format!("pub(crate) const OBJECTS: Result<[&[u8]; 2], &str> = {objects};\n"),
    )
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_default()
}

/// Builds the objects and returns their folder, or the reason for failing, on one line.
fn build(root: &Path, out: &Path) -> Result<PathBuf, String> {
    if variable("WEFT_EBPF") == "off" {
        return Err("WEFT_EBPF=off when weft was built".to_owned());
    }
    if variable("CARGO_CFG_TARGET_OS") != "linux" {
        return Err("weft was built for another system than Linux".to_owned());
    }
    // The target is little-endian BPF, which a big-endian kernel cannot run.
    if variable("CARGO_CFG_TARGET_ENDIAN") != "little" {
        return Err("weft was built for a big-endian machine".to_owned());
    }
    let linker = linker()?;
    let mut reasons = Vec::new();
    for toolchain in toolchains() {
        match compile(root, out, &linker, &toolchain) {
            Ok(folder) => return Ok(folder),
            Err(why) => reasons.push(why),
        }
    }
    if reasons.is_empty() {
        reasons.push(NO_SOURCES.to_owned());
    }
    Err(reasons.join("; "))
}

/// Path of bpf-linker: from PATH, or where `cargo install` puts it.
///
/// Cargo runs this again when that file changes. A missing file counts as changed, so until bpf-linker is installed it
/// runs at each build. PATH is not watched: editors and shells have different ones, and each change would recompile all
/// crates that depend on this one.
fn linker() -> Result<PathBuf, String> {
    let home = env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo"));
    let installed = env::var_os("CARGO_HOME").map(PathBuf::from).or(home).map(|c| c.join("bin"));
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = env::split_paths(&path).collect();
    folders.extend(installed.clone());
    let found = folders.into_iter().map(|folder| folder.join(LINKER)).find(|file| file.is_file());
    let missing = installed.unwrap_or_default().join(LINKER);
    println!("cargo:rerun-if-changed={}", found.as_ref().unwrap_or(&missing).display());
    found.ok_or_else(|| format!("{LINKER} is not installed (tools/setup.sh build installs it)"))
}

/// A way to run cargo with the core library's sources.
struct Toolchain {
    /// Name in messages, and of its target folder.
    name: &'static str,
    cargo: Vec<String>,
    rustc: Option<String>,
}

/// This toolchain, then a nightly one, if they have the sources.
fn toolchains() -> Vec<Toolchain> {
    let rustc = env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let cargo = env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let nightly = |program: &str| ["rustup", "run", "nightly", program].map(str::to_owned).to_vec();
    let mut found = Vec::new();
    if has_sources(std::slice::from_ref(&rustc)) {
        found.push(Toolchain { name: "own", cargo: vec![cargo], rustc: Some(rustc) });
    }
    if has_sources(&nightly("rustc")) {
        found.push(Toolchain { name: "nightly", cargo: nightly("cargo"), rustc: None });
    }
    found
}

/// Whether the toolchain of this rustc has the sources of the core library.
fn has_sources(rustc: &[String]) -> bool {
    let Some((program, arguments)) = rustc.split_first() else { return false };
    let asked = clean(program).args(arguments).args(["--print", "sysroot"]).output();
    let Ok(said) = asked else { return false };
    let sysroot = String::from_utf8_lossy(&said.stdout).trim().to_owned();
    let sources = Path::new(&sysroot).join(SOURCES);
    // Build again once the sources are installed.
    if !sysroot.is_empty() && !sources.is_file() {
        println!("cargo:rerun-if-changed={}", sources.display());
    }
    said.status.success() && sources.is_file()
}

/// A command without this build's own settings, which are for another target.
fn clean(program: &str) -> Command {
    let mut command = Command::new(program);
    let kept = ["CARGO_HOME", "CARGO_MAKEFLAGS", "CARGO_TERM_COLOR", "RUSTUP_HOME"];
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        let ours = text.starts_with("CARGO") || text.starts_with("RUST") || text == "CLIPPY_ARGS";
        let net = text.starts_with("CARGO_NET") || text.starts_with("CARGO_HTTP");
        if ours && !net && !kept.contains(&text.as_ref()) {
            command.env_remove(name);
        }
    }
    command
}

fn compile(
    root: &Path,
    out: &Path,
    linker: &Path,
    toolchain: &Toolchain,
) -> Result<PathBuf, String> {
    let Toolchain { name, cargo, rustc } = toolchain;
    let Some((program, before)) = cargo.split_first() else { return Err("no cargo".to_owned()) };
    // One folder for all profiles, so that the core library is built once for each toolchain.
    let target = out.ancestors().nth(4).unwrap_or(out).join("ebpf").join(name);
    let flags = format!("-Clinker={}", linker.display());
    let mut command = clean(program);
    command
        .args(before)
        .args(["build", "--release", "--locked", "-Zbuild-std=core", "--target", TARGET])
        .arg("--manifest-path")
        .arg(root.join("ebpf/Cargo.toml"))
        .arg("--target-dir")
        .arg(&target)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_ENCODED_RUSTFLAGS", flags);
    if let Some(rustc) = rustc {
        command.env("RUSTC", rustc);
    }
    let said = command.output().map_err(|why| format!("{name} toolchain: {program}: {why}"))?;
    if said.status.success() {
        return Ok(target.join(TARGET).join("release"));
    }
    let text = String::from_utf8_lossy(&said.stderr);
    let error = text.lines().find(|line| line.starts_with("error")).unwrap_or("cargo failed");
    Err(format!("{name} toolchain: {error}"))
}
