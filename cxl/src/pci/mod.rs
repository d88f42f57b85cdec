//! Configuration space of PCIe functions and bridges, and the host software that enumerates them.
//!
//! [`Function`] and [`Bridge`] are [`Space`]s with rules: the owner passes in register accesses and acts on the
//! effects that a write returns; [`mailbox`] does the same for a register block in a BAR. [`enumerate`] is the
//! host's software over any means to read and write registers; it builds a [`Tree`].
//!
//! Units: bytes; register numbers in double words.
//! Source: PCIe 6.0 chapter 7; PCI-to-PCI Bridge 1.2 chapter 3; CXL 3.1 §8.1, §8.2.8; docs/spec/cxl-fabric.md.

pub mod aer;
pub mod bridge;
pub mod component;
pub mod cxl;
pub mod doe;
pub mod enumerate;
pub mod express;
pub mod function;
pub mod intx;
pub mod mailbox;
pub mod regs;
pub mod space;
pub mod tree;

pub use aer::{ErrorMessage, Uncorrectable};
pub use bridge::{Bridge, BridgeEffects, BridgeSpec, SlotSpec, Windows};
pub use component::{Component, Hdm, HdmRole, Structure};
pub use cxl::{CxlKind, RegisterBlock};
pub use doe::Doe;
pub use enumerate::{ConfigAccess, Enumerator, HostSpec, LnSettings};
pub use express::{Identity, Link, Msi, PortKind};
pub use function::{BarKind, BarSpec, Function, FunctionSpec};
pub use mailbox::Mailbox;
pub use space::{ByteEnables, Reg, Space};
pub use tree::{Node, Problem, ProblemKind, Tree};

#[cfg(test)]
mod lspci_tests;
#[cfg(test)]
mod testing;
