//! A map by keys that this process assigns itself, such as tags and numbers of transactions.
//!
//! [`ByKey`] hashes fast and without a secret, so the order of its entries depends only on the operations on it, and
//! runs are reproducible. Peers must not choose its keys: they could make them collide.
//!
//! Source: own construction.

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

/// A map by keys that this process assigns.
pub(crate) type ByKey<K, V> = IndexMap<K, V, FxBuildHasher>;
