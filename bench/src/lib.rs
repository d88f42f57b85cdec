//! What `weft-bench` and the criterion benches measure.
//!
//! One module a subject; each sets its load up, measures, and returns plain numbers.
//!
//! Units: in the names, `_ns` and so on.

pub mod cxl_mem;
pub mod discovery;
pub mod fabric_mem;
pub mod gfam_path;
pub mod gfd;
pub mod gfd_link;
pub mod islip_slot;
pub mod kit;
pub mod model;
pub mod path;
pub mod pbr;
pub mod routes;
pub mod stages;
