"""weft beside other switches: one module a peer, one a kind of work.

Processes, machine, wires, kit, captures <- testpmd, ovs, bridge, weft <- rows; result prints and writes.

Units: in the names.
"""
