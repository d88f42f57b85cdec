//! What the FM knows, over restarts: one embedded database, or what several managers share.
//!
//! [`State`] in one transaction -> parts of a [`Backend`], each JSON; loaded whole or not at all.
//!
//! Source: docs/spec/cxl-fabric.md "State".
//!
//! Tables that switches hold are not kept: they are in the switches, and are read there. Those for when all links work are,
//! so that a link that comes back finds them also where the FM was started again meanwhile. A change that takes several steps
//! is kept before the first one, and until the state after the last one is.

use std::collections::BTreeSet;
use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

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
use super::p2p::P2p;
use super::routes::{Routed, StoredRoutes};

/// Form of what is kept; a store of another form is refused.
const FORM: u32 = 1;

/// The part that is a change which was begun.
const BEGUN: &str = "begun";
/// The part that is the text of the wanted state.
const WANTED: &str = "wanted";
/// The part that is the serial number of the switch that the wanted state calls its entry.
const ENTRY: &str = "entry";

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
    /// It is no store, or a damaged one.
    #[error("{} is no store of a fabric manager, or a damaged one: start with another file", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Box<redb::Error>,
    },
    /// The store that several managers share is not there for this one.
    #[error("{what} {place}")]
    Shared {
        /// What was tried.
        what: &'static str,
        /// Where it is.
        place: String,
        /// Why it failed.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Where parts of a state are kept: bytes by name, of which several change at once.
pub trait Backend: fmt::Debug + Send {
    /// Where that is, for people.
    fn place(&self) -> String;

    /// Reads a part; none where there is none.
    ///
    /// # Errors
    /// It cannot be read.
    fn read(&self, part: &'static str) -> Result<Option<Vec<u8>>, StoreError>;

    /// Sets parts, or removes them, all or none, before it returns.
    ///
    /// # Errors
    /// They could not be written: what was kept before still is.
    fn write(&self, parts: &[(&'static str, Option<Vec<u8>>)]) -> Result<(), StoreError>;
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
    /// Which memory devices are accessed directly.
    pub p2p: P2p,
    /// What was let through at edges by command, beside what memory, GIM and P2P need.
    pub granted: BTreeSet<AccessBit>,
}

impl State {
    /// The state of a fabric of which nothing but the inventory is known.
    #[must_use]
    pub fn of(inventory: Inventory) -> Self {
        let (bindings, memory, gim) = (Bindings::default(), Memory::default(), Gim::default());
        let (p2p, granted) = (P2p::default(), BTreeSet::new());
        Self { inventory, bindings, memory, gim, p2p, granted }
    }
}

/// A file as a backend.
#[derive(Debug)]
struct FileStore {
    path: PathBuf,
    database: Database,
}

impl FileStore {
    #[expect(clippy::result_large_err, reason = "redb's own; callers box it")]
    fn set(&self, parts: &[(&'static str, Option<Vec<u8>>)]) -> Result<(), redb::Error> {
        let change = self.database.begin_write()?;
        {
            let mut table = change.open_table(TABLE)?;
            for (name, json) in parts {
                match json {
                    Some(json) => drop(table.insert(name, json.as_slice())?),
                    None => drop(table.remove(name)?),
                }
            }
        }
        Ok(change.commit()?)
    }

    #[expect(clippy::result_large_err, reason = "redb's own; callers box it")]
    fn get(&self, part: &str) -> Result<Option<Vec<u8>>, redb::Error> {
        let view = self.database.begin_read()?;
        let table = match view.open_table(TABLE) {
            Ok(table) => table,
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        Ok(table.get(part)?.map(|bytes| bytes.value().to_vec()))
    }
}

impl Backend for FileStore {
    fn place(&self) -> String {
        self.path.display().to_string()
    }

    fn read(&self, part: &'static str) -> Result<Option<Vec<u8>>, StoreError> {
        guarded(|| self.get(part).map_err(Box::new))
            .map_err(|source| failed(&self.path, "read", source))
    }

    fn write(&self, parts: &[(&'static str, Option<Vec<u8>>)]) -> Result<(), StoreError> {
        guarded(|| self.set(parts).map_err(Box::new))
            .map_err(|source| failed(&self.path, "write", source))
    }
}

/// Where the FM keeps its state: a file, or what several managers share.
#[derive(Debug)]
pub struct Store {
    backend: Box<dyn Backend>,
}

impl Store {
    /// Opens a store in a file, or makes it; only one process has it open.
    ///
    /// # Errors
    /// It cannot be opened, or is no store.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let file = files::create(path, Existing::Keep)
            .map_err(|error| failed(path, "open", Box::new(redb::Error::Io(error))))?;
        let open = || Database::builder().create_file(file).map_err(|error| Box::new(error.into()));
        let opened = quietly(open);
        let database = opened.map_err(|error| failed(path, "open", error))?;
        Ok(Self::on(FileStore { path: path.to_path_buf(), database }))
    }

    /// Makes a store in memory, for a fabric of this process.
    ///
    /// # Errors
    /// There is none.
    pub fn in_memory() -> Result<Self, StoreError> {
        let path = PathBuf::from("(memory)");
        let made = Database::builder().create_with_backend(InMemoryBackend::new());
        let database = made.map_err(|error| failed(&path, "make", Box::new(error.into())))?;
        Ok(Self::on(FileStore { path, database }))
    }

    /// A store that keeps its parts somewhere else.
    #[must_use]
    pub fn on(backend: impl Backend + 'static) -> Self {
        Self { backend: Box::new(backend) }
    }

    /// Keeps `state`, whole, before it returns; a change that was begun is done then.
    ///
    /// # Errors
    /// It could not be written: what was kept before still is.
    pub fn save(&self, state: &State) -> Result<(), StoreError> {
        self.backend.write(&[
            ("form", Some(self.json("form", &FORM)?)),
            ("inventory", Some(self.json("inventory", &state.inventory)?)),
            ("bindings", Some(self.json("bindings", &state.bindings)?)),
            ("memory", Some(self.json("memory", &state.memory)?)),
            ("gim", Some(self.json("gim", &state.gim)?)),
            ("p2p", Some(self.json("p2p", &state.p2p)?)),
            ("granted", Some(self.json("granted", &state.granted)?)),
            (BEGUN, None),
        ])
    }

    /// Reads the state that was kept last; none when nothing was.
    ///
    /// # Errors
    /// It cannot be read, or is of another form.
    pub fn load(&self) -> Result<Option<State>, StoreError> {
        let Some(form) = self.part::<u32>("form")? else { return Ok(None) };
        if form != FORM {
            return Err(StoreError::Form { path: self.place(), form });
        }
        let (Some(inventory), Some(bindings), Some(memory)) =
            (self.part("inventory")?, self.part("bindings")?, self.part("memory")?)
        else {
            return Ok(None);
        };
        let gim = self.part("gim")?.unwrap_or_default(); // stores of before have none
        let p2p = self.part("p2p")?.unwrap_or_default();
        let granted = self.part("granted")?.unwrap_or_default(); // nor this
        Ok(Some(State { inventory, bindings, memory, gim, p2p, granted }))
    }

    /// Keeps that a change is begun, which takes several steps, before the first one.
    ///
    /// # Errors
    /// It could not be written.
    pub fn begin(&self, change: &impl Serialize) -> Result<(), StoreError> {
        self.backend.write(&[(BEGUN, Some(self.json(BEGUN, change)?))])
    }

    /// Keeps that what was begun is undone.
    ///
    /// # Errors
    /// It could not be written.
    pub fn abandon(&self) -> Result<(), StoreError> {
        self.backend.write(&[(BEGUN, None)])
    }

    /// The change that was begun last, and of which nobody knows how far it came; none where all are done.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn begun<T: DeserializeOwned>(&self) -> Result<Option<T>, StoreError> {
        self.part(BEGUN)
    }

    /// Keeps the tables for when all links work, beside the state.
    ///
    /// # Errors
    /// They could not be written: what was kept before still is.
    pub fn save_home(&self, routed: &Routed) -> Result<(), StoreError> {
        let kept = StoredRoutes::of(routed);
        self.backend.write(&[("home", Some(self.json("home", &kept)?))])
    }

    /// The tables that were kept last; none when none were.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn load_home(&self) -> Result<Option<Routed>, StoreError> {
        Ok(self.part::<StoredRoutes>("home")?.and_then(|kept| kept.routed()))
    }

    /// Keeps the text of the wanted state, where several managers share it.
    ///
    /// # Errors
    /// It could not be written.
    pub fn save_wanted(&self, text: &str) -> Result<(), StoreError> {
        self.backend.write(&[(WANTED, Some(self.json(WANTED, &text)?)), (ENTRY, None)])
    }

    /// Keeps the serial number of the switch that the wanted state calls its entry, until there is another wanted state.
    ///
    /// # Errors
    /// It could not be written.
    pub fn save_entry(&self, serial: u64) -> Result<(), StoreError> {
        self.backend.write(&[(ENTRY, Some(self.json(ENTRY, &serial)?))])
    }

    /// The serial number that was kept last.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn load_entry(&self) -> Result<Option<u64>, StoreError> {
        self.part(ENTRY)
    }

    /// The text that was kept last.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn load_wanted(&self) -> Result<Option<String>, StoreError> {
        self.part(WANTED)
    }

    fn place(&self) -> PathBuf {
        self.backend.place().into()
    }

    fn part<T: DeserializeOwned>(&self, part: &'static str) -> Result<Option<T>, StoreError> {
        let bytes = self.backend.read(part)?;
        let parse = |bytes: Vec<u8>| serde_json::from_slice(&bytes);
        let path = || self.place();
        bytes.map(parse).transpose().map_err(|source| StoreError::Part {
            part,
            path: path(),
            source,
        })
    }

    fn json<T: Serialize>(&self, part: &'static str, value: &T) -> Result<Vec<u8>, StoreError> {
        let path = || self.place();
        serde_json::to_vec(value).map_err(|source| StoreError::Part { part, path: path(), source })
    }
}

/// What redb says, whose errors are large.
type Boxed<T> = Result<T, Box<redb::Error>>;

/// As [`guarded`], without a word of the panic: it is told as an error.
fn quietly<T>(run: impl FnOnce() -> Boxed<T>) -> Boxed<T> {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner); // the hook is of the whole process
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let done = guarded(run);
    panic::set_hook(hook);
    done
}

/// Has redb do something with a file: it panics where pages of a damaged one contradict each other.
fn guarded<T>(run: impl FnOnce() -> Boxed<T>) -> Boxed<T> {
    let damaged = || redb::Error::Corrupted("its pages contradict each other".to_owned());
    panic::catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Err(Box::new(damaged())))
}

fn failed(path: &Path, what: &'static str, source: Box<redb::Error>) -> StoreError {
    let is_damaged = match &*source {
        redb::Error::Corrupted(_) => true,
        redb::Error::Io(error) => error.kind() == std::io::ErrorKind::InvalidData,
        _ => false,
    };
    if is_damaged {
        return StoreError::Damaged { path: path.to_path_buf(), source };
    }
    StoreError::Database { what, path: path.to_path_buf(), source }
}
