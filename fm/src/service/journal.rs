//! Journal: what the manager stores of its fabric, and of a change before its first step.
//!
//! A [`Request`] of several steps is stored before the first of them. The manager after one that ended in between finds
//! it ([`Journal::load`]), and settles it ([`super::unfinished`]).
//!
//! Source: docs/spec/cxl-fabric.md "State"; docs/fm.md "Several managers".

use std::sync::Arc;

use weft_rpc::Refused;

use super::request::Request;
use super::with_causes;
use crate::model::inventory::Inventory;
use crate::plan::{self, Baseline};
use crate::state::store::{State, Store, StoreError};

/// The store, and what it has of the present fabric. Without a store nothing is kept.
#[derive(Debug, Default)]
pub(super) struct Journal {
    store: Option<Store>,
    /// Tables that the store has.
    kept: Option<Arc<Baseline>>,
    /// A change begun by an earlier manager, whose progress is unknown.
    begun: Option<Request>,
}

/// Whether a request has several steps, or a step that the store would not know of.
const fn is_kept(request: &Request) -> bool {
    matches!(
        request,
        Request::Bind { .. }
            | Request::Unbind { .. }
            | Request::Share(_)
            | Request::ShowGim(_)
            | Request::AddP2p(_)
            | Request::Release { .. }
            | Request::Revoke { .. }
            | Request::Grant { .. }
            | Request::SetAccess { .. }
    )
}

impl Journal {
    pub fn new(store: Option<Store>) -> Self {
        Self { store, ..Self::default() }
    }

    pub fn set_store(&mut self, store: Option<Store>) {
        self.store = store;
    }

    pub fn into_store(self) -> Option<Store> {
        self.store
    }

    /// Reads the state stored last, and remembers the change that was begun after it.
    pub fn load(&mut self) -> Result<Option<State>, StoreError> {
        let Some(store) = &self.store else { return Ok(None) };
        let state = store.load()?;
        self.begun = store.begun()?;
        Ok(state)
    }

    /// Reads the state stored last, whatever was begun after it.
    pub fn load_state(&self) -> Result<Option<State>, StoreError> {
        self.store.as_ref().map_or(Ok(None), Store::load)
    }

    /// Takes the change that an earlier manager had begun when [`Self::load`] was called.
    pub const fn take_begun(&mut self) -> Option<Request> {
        self.begun.take()
    }

    /// Stores that a change begins.
    pub fn begin(&self, request: &Request) -> Result<(), Refused> {
        let Some(store) = self.store.as_ref().filter(|_| is_kept(request)) else { return Ok(()) };
        store.begin(request).map_err(|error| {
            Refused::unavailable(format!(
                "nothing was changed: the store does not take that it begins: {}",
                with_causes(&error)
            ))
        })
    }

    /// Stores that a change was refused or undone.
    pub fn abandon(&self, request: &Request, refused: Refused) -> Refused {
        let Some(store) = self.store.as_ref().filter(|_| is_kept(request)) else { return refused };
        match store.abandon() {
            Ok(()) => refused,
            Err(error) => {
                let (message, why) = (&refused.message, with_causes(&error));
                Refused { message: format!("{message}; the store: {why}"), ..refused }
            }
        }
    }

    /// Stores a state, and its tables for when all links work; a change that was begun counts as done.
    pub fn save(&mut self, state: &State, home: &Arc<Baseline>) -> Result<(), StoreError> {
        let Some(store) = &self.store else { return Ok(()) };
        store.save(state)?;
        // By pointer first: comparing two equal baselines goes through all entries of all switches.
        let is_kept = |kept: &Arc<Baseline>| Arc::ptr_eq(kept, home) || kept == home;
        if !self.kept.as_ref().is_some_and(is_kept) {
            store.save_home(&home.routed)?;
            self.kept = Some(home.clone());
        }
        Ok(())
    }

    /// The stored tables for when all links of a fabric work, with the graph that they were made for.
    pub fn home(
        &self,
        inventory: &Inventory,
        options: &plan::Options,
    ) -> Result<Option<Arc<Baseline>>, StoreError> {
        let Some(store) = &self.store else { return Ok(None) };
        let mut whole = inventory.clone();
        whole.down.clear();
        let Ok(graph) = whole.graph() else { return Ok(None) };
        let made = store.load_home()?;
        let options = plan::how(&whole, options);
        Ok(made.map(|routed| Arc::new(Baseline { graph, options, routed })))
    }

    /// Stores the serial number of the entry switch; returns whether there is a store.
    pub fn save_entry(&self, serial: u64) -> Result<bool, StoreError> {
        let Some(store) = &self.store else { return Ok(false) };
        store.save_entry(serial)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn begun_change_is_found_by_the_next_manager_until_it_is_abandoned() {
        let kept = Request::Release { name: "pool".to_owned() };
        let refused = || Refused::because("no");
        for (name, request, is_abandoned, found) in [
            ("begun", kept.clone(), false, true),
            ("refused", kept.clone(), true, false),
            ("in one step", Request::Discover, false, false),
        ] {
            let first = Journal::new(Store::in_memory().ok());
            first.begin(&request).unwrap();
            if is_abandoned {
                assert_eq!(first.abandon(&request, refused()), refused(), "{name}");
            }
            let mut second = Journal::new(first.into_store());
            assert!(second.load().unwrap().is_none(), "{name}: no state was saved");
            assert_eq!(second.take_begun().is_some(), found, "{name}");
            assert!(second.take_begun().is_none(), "{name}: it is settled once");
        }
        let none = Journal::default();
        assert!(none.begin(&kept).is_ok() && none.load_state().unwrap().is_none());
    }
}
