//! Store: the manager's state over restarts, in an embedded database or shared by several managers.
//!
//! A [`State`] is written in one transaction as parts of a [`Backend`], each in JSON, and loaded completely or not at
//! all.
//!
//! Tables that switches hold are not stored: they are read from the switches. Those for when all links work are stored,
//! so that a link that comes back gets them even if the manager was restarted meanwhile. A change of several steps is
//! stored before its first step, and removed with the state after its last one.
//!
//! Source: docs/spec/cxl-fabric.md "State".

use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use redb::backends::InMemoryBackend;
use redb::{Database, TableDefinition};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use weft_base::files::{self, Existing};

use crate::components::bind::Bindings;
use crate::components::grants::Grants;
use crate::model::inventory::Inventory;
use crate::plan::routes::{Routed, StoredRoutes};

/// Format of the stored parts; a store of another format is refused.
const FORM: u32 = 1;

/// Part with a change that was begun.
const BEGUN: &str = "begun";
/// Part with the text of the wanted state.
const WANTED: &str = "wanted";
/// Part with the serial number of the switch that the wanted state calls its entry.
const ENTRY: &str = "entry";

const TABLE: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("state");

/// Why the state of a fabric was not written or read.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database could not be opened, read or written.
    #[error("{what} {}", .path.display())]
    Database { what: &'static str, path: PathBuf, source: Box<redb::Error> },
    /// A part is not in the form that this manager writes.
    #[error("{part} in {}", .path.display())]
    Part { part: &'static str, path: PathBuf, source: serde_json::Error },
    /// Another version of the manager wrote it.
    #[error("{} has format {form}; this fabric manager reads format {FORM}", .path.display())]
    Form { path: PathBuf, form: u32 },
    /// The file is no store, or a damaged one.
    #[error("{} is no store of a fabric manager, or a damaged one: start with another file", .path.display())]
    Damaged { path: PathBuf, source: Box<redb::Error> },
    /// The store that several managers share cannot be used.
    #[error("{what} {place}")]
    Shared { what: &'static str, place: String, source: Box<dyn std::error::Error + Send + Sync> },
}

/// Storage for the parts of a state: bytes by name, of which several change at once.
pub trait Backend: fmt::Debug + Send {
    /// Location of the storage, for messages.
    fn place(&self) -> String;

    /// Reads a part; `None` if it was never written.
    ///
    /// # Errors
    /// It cannot be read.
    fn read(&self, part: &'static str) -> Result<Option<Vec<u8>>, StoreError>;

    /// Sets or removes parts, all or none, before it returns.
    ///
    /// # Errors
    /// They could not be written; the parts stored before are still there.
    fn write(&self, parts: &[(&'static str, Option<Vec<u8>>)]) -> Result<(), StoreError>;
}

/// The manager's knowledge of a fabric.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    pub inventory: Inventory,
    pub bindings: Bindings,
    pub grants: Grants,
}

impl State {
    /// State of a fabric of which only the inventory is known.
    #[must_use]
    pub fn of(inventory: Inventory) -> Self {
        Self { inventory, bindings: Bindings::default(), grants: Grants::default() }
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
            // A new file has no table before its first write.
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

/// The manager's store: a file, or storage that several managers share.
#[derive(Debug)]
pub struct Store {
    backend: Box<dyn Backend>,
}

impl Store {
    /// Opens a store in a file, or makes it; only one process can have it open.
    ///
    /// # Errors
    /// The file cannot be opened, or is no store.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let file = files::create(path, Existing::Keep)
            .map_err(|error| failed(path, "open", Box::new(redb::Error::Io(error))))?;
        let open = || Database::builder().create_file(file).map_err(|error| Box::new(error.into()));
        let opened = quietly(open);
        let database = opened.map_err(|error| failed(path, "open", error))?;
        Ok(Self::on(FileStore { path: path.to_path_buf(), database }))
    }

    /// Makes a store in memory, for a fabric within this process.
    ///
    /// # Errors
    /// There is none.
    pub fn in_memory() -> Result<Self, StoreError> {
        let path = PathBuf::from("(memory)");
        let made = Database::builder().create_with_backend(InMemoryBackend::new());
        let database = made.map_err(|error| failed(&path, "make", Box::new(error.into())))?;
        Ok(Self::on(FileStore { path, database }))
    }

    /// A store on another backend.
    #[must_use]
    pub fn on(backend: impl Backend + 'static) -> Self {
        Self { backend: Box::new(backend) }
    }

    /// Stores `state` completely before it returns; a change that was begun counts as done.
    ///
    /// # Errors
    /// It could not be written; the state stored before is still there.
    pub fn save(&self, state: &State) -> Result<(), StoreError> {
        let grants = &state.grants;
        self.backend.write(&[
            ("form", Some(self.json("form", &FORM)?)),
            ("inventory", Some(self.json("inventory", &state.inventory)?)),
            ("bindings", Some(self.json("bindings", &state.bindings)?)),
            ("memory", Some(self.json("memory", &grants.memory)?)),
            ("gim", Some(self.json("gim", &grants.gim)?)),
            ("p2p", Some(self.json("p2p", &grants.p2p)?)),
            ("granted", Some(self.json("granted", &grants.access)?)),
            // In the same transaction as the result, so that no restart finds the change both done and begun.
            (BEGUN, None),
        ])
    }

    /// Reads the state stored last; `None` if there is none.
    ///
    /// # Errors
    /// It cannot be read, or has another format.
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
        let gim = self.part("gim")?.unwrap_or_default(); // a part that was never written is empty
        let p2p = self.part("p2p")?.unwrap_or_default();
        let access = self.part("granted")?.unwrap_or_default();
        Ok(Some(State { inventory, bindings, grants: Grants { memory, gim, p2p, access } }))
    }

    /// Stores a change of several steps before its first step.
    ///
    /// # Errors
    /// It could not be written.
    pub fn begin(&self, change: &impl Serialize) -> Result<(), StoreError> {
        self.backend.write(&[(BEGUN, Some(self.json(BEGUN, change)?))])
    }

    /// Stores that the change begun was undone.
    ///
    /// # Errors
    /// It could not be written.
    pub fn abandon(&self) -> Result<(), StoreError> {
        self.backend.write(&[(BEGUN, None)])
    }

    /// The change that was begun and not completed, whose progress is unknown; `None` if there is none.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn begun<T: DeserializeOwned>(&self) -> Result<Option<T>, StoreError> {
        self.part(BEGUN)
    }

    /// Stores the tables for when all links work, beside the state.
    ///
    /// # Errors
    /// They could not be written; the tables stored before are still there.
    pub fn save_home(&self, routed: &Routed) -> Result<(), StoreError> {
        let kept = StoredRoutes::of(routed);
        self.backend.write(&[("home", Some(self.json("home", &kept)?))])
    }

    /// The tables stored last; `None` if there are none.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn load_home(&self) -> Result<Option<Routed>, StoreError> {
        Ok(self.part::<StoredRoutes>("home")?.and_then(|kept| kept.routed()))
    }

    /// Stores the text of the wanted state, where several managers share it.
    ///
    /// # Errors
    /// It could not be written.
    pub fn save_wanted(&self, text: &str) -> Result<(), StoreError> {
        // Another wanted state may mean another entry: the serial number must not outlive it.
        self.backend.write(&[(WANTED, Some(self.json(WANTED, &text)?)), (ENTRY, None)])
    }

    /// Stores the serial number of the switch that the wanted state calls its entry, until that state is replaced.
    ///
    /// # Errors
    /// It could not be written.
    pub fn save_entry(&self, serial: u64) -> Result<(), StoreError> {
        self.backend.write(&[(ENTRY, Some(self.json(ENTRY, &serial)?))])
    }

    /// The serial number stored by [`save_entry`](Self::save_entry).
    ///
    /// # Errors
    /// It cannot be read.
    pub fn load_entry(&self) -> Result<Option<u64>, StoreError> {
        self.part(ENTRY)
    }

    /// The text stored by [`save_wanted`](Self::save_wanted).
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

/// A result of redb, whose error type is large.
type Boxed<T> = Result<T, Box<redb::Error>>;

/// Like [`guarded`], but prints nothing of the panic, which becomes an error.
fn quietly<T>(run: impl FnOnce() -> Boxed<T>) -> Boxed<T> {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner); // the hook is of the whole process
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let done = guarded(run);
    panic::set_hook(hook);
    done
}

/// Runs an operation of redb, which panics where pages of a damaged file contradict each other.
fn guarded<T>(run: impl FnOnce() -> Boxed<T>) -> Boxed<T> {
    let damaged = || redb::Error::Corrupted("its pages contradict each other".to_owned());
    panic::catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Err(Box::new(damaged())))
}

fn failed(path: &Path, what: &'static str, source: Box<redb::Error>) -> StoreError {
    // Damage shows as either; people can start with another file then, but not for other errors.
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
