//! Several fabric managers for one fabric, of which one leads; their shared state is in etcd.
//!
//! [`election`] wins a term by lease and compare-and-swap, with a [`permit`] by this machine's clock. [`service`] makes
//! the manager of a term, [`store`] keeps its state, [`crate::model::lineage`] its UUID towards components.
//!
//! A manager that led before is kept from changing anything in three ways: by its own clock it sends nothing after its
//! lease; its writes to the store compare the leader's key; and components refuse its sessions once the next leader has
//! claimed them.
//!
//! Source: docs/fm.md "Several managers".

pub mod address;
pub mod answer;
pub mod election;
pub mod etcd;
pub mod http;
pub mod permit;
pub mod rival;
pub mod service;
pub mod store;
