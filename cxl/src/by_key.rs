//! A map by keys that this process gives out itself, such as tags and numbers of transactions.
//! [`ByKey`]: found by a hash that is fast and no secret; the order of its entries depends on what was done, and on
//! nothing else.
//!
//! Source: own construction.

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

/// A map by keys that nobody else chooses.
pub(crate) type ByKey<K, V> = IndexMap<K, V, FxBuildHasher>;
