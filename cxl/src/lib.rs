//! CXL endpoints: what hangs on links of TLPs.
//!
//! Shape: [`cxl_host`], [`cxl_device`] and [`hbr`] (an HBR switch) stand on [`tlp_end`], one end of a link, with
//! [`pci`] (configuration space, bridges, mailbox, enumeration); [`requester`] and [`completer`] are their two halves,
//! [`transaction_layer`] is what hosts and devices have in common.
//! [`gfd`] is a G-FAM device, [`gfd_end`] one on a link; [`ln`] keeps copies of a host's cache lines, [`fabric_mem`] copies
//! memory over a fabric; [`vdm`] holds what components say to each other, [`cci`] serves commands.
//! Units: picoseconds (`dataplane::time`), bytes.
//! Source: docs/spec/cxl-fabric.md; docs/spec/wire-formats.md §3 to §5.
//!
//! Pure: time is a parameter, chance is seeded, no thread, no I/O of its own.

pub mod cci;
pub mod completer;
pub mod cxl_device;
pub mod cxl_host;
pub mod fabric_mem;
pub mod gfd;
pub mod gfd_end;
pub mod hbr;
pub mod ln;
pub mod pci;
pub mod requester;
pub mod tlp_end;
pub mod transaction_layer;
pub mod vdm;
