//! Files of results that a run writes beside its summary.
//!
//! Shape: [`OutputArgs`], flattened into the arguments of `weft sim run`.
//! Units: none.
//! Source: docs/results.md.

use std::path::PathBuf;

use clap::Args;
use weft_sim::results::Results;

use crate::error::CliError;
use crate::results::csv::Table;
use crate::results::{WriteError, html, perfetto, write_file};

/// Files of results.
#[derive(Args, Debug, Default)]
pub struct OutputArgs {
    /// Write one HTML page with pictures, which needs nothing else
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write flows.csv, ports.csv, queues.csv and series.csv into a folder, which is made if it is not there
    #[arg(long, value_name = "DIR")]
    pub csv: Option<PathBuf>,
    /// Write Trace Event JSON, which ui.perfetto.dev shows
    #[arg(long, value_name = "FILE")]
    pub perfetto: Option<PathBuf>,
}

impl OutputArgs {
    /// Writes what was asked for.
    ///
    /// # Errors
    /// A file or folder that cannot be written.
    pub fn write(&self, results: &Results) -> Result<(), CliError> {
        if let Some(path) = &self.html {
            write_file(path, |out| out.write_all(html::page(results).as_bytes()))?;
        }
        if let Some(folder) = &self.csv {
            let path = || folder.clone();
            std::fs::create_dir_all(folder).map_err(|source| CliError::File {
                verb: "create",
                path: path(),
                source,
            })?;
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

impl From<WriteError> for CliError {
    fn from(error: WriteError) -> Self {
        Self::File { verb: "write", path: error.path, source: error.source }
    }
}
