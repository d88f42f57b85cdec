//! Several fabric managers for one fabric, of which one leads: what they share is in etcd.
//!
//! [`election`] by lease and compare-and-swap -> a term, with a [`permit`] by this machine's clock -> [`service`], which
//! makes the manager that leads; [`store`] keeps its state, [`identity`] is who it is to components.
//!
//! Units: see each.
//! Source: docs/fm.md "Several managers".
//!
//! Who has led is kept from changing anything three times: by its own clock it sends nothing after its lease; what it writes
//! to the store compares the leader's key; and components refuse its sessions once the next one has claimed them.

pub mod address;
pub mod answer;
pub mod election;
pub mod etcd;
pub mod http;
pub mod identity;
pub mod permit;
pub mod rival;
pub mod service;
pub mod store;
