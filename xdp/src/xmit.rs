//! Counts frames that outputs refuse: attaches two tracepoints and reads their counters.
//!
//! Source: docs/express.md; `ebpf/src/xmit.rs`.

use aya::maps::{HashMap, PerCpuArray};
use aya::programs::RawTracePoint;
use aya::{Ebpf, EbpfLoader};

use crate::layout::{Refusals, map, program};
use crate::maps::map_of;
use crate::{XdpError, btf};

const POINTS: [(&str, &str); 2] =
    [(program::XMIT, "xdp_devmap_xmit"), (program::REDIRECT_ERR, "xdp_redirect_err")];

/// The attached tracepoints, and their maps.
#[derive(Debug)]
pub(crate) struct Xmit {
    ebpf: Ebpf,
}

impl Xmit {
    /// Loads and attaches them, for interfaces of this thread's namespace.
    pub fn load(object: &[u8]) -> Result<Self, XdpError> {
        let places = btf::places().ok_or(XdpError::Missing("kernel types"))?;
        let mut loader = EbpfLoader::new();
        loader.btf(None).override_global("PLACES", &places, true);
        let mut ebpf = loader.load(object).map_err(Box::new)?;
        for (name, at) in POINTS {
            let found = ebpf.program_mut(name).ok_or(XdpError::Missing(name))?;
            let program: &mut RawTracePoint = found.try_into().map_err(XdpError::program(name))?;
            program.load().map_err(XdpError::program(name))?;
            // aya keeps the link with the program: both end when `ebpf` is dropped.
            program.attach(at).map_err(XdpError::program(name))?;
        }
        Ok(Self { ebpf })
    }

    /// Sets the port of an interface.
    pub fn name(&mut self, port: u8, ifindex: u32) -> Result<(), XdpError> {
        let mut ports: HashMap<_, u32, u32> = map_of(&mut self.ebpf, map::NAMED)?;
        ports.insert(ifindex, u32::from(port), 0).map_err(XdpError::map(map::NAMED))
    }

    /// Removes an interface that is no longer a port.
    pub fn forget(&mut self, ifindex: u32) -> Result<(), XdpError> {
        let mut ports: HashMap<_, u32, u32> = map_of(&mut self.ebpf, map::NAMED)?;
        drop(ports.remove(&ifindex)); // it may never have been one
        Ok(())
    }

    /// Counters of `port`, summed over processors.
    pub fn counts(&self, port: u8) -> Result<Refusals, XdpError> {
        let all = self.ebpf.map(map::REFUSALS).ok_or(XdpError::Missing(map::REFUSALS))?;
        let all =
            PerCpuArray::<_, Refusals>::try_from(all).map_err(XdpError::map(map::REFUSALS))?;
        let each = all.get(&u32::from(port), 0).map_err(XdpError::map(map::REFUSALS))?;
        Ok(each.iter().fold(Refusals::default(), |sum, one| Refusals {
            refused_in: sum.refused_in + one.refused_in,
            refused_out: sum.refused_out + one.refused_out,
        }))
    }
}
