//! Configuration space of functions and bridges, and the software that enumerates them.
//! Shape: registers in, what changed out; `Enumerator` over any way to read and write them.
//! Units: octets; register numbers in double words.
//! Source: PCIe 6.0 chapter 7; PCI-to-PCI Bridge 1.2 chapter 3.
