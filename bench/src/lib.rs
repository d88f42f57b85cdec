//! Measurements of `weft-bench` and of the criterion benches.
//!
//! One module a subject; each builds its load, measures, and returns plain numbers whose names end
//! with their units.

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
