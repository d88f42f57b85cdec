//! CXL endpoints on ports, and whole CXL fabrics with their manager, live: in one process, or in a process for each
//! part.
//!
//! [`endpoint`] runs a host, a device, a G-FAM device or an HBR switch on ports, and answers commands. [`fabric`] reads
//! a topology file and brings up its switches, endpoints and fabric manager. [`netdev`] opens network interfaces by
//! name; [`clock`] reads the machine's clock.
//!
//! Source: docs/endpoint.md; docs/fabric.md; docs/spec/cxl-fabric.md.
//!
//! A topology file lists switches, links and endpoints, and a layout gives each link its ports:
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
//! // An endpoint at a switch that is not in the file is refused by name.
//! let lost = Topology::parse("switch = [{ name = \"s\" }]\nhost = [{ name = \"a\", at = \"u\" }]")?;
//! assert!(Layout::new(&lost).is_err());
//!
//! // An endpoint by itself: `weft endpoint` plays one of these.
//! assert_eq!(EndpointSpec::KINDS, ["host", "device", "gfd", "hbr"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! All kinds of endpoints implement [`endpoint::Endpoint`], and an [`endpoint::Runner`] drives one on its ports. A
//! [`fabric::topology::Topology`] holds the content of a file.
#![forbid(unsafe_code)]

pub mod clock;
pub mod endpoint;
pub mod fabric;
pub mod netdev;
