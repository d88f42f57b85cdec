//! CXL endpoints on ports, and whole fabrics of them: in this process, or a process for each part.
//!
//! [`endpoint`] plays a host, a device, a G-FAM device or an HBR switch on ports and answers commands;
//! [`fabric`] reads a topology file and brings up its switches, endpoints and fabric manager, joined to each other;
//! [`netdev`] opens network interfaces by name, [`clock`] reads the machine's clock.
//!
//! Units: bytes, milliseconds, picoseconds (`dataplane::time`).
//! Source: docs/endpoint.md; docs/fabric.md; docs/spec/cxl-fabric.md.
//!
//! A topology file says which switches, links and endpoints there are, and a layout gives each link its port:
//!
//! ```
//! use weft_lab::endpoint::EndpointSpec;
//! use weft_lab::fabric::layout::Layout;
//! use weft_lab::fabric::topology::Topology;
//!
//! let topology = Topology::parse(
//!     r#"
//!     switch = [{ name = "s" }, { name = "t" }]
//!     link = [{ ends = ["s", "t"] }]
//!     host = [{ name = "a", at = "s", bind = ["x"] }]
//!     device = [{ name = "x", at = "t" }]
//!     "#,
//! )?;
//! assert!(Layout::new(&topology).is_ok());
//!
//! // What there is no switch for is refused by name.
//! let lost = Topology::parse("switch = [{ name = \"s\" }]\nhost = [{ name = \"a\", at = \"u\" }]")?;
//! assert!(Layout::new(&lost).is_err());
//!
//! // An endpoint by itself: `weft endpoint` plays one of these.
//! assert_eq!(EndpointSpec::KINDS, ["host", "device", "gfd", "hbr"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`endpoint::Endpoint`] is what all kinds of endpoints implement, [`endpoint::Runner`] drives one on its ports;
//! [`fabric::topology::Topology`] is what a file says.
#![forbid(unsafe_code)]

pub mod clock;
pub mod endpoint;
pub mod fabric;
pub mod netdev;
