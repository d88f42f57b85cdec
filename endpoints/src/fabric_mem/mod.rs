//! Fabric memory transfers: memory registered, shared and copied by trains of UIO requests.
//! Shape: an engine of plain state over a trait that sends requests.
//! Units: octets.
//! Source: fabric.md, "Fabric memory transfers"; seed 004.
