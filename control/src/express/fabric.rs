//! Tables for TLPs in the kernel, and how they follow the switch's own.
//!
//! [`compile`] turns [`Tables`] into [`FabricTables`]. Entries that do not fit, or take more than one lookup, are left
//! to the pipeline.
//!
//! Source: docs/spec/cxl-fabric.md "Ingress at an edge", "Inside"; docs/express.md.

use std::sync::Arc;

use weft_dataplane::pbr::segments::Segments;
use weft_dataplane::pbr::{Dispatch, EdgePort, Role, Routes, Tables};
use weft_dataplane::pipeline::Core;
use weft_dataplane::types::{PortId, PortSet};
use weft_parsers::fabric::{Pid, Target};
use weft_xdp::layout::{Edge, IDT, PIDS, PORTS, SEGMENTS, edge, route, segment};
use weft_xdp::{FabricTables, Xdp, XdpError};

/// Tables that are in force in the kernel.
#[derive(Debug, Default)]
pub(super) struct Fabric {
    /// The tables that were written last. While the `Arc` is held no other tables can have its address, so that
    /// comparing pointers is enough.
    tables: Option<Arc<Tables>>,
    partners: Vec<u64>,
}

impl Fabric {
    /// Brings the kernel's tables up to those of `core`.
    pub(super) fn follow(&mut self, xdp: &mut Xdp, core: &Core) -> Result<(), XdpError> {
        let ports = core.snapshot.load().tlp_ports;
        if ports.is_empty() {
            return Ok(());
        }
        self.partners.resize(PORTS, 0);
        for (id, held) in (0..).map_while(PortId::new).zip(&mut self.partners) {
            // A port without TLPs has no partner: 0 is no sender's address.
            let partner = if ports.contains(id) { core.partner(id).to_bits() } else { 0 };
            if *held != partner {
                xdp.set_partner(id.get(), partner);
                *held = partner;
            }
        }
        let tables = core.tables.load();
        if self.tables.as_ref().is_none_or(|held| !Arc::ptr_eq(held, &tables)) {
            xdp.set_fabric(&compile(&tables, ports))?;
            self.tables = Some(Arc::clone(&tables));
        }
        Ok(())
    }
}

/// The kernel's form of `tables`, for the ports that carry TLPs.
#[must_use]
pub fn compile(tables: &Tables, ports: PortSet) -> FabricTables {
    let mut to = FabricTables {
        edges: vec![Edge::default(); PORTS],
        gmv: vec![[0; PIDS / 64]; PORTS],
        drt: drt(tables.routes()),
        ..FabricTables::default()
    };
    for port in ports.iter() {
        let Some(from) = tables.edge(port) else { continue };
        let found = edge_of(from, &mut to.segments, &mut to.idt);
        if let Some(edge) = to.edges.get_mut(port.index()) {
            *edge = found;
        }
        // An edge that is left to the pipeline (0 bytes) needs no GMV.
        if let Some(gmv) = to.gmv.get_mut(port.index()).filter(|_| found.bytes != 0) {
            for pid in from.access().gmv.iter() {
                if let Some(word) = gmv.get_mut(pid.index() / 64) {
                    *word |= 1 << (pid.index() % 64);
                }
            }
        }
    }
    to
}

/// The DRT: by DPID, the output if it is a single one.
fn drt(routes: &Routes) -> Vec<u16> {
    let of = |bits: u16| {
        let pid = Pid::from_low_bits(bits);
        let ours = if routes.is_ours(pid) { route::OURS } else { 0 };
        match routes.lookup(pid) {
            Ok(Dispatch::Port(port)) => ours | route::PLAIN | u16::from(port.get()),
            // Routing groups and other dispatches stay without `PLAIN`: the pipeline decides about them.
            _ => ours,
        }
    };
    (0..).take(PIDS).map(of).collect()
}

/// One edge port. Its segments and IDT are appended to those of other edges, if there is room.
fn edge_of(from: &EdgePort, segments: &mut Vec<u32>, idt: &mut Vec<u16>) -> Edge {
    let mut edge = Edge {
        pid: from.pid.bits(),
        kind: match from.role {
            Role::Usp => edge::USP,
            Role::Dsp if from.has_lds() => edge::LDS,
            Role::Dsp => edge::DSP,
            Role::Gfd => edge::GFD,
        },
        ..Edge::default()
    };
    let fast = from.fast().segments();
    let (_, base, limit) = fast.config();
    let is_on = base.0 != 0 && limit.0 > base.0;
    let fits = segments.len() + fast.len() <= SEGMENTS && idt.len() + fast.idt_len() <= IDT;
    // A logical device is found by tables of its own, which the kernel does not have; a G-FAM device sends no request
    // without PTH.
    if !is_on || !fits || from.has_lds() || from.role == Role::Gfd {
        return edge;
    }
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    (edge.base, edge.bytes) = (base.0, limit.0 - base.0 + 1);
    (edge.first, edge.mask) = (number(segments.len()), number(fast.len() - 1));
    (edge.idt, edge.idt_len) = (number(idt.len()), number(fast.idt_len()));
    edge.shift = fast.shift();
    segments.extend(words(fast));
    idt.extend((0..fast.idt_len()).map(|at| fast.idt(at).unwrap_or(Pid::NONE).bits()));
    edge
}

