//! Port-based routing of TLPs: the tables of an edge and of a switch, and the decisions taken by them.
//! Shape: immutable tables; an address or an id in, a PID or a port out.
//! Units: octets; PIDs of 12 bits.
//! Source: fabric.md; CXL 3.1 section 7.7.6.
