//! Files of results that a run writes in addition to its summary.
//!
//! [`OutputArgs`] are flattened into the arguments of `weft sim run`.
//!
//! Source: docs/results.md.

use std::path::{Path, PathBuf};

use clap::Args;
use weft_control::page;
use weft_control::page::runs::of_results;
use weft_sim::results::Results;
use weft_views::results::csv::Table;
use weft_views::results::{WriteError, html, perfetto, probe_file, write_file};

use crate::error::CliError;

/// Files of results.
#[derive(Args, Debug, Default)]
pub struct OutputArgs {
    /// Write one self-contained HTML page with plots
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write the page of a switch with the time series of the run (docs/page.md)
    #[arg(long, value_name = "FILE")]
    pub page: Option<PathBuf>,
    /// Write flows.csv, ports.csv, queues.csv and series.csv to a folder, created if missing
    #[arg(long, value_name = "DIR")]
    pub csv: Option<PathBuf>,
    /// Write Trace Event JSON, for ui.perfetto.dev
    #[arg(long, value_name = "FILE")]
    pub perfetto: Option<PathBuf>,
}

impl OutputArgs {
    /// Writes the requested files.
    ///
    /// # Errors
    /// A file or folder that cannot be written.
    pub fn write(&self, results: &Results) -> Result<(), CliError> {
        if let Some(path) = &self.html {
            write_file(path, |out| out.write_all(html::page(results).as_bytes()))?;
        }
        if let Some(path) = &self.page {
            let title = format!("weft sim: {}", results.scenario);
            let page = page::of_run("sim", &title, &of_results(results));
            write_file(path, |out| out.write_all(page.as_bytes()))?;
        }
        if let Some(folder) = &self.csv {
            make_folder(folder)?;
            for table in Table::ALL {
                write_file(&folder.join(table.file()), |out| table.write(results, out))?;
            }
        }
        if let Some(path) = &self.perfetto {
            write_file(path, |out| perfetto::write(results, out))?;
        }
        Ok(())
    }
}

/// Checks before a run that all result files can be written, that each is named once, and that none is read by the
/// scenario.
///
/// # Errors
/// A file that is named twice, read by the scenario, or cannot be created.
pub(super) fn check(
    files: &[(&'static str, &Path)],
    folder: Option<&Path>,
    inputs: &[PathBuf],
) -> Result<(), CliError> {
    let mut named = files.iter().copied().chain(folder.map(|folder| ("--csv", folder)));
    if let Some((flag, _)) = named.find(|(_, path)| *path == Path::new("-")) {
        let text = format!("{flag}: expected a file, found \"-\": only --json takes it");
        return Err(CliError::Usage(text));
    }
    let mut all: Vec<_> = files.iter().map(|&(flag, path)| (flag, path.to_owned())).collect();
    if let Some(folder) = folder {
        all.extend(Table::ALL.iter().map(|table| ("--csv", folder.join(table.file()))));
    }
    // By canonical path, as different names may lead to one file.
    let inputs: Vec<PathBuf> = inputs.iter().filter_map(|path| path.canonicalize().ok()).collect();
    let mut seen: Vec<(&str, PathBuf)> = Vec::new();
    for (flag, path) in &all {
        let Some(place) = place(path) else { continue };
        if inputs.contains(&place) {
            let text = format!(
                "{flag}: expected a file of results, found {}, which the scenario is read from",
                path.display()
            );
            return Err(CliError::Usage(text));
        }
        if let Some((other, _)) = seen.iter().find(|(_, had)| *had == place) {
            let text = format!(
                "{flag}: expected another file than that of {other}, found {}",
                path.display()
            );
            return Err(CliError::Usage(text));
        }
        seen.push((flag, place));
    }
    for (_, path) in files {
        probe_file(path)?;
    }
    folder.map_or(Ok(()), make_folder)
}

/// The canonical path of a file that may not exist yet; `None` for pipes and devices, which may be named twice, and
/// where the folder is missing.
fn place(path: &Path) -> Option<PathBuf> {
    if path.exists() && !path.is_file() {
        return None;
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new(".")).canonicalize().ok()?;
    Some(folder.join(path.file_name()?))
}

fn make_folder(folder: &Path) -> Result<(), CliError> {
    std::fs::create_dir_all(folder).map_err(|source| CliError::File {
        verb: "create",
        path: folder.to_owned(),
        source,
    })
}

impl From<WriteError> for CliError {
    fn from(error: WriteError) -> Self {
        Self::File { verb: "write", path: error.path, source: error.source }
    }
}