/// Segments as the program reads them, by the address bits that select them. Those that hit GIM stay invalid: the
/// pipeline handles them.
fn words(fast: &Segments) -> Vec<u32> {
    let mut words = vec![0; fast.len()];
    for index in 0..fast.len() {
        let Some(found) = fast.get(index).filter(|found| !found.flag) else { continue };
        let field = match found.target {
            Target::Direct(pid) => pid.bits(),
            Target::Interleaved(first) => first,
        };
        let ways = u32::from(found.interleave.ways_code());
        let shift = 8 + u32::from(found.interleave.granularity_code());
        if let Some(word) = words.get_mut(fast.hardware_index(index)) {
            *word = segment::VALID
                | ways << segment::WAYS_AT
                | shift << segment::SHIFT_AT
                | u32::from(field) << segment::FIELD_AT;
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use weft_dataplane::config::{LiveSizes, PortRole, SwitchConfig, TlpLink};
    use weft_dataplane::pipeline::{Built, build};
    use weft_dataplane::pool::Pool;
    use weft_dataplane::time::LinkRate;
    use weft_parsers::fabric::DrtEntry;
    use weft_xdp::{Options, Trial};

    use super::*;

    /// A switch of two ports, for TLPs unless `is_l2`.
    fn core(is_l2: bool) -> Arc<Core> {
        let mut config = SwitchConfig::live(&LiveSizes {
            names: vec!["a".to_owned(), "b".to_owned()],
            rate: LinkRate::gbps(100),
            pris: 8,
            cells: 256,
            cell_bytes: 1_728,
            headroom_cells: 4,
            frame_len_max: 1_518,
        });
        for port in config.ports.iter_mut().filter(|_| !is_l2) {
            port.role = PortRole::Fport(TlpLink::default());
        }
        let pool = Pool::in_memory(2_048, 1_518).unwrap();
        let all = [vec![PortId::new(0).unwrap(), PortId::new(1).unwrap()]];
        let Built { core, .. } = build(config, &pool, &all).unwrap();
        core
    }

    /// New tables are put in force once, whole; the same ones are not written again, and a switch without TLPs
    /// writes none.
    #[test]
    fn the_kernel_follows_the_switchs_tables() {
        if let Some(why) = Trial::refused() {
            eprintln!("SKIPPED the_kernel_follows_the_switchs_tables: {why}");
            return;
        }
        let mut xdp = Xdp::load(&Options::default()).unwrap();
        let mut fabric = Fabric::default();
        fabric.follow(&mut xdp, &core(true)).unwrap();
        assert_eq!(xdp.shared().control().fabric, 0);
        let core = core(false);
        let mut bank = 0;
        for n in 0..6_u8 {
            let mut tables = (**core.tables.load()).clone();
            tables.set_drt(5, &[DrtEntry::Port(n % 2)]).unwrap();
            let want = compile(&tables, core.snapshot.load().tlp_ports);
            assert_eq!(want.drt.get(5), Some(&(route::PLAIN | u16::from(n % 2))));
            core.tables.store(Arc::new(tables));
            fabric.follow(&mut xdp, &core).unwrap();
            bank ^= 1;
            assert_eq!(xdp.shared().control().fabric, bank);
            assert_eq!(xdp.fabric_like(&want).unwrap(), want);
            fabric.follow(&mut xdp, &core).unwrap();
            assert_eq!(xdp.shared().control().fabric, bank, "they are there");
        }
    }

    /// Tables that the kernel does not have find the logical device of a TLP: it leaves all TLPs of such ports alone.
    #[test]
    fn ports_with_logical_devices_are_the_pipelines() {
        use weft_dataplane::pbr::{Fast, Ldst};
        let tables = (Fast::new(16, 8).unwrap(), Ldst::new(16, 8).unwrap());
        let mut port = EdgePort::new(Role::Dsp, Pid::from_low_bits(7), tables.0, tables.1);
        let kind = |port: &EdgePort| edge_of(port, &mut Vec::new(), &mut Vec::new()).kind;
        assert_eq!(kind(&port), edge::DSP);
        port.set_ld(3, None).unwrap();
        assert_eq!(kind(&port), edge::LDS);
    }
}
