//! What the FM knows, over restarts: one embedded database.
//!
//! Shape: [`State`] in one transaction -> `state` table, one row a part, each JSON; loaded whole or not at all.
//! Units: none.
//! Source: docs/spec/cxl-fabric.md "State".
//!
//! Tables that switches hold are not kept: they are in the switches, and are read there. Those for when all links work are,
//! so that a link that comes back finds them also where the FM was started again meanwhile.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use redb::backends::InMemoryBackend;
use redb::{Database, TableDefinition};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use weft_base::files::{self, Existing};

use super::bind::Bindings;
use super::edge::AccessBit;
use super::gim::Gim;
use super::inventory::Inventory;
use super::memory::Memory;
use super::routes::{Routed, StoredRoutes};

/// Form of what is kept; a store of another form is refused.
const FORM: u32 = 1;

const TABLE: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("state");

/// Why the state of a fabric is not written or read.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database refused.
    #[error("{what} {}", .path.display())]
    Database {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why it failed.
        source: Box<redb::Error>,
    },
    /// A part is not what this FM writes.
    #[error("{part} in {}", .path.display())]
    Part {
        /// Which part.
        part: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// Another FM wrote it.
    #[error("{} has format {form}; this fabric manager reads format {FORM}", .path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// Its form.
        form: u32,
    },
}

/// All that the FM knows of a fabric.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Components, PIDs, owner.
    pub inventory: Inventory,
    /// Who sees what.
    pub bindings: Bindings,
    /// Who has which memory.
    pub memory: Memory,
    /// What hosts and devices show each other.
    pub gim: Gim,
    /// What was let through at edges by command, beside what memory and GIM need.
    pub granted: BTreeSet<AccessBit>,
}

impl State {
    /// The state of a fabric of which nothing but the inventory is known.
    #[must_use]
    pub fn of(inventory: Inventory) -> Self {
        let (bindings, memory, gim) = (Bindings::default(), Memory::default(), Gim::default());
        Self { inventory, bindings, memory, gim, granted: BTreeSet::new() }
    }
}

/// The file that the FM keeps its state in.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    database: Database,
}

impl Store {
    /// Opens a store in a file, or makes it; only one process has it open.
    ///
    /// # Errors
    /// It cannot be opened, or is no store.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let file = files::create(path, Existing::Keep)
            .map_err(|error| failed(path, "open", redb::Error::Io(error)))?;
        let database = Database::builder()
            .create_file(file)
            .map_err(|error| failed(path, "open", error.into()))?;
        Ok(Self { path: path.to_path_buf(), database })
    }

    /// Makes a store in memory, for a fabric of this process.
    ///
    /// # Errors
    /// There is none.
    pub fn in_memory() -> Result<Self, StoreError> {
        let path = PathBuf::from("(memory)");
        let made = Database::builder().create_with_backend(InMemoryBackend::new());
        let database = made.map_err(|error| failed(&path, "make", error.into()))?;
        Ok(Self { path, database })
    }

    /// Keeps `state`, whole, before it returns.
    ///
    /// # Errors
    /// The file could not be written: what was kept before still is.
    pub fn save(&self, state: &State) -> Result<(), StoreError> {
        let parts = [
            ("form", self.json("form", &FORM)?),
            ("inventory", self.json("inventory", &state.inventory)?),
            ("bindings", self.json("bindings", &state.bindings)?),
            ("memory", self.json("memory", &state.memory)?),
            ("gim", self.json("gim", &state.gim)?),
            ("granted", self.json("granted", &state.granted)?),
        ];
        self.write(&parts).map_err(|source| failed(&self.path, "write", source))
    }

    #[expect(clippy::result_large_err, reason = "redb's own; callers box it")]
    fn write(&self, parts: &[(&'static str, Vec<u8>)]) -> Result<(), redb::Error> {
        let change = self.database.begin_write()?;
        {
            let mut table = change.open_table(TABLE)?;
            for (name, json) in parts {
                table.insert(name, json.as_slice())?;
            }
        }
        Ok(change.commit()?)
    }

    /// Reads the state that was kept last; none when nothing was.
    ///
    /// # Errors
    /// The file cannot be read, or is of another form.
    pub fn load(&self) -> Result<Option<State>, StoreError> {
        let Some(form) = self.part::<u32>("form")? else { return Ok(None) };
        if form != FORM {
            return Err(StoreError::Form { path: self.path.clone(), form });
        }
        let (Some(inventory), Some(bindings), Some(memory)) =
            (self.part("inventory")?, self.part("bindings")?, self.part("memory")?)
        else {
            return Ok(None);
        };
        let gim = self.part("gim")?.unwrap_or_default(); // stores of before have none
        let granted = self.part("granted")?.unwrap_or_default(); // nor this
        Ok(Some(State { inventory, bindings, memory, gim, granted }))
    }

    /// Keeps the tables for when all links work, beside the state.
    ///
    /// # Errors
    /// The file could not be written: what was kept before still is.
    pub fn save_home(&self, routed: &Routed) -> Result<(), StoreError> {
        let kept = StoredRoutes::of(routed);
        let write = self.write(&[("home", self.json("home", &kept)?)]);
        write.map_err(|source| failed(&self.path, "write", source))
    }

    /// The tables that were kept last; none when none were.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn load_home(&self) -> Result<Option<Routed>, StoreError> {
        Ok(self.part::<StoredRoutes>("home")?.and_then(|kept| kept.routed()))
    }

    fn part<T: DeserializeOwned>(&self, part: &'static str) -> Result<Option<T>, StoreError> {
        let bytes = self.read(part).map_err(|source| failed(&self.path, "read", source))?;
        let path = || self.path.clone();
        let parse = |bytes: Vec<u8>| serde_json::from_slice(&bytes);
        bytes.map(parse).transpose().map_err(|source| StoreError::Part {
            part,
            path: path(),
            source,
        })
    }

    #[expect(clippy::result_large_err, reason = "redb's own; callers box it")]
    fn read(&self, part: &str) -> Result<Option<Vec<u8>>, redb::Error> {
        let view = self.database.begin_read()?;
        let table = match view.open_table(TABLE) {
            Ok(table) => table,
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        Ok(table.get(part)?.map(|bytes| bytes.value().to_vec()))
    }

    fn json<T: Serialize>(&self, part: &'static str, value: &T) -> Result<Vec<u8>, StoreError> {
        let path = self.path.clone();
        serde_json::to_vec(value).map_err(|source| StoreError::Part { part, path, source })
    }
}

fn failed(path: &Path, what: &'static str, source: redb::Error) -> StoreError {
    StoreError::Database { what, path: path.to_path_buf(), source: Box::new(source) }
}
