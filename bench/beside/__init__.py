"""weft beside other switches: one module a peer, one a kind of work.

Shape: processes, machine, wires, kit, captures <- testpmd, ovs, bridge, weft <- rows; result prints and writes.
Units: in the names.
Source: none of its own.
"""
