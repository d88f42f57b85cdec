//! Logical devices (LDs) of a device at a port: what each has of its memory and bandwidth, and commands to change it.
//!
//! A request to LD `FFFFh` of the device, within a Tunnel Management Command (5300h) to the switch that it is at.
//!
//! Units: bytes; 256ths of the bandwidth.
//! Source: CXL 3.1 sections 7.6.7.3.1, 7.6.7.4; docs/spec/wire-formats.md §4.3a.

use serde::{Deserialize, Serialize};
use weft_parsers::cci::ld::{
    LdAllocation, LdAllocations, LdFractions, LdInfo, LdPage, LdRange, SetLdAllocations,
};
use weft_parsers::cci::mld::{TunnelRequest, TunnelResponse, TunnelTarget};
use weft_parsers::cci::{Header, List, Opcode, Payload, Request, ReturnCode, header, mctp};
use weft_parsers::{Layer, ParseError};

use super::cci::{CallError, Fabric, Way};
use super::graph::PortRef;

/// Most logical devices of one.
pub const LDS_MAX: u8 = 16;

/// What one logical device has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LdShare {
    /// Bytes of memory.
    pub memory: u64,
    /// Bandwidth that it has when all want more, 256ths; `None` where the device does not say.
    pub bandwidth: Option<u8>,
    /// Bandwidth that it never exceeds, 256ths, 0 for no limit; `None` where the device does not say.
    pub limit: Option<u8>,
}

/// What somebody says of one logical device, as far as it is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LdAmounts {
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Bandwidth when all want more, 256ths.
    pub bandwidth: Option<u8>,
    /// Bandwidth at most, 256ths; 0 for no limit.
    pub limit: Option<u8>,
}

/// What one logical device is to have, as far as it was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LdWanted {
    /// The port of its device.
    pub at: PortRef,
    /// Its number.
    pub ld: u8,
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Bandwidth when all want more, 256ths.
    pub bandwidth: Option<u8>,
    /// Bandwidth at most, 256ths.
    pub limit: Option<u8>,
    /// What the wanted state has said last.
    #[serde(default)]
    pub file: LdAmounts,
}

impl LdWanted {
    /// Nothing yet.
    #[must_use]
    pub const fn new(at: PortRef, ld: u8) -> Self {
        let file = LdAmounts { memory: None, bandwidth: None, limit: None };
        Self { at, ld, memory: None, bandwidth: None, limit: None, file }
    }

    /// Takes what the wanted state says where it says something else than before: what was set by command since then stays.
    pub fn follow(&mut self, file: LdAmounts) {
        let before = self.file;
        if file.memory != before.memory {
            self.memory = file.memory.or(self.memory);
        }
        if file.bandwidth != before.bandwidth {
            self.bandwidth = file.bandwidth.or(self.bandwidth);
        }
        if file.limit != before.limit {
            self.limit = file.limit.or(self.limit);
        }
        self.file = file;
    }

    /// Whether an LD has less, or more, than it is to have.
    #[must_use]
    pub fn differs(&self, has: &LdShare) -> bool {
        self.memory.is_some_and(|memory| memory != has.memory)
            || self.bandwidth.is_some_and(|part| Some(part) != has.bandwidth)
            || self.limit.is_some_and(|part| Some(part) != has.limit)
    }
}

/// A device with logical devices, behind a port of a switch.
pub struct LdDevice<'a> {
    /// The way to everybody.
    pub fabric: &'a mut Fabric,
    /// The way to the switch.
    pub way: Way,
    /// Its port.
    pub port: u8,
}

/// Why a device is not bound so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoLd {
    /// The device has logical devices, each for a bridge of its own, and the one that is named is none of them.
    #[error("the device at {port} has logical devices 0 to {last}: name one, as port:{}.0", port.port)]
    Other {
        /// Its port.
        port: PortRef,
        /// The last one.
        last: u8,
    },
    /// The device has no logical devices, or its switch has not heard of them yet: it asks when the device makes itself known.
    #[error(
        "the device at {port} has told its switch of no logical devices: bind it whole, as port:{}, or again once \
         `weft fm topology` shows some",
        port.port
    )]
    Whole {
        /// Its port.
        port: PortRef,
    },
}

impl NoLd {
    /// Checks which part of a device with `lds` logical devices is to be bound.
    ///
    /// # Errors
    /// There is no such part.
    pub fn check(port: PortRef, lds: u8, wanted: Option<u16>) -> Result<(), Self> {
        match (lds.checked_sub(1), wanted) {
            (None, None) => Ok(()),
            (None, Some(_)) => Err(Self::Whole { port }),
            (Some(last), Some(ld)) if ld <= last.into() => Ok(()),
            (Some(last), _) => Err(Self::Other { port, last }),
        }
    }
}

/// Why an LD was not changed.
#[derive(Debug, thiserror::Error)]
pub enum LdError {
    /// The device refused, or did not answer.
    #[error(transparent)]
    Call(#[from] CallError),
    /// Memory is dealt out in units.
    #[error("memory of a logical device is a multiple of {0} MiB")]
    Unit(u64),
    /// There is no LD of that number.
    #[error("the device has no logical device {0}")]
    NoLd(u8),
    /// The host of the LD uses its memory.
    #[error("the host of logical device {0} uses its memory: unbind it first")]
    InUse(u8),
    /// There is not so much.
    #[error(
        "logical device {ld} cannot have {want} MiB: {free} MiB of {all} MiB are no other one's"
    )]
    TooMuch {
        /// The LD.
        ld: u8,
        /// What was asked for.
        want: u64,
        /// What no other LD has.
        free: u64,
        /// All.
        all: u64,
    },
    /// More bandwidth than there is would be promised.
    #[error("the shares of all logical devices together are more than 256")]
    Shares,
}

impl LdDevice<'_> {
    /// Asks LD `FFFFh`; the payload of its answer.
    pub(crate) fn ask(&mut self, request: &Request<'_>) -> Result<Vec<u8>, CallError> {
        let (way, opcode) = (self.way, request.opcode());
        let malformed = |source| CallError::Malformed { way, opcode, source };
        let mut message = vec![0; mctp::MESSAGE_MAX - 2 * header::LEN];
        let len = request.emit_message(0, &mut message).unwrap_or_default();
        message.truncate(len);
        let tunnel = Request::Tunnel(TunnelRequest {
            id: self.port,
            target: TunnelTarget::PortOrLd,
            message: List::of(&message),
        });
        let answer = self.fabric.call(way, &tunnel)?;
        let inner = answer.read::<TunnelResponse<'_>>()?;
        let (header, payload) = Header::parse(inner.message.bytes()).map_err(malformed)?;
        if header.opcode != opcode {
            return Err(CallError::Mismatch { way, opcode, got: header.opcode });
        }
        match header.return_code {
            ReturnCode::Success => Ok(payload.to_vec()),
            code => Err(CallError::Refused { way, opcode, code }),
        }
    }

    pub(crate) fn read<'a, T: Payload<'a>>(
        &self,
        opcode: Opcode,
        payload: &'a [u8],
    ) -> Result<T, CallError> {
        let way = self.way;
        T::parse(payload).map_err(|source| CallError::Malformed { way, opcode, source })
    }

    /// How many LDs there are, and bytes of memory in all.
    ///
    /// # Errors
    /// The device refuses, or does not answer.
    pub fn info(&mut self) -> Result<LdInfo, CallError> {
        let payload = self.ask(&Request::GetLdInfo)?;
        self.read(Opcode::GET_LD_INFO, &payload)
    }

    /// Bytes of a unit, and the units of each LD.
    fn allocations(&mut self) -> Result<(u64, Vec<LdAllocation>), CallError> {
        let page = LdPage { start: 0, limit: LDS_MAX };
        let payload = self.ask(&Request::GetLdAllocations(page))?;
        let opcode = Opcode::GET_LD_ALLOCATIONS;
        let list = self.read::<LdAllocations<'_>>(opcode, &payload)?;
        if list.start != 0 || list.allocations.len() > LDS_MAX.into() {
            let source =
                ParseError::short(Layer::CciPayload, LDS_MAX.into(), list.allocations.len());
            return Err(CallError::Malformed { way: self.way, opcode, source });
        }
        Ok((list.granularity.bytes(), list.allocations.iter().collect()))
    }

    /// The fractions that `request` asks for; `None` where the device has no such command.
    fn fractions(&mut self, request: &Request<'_>) -> Result<Option<Vec<u8>>, CallError> {
        match self.ask(request) {
            Ok(payload) => {
                let list = self.read::<LdFractions<'_>>(request.opcode(), &payload)?;
                Ok(Some(list.fractions.iter().collect()))
            }
            Err(CallError::Refused { code: ReturnCode::Unsupported, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What each LD has, by number.
    ///
    /// # Errors
    /// The device refuses, or does not answer.
    pub fn shares(&mut self) -> Result<Vec<LdShare>, CallError> {
        let (unit, list) = self.allocations()?;
        let count = u8::try_from(list.len()).unwrap_or(LDS_MAX);
        let range = LdRange { count, start: 0 };
        let bandwidth = self.fractions(&Request::GetLdBandwidth(range))?;
        let limit = self.fractions(&Request::GetLdLimit(range))?;
        let of = |fractions: &Option<Vec<u8>>, at| fractions.as_ref()?.get(at).copied();
        let share = |(at, allocation): (usize, &LdAllocation)| LdShare {
            memory: allocation.range1.saturating_add(allocation.range2).saturating_mul(unit),
            bandwidth: of(&bandwidth, at),
            limit: of(&limit, at),
        };
        Ok(list.iter().enumerate().map(share).collect())
    }

    /// Gives logical devices what they are to have, where they have something else; memory and bandwidth are taken before
    /// they are given. Says how many had something else.
    ///
    /// # Errors
    /// See [`LdError`]: the first one; all else that can be is done, unless the device does not answer.
    pub fn set_all(&mut self, wanted: &[LdWanted]) -> Result<usize, LdError> {
        let has = self.shares()?;
        let of = |wanted: &LdWanted| has.get(usize::from(wanted.ld)).copied();
        let mut differ: Vec<(&LdWanted, LdShare)> = Vec::new();
        for wanted in wanted {
            let has = of(wanted).ok_or(LdError::NoLd(wanted.ld))?;
            if wanted.differs(&has) {
                differ.push((wanted, has));
            }
        }
        let mut first = None;
        let mut done = |outcome| match outcome {
            Err(error @ LdError::Call(_)) => Err(error),
            Err(error) => {
                first.get_or_insert(error);
                Ok(())
            }
            Ok(()) => Ok(()),
        };
        for gives in [false, true] {
            for (wanted, has) in &differ {
                let ld = wanted.ld;
                let turn = |memory: &u64| *memory != has.memory && (*memory > has.memory) == gives;
                if let Some(memory) = wanted.memory.filter(turn) {
                    done(self.set_memory(ld, memory))?;
                }
                let turn = |part: &u8| (Some(*part) > has.bandwidth) == gives;
                let bandwidth = wanted.bandwidth.filter(|part| Some(*part) != has.bandwidth);
                if let Some(part) = bandwidth.filter(turn) {
                    done(self.set_bandwidth(ld, part))?;
                }
                let limit = wanted.limit.filter(|part| gives && Some(*part) != has.limit);
                if let Some(part) = limit {
                    done(self.set_limit(ld, part))?;
                }
            }
        }
        first.map_or(Ok(differ.len()), Err)
    }

    /// Gives an LD `memory` bytes.
    ///
    /// # Errors
    /// See [`LdError`]; nothing has changed then.
    pub fn set_memory(&mut self, ld: u8, memory: u64) -> Result<(), LdError> {
        let (unit, list) = self.allocations()?;
        if list.get(usize::from(ld)).is_none() {
            return Err(LdError::NoLd(ld));
        }
        if !memory.is_multiple_of(unit) {
            return Err(LdError::Unit(unit >> 20));
        }
        let all = self.info()?.memory;
        let used = |(at, it): (usize, &LdAllocation)| {
            if at == usize::from(ld) { 0 } else { it.range1.saturating_mul(unit) }
        };
        let free = list.iter().enumerate().map(used).fold(all, u64::saturating_sub);
        if memory > free {
            let (want, free, all) = (memory >> 20, free >> 20, all >> 20);
            return Err(LdError::TooMuch { ld, want, free, all });
        }
        let allocations = [LdAllocation { range1: memory / unit, range2: 0 }];
        let set = SetLdAllocations { start: ld, allocations: List::of(&allocations) };
        match self.ask(&Request::SetLdAllocations(set)) {
            Ok(_) => Ok(()),
            Err(CallError::Refused { code: ReturnCode::Busy, .. }) => Err(LdError::InUse(ld)),
            Err(error) => Err(error.into()),
        }
    }

    /// Sets what an LD has of the bandwidth when all want more.
    ///
    /// # Errors
    /// See [`LdError`]; nothing has changed then.
    pub fn set_bandwidth(&mut self, ld: u8, fraction: u8) -> Result<(), LdError> {
        let fractions = [fraction];
        let set = LdFractions { start: ld, fractions: List::of(&fractions) };
        match self.ask(&Request::SetLdBandwidth(set)) {
            Ok(_) => Ok(()),
            Err(CallError::Refused { code: ReturnCode::InvalidInput, .. }) => Err(LdError::Shares),
            Err(error) => Err(error.into()),
        }
    }

    /// Sets what an LD never exceeds of the bandwidth; 0 for no limit.
    ///
    /// # Errors
    /// See [`LdError`]; nothing has changed then.
    pub fn set_limit(&mut self, ld: u8, fraction: u8) -> Result<(), LdError> {
        let fractions = [fraction];
        let set = LdFractions { start: ld, fractions: List::of(&fractions) };
        self.ask(&Request::SetLdLimit(set))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::SwitchId;

    /// What a command gave stays until the file says something else than it did, and what is taken out of it stays, too.
    #[test]
    fn a_file_that_says_something_else_is_followed() {
        let says = |memory, bandwidth| LdAmounts { memory, bandwidth, limit: None };
        let mut wanted = LdWanted::new(PortRef::new(SwitchId(0), 1), 2);
        wanted.limit = Some(3);
        let after = |wanted: &mut LdWanted, file| {
            wanted.follow(file);
            (wanted.memory, wanted.bandwidth, wanted.limit)
        };
        let said = says(Some(1), Some(2));
        assert_eq!(after(&mut wanted, said), (Some(1), Some(2), Some(3)));
        wanted.memory = Some(9); // by command
        assert_eq!(after(&mut wanted, said), (Some(9), Some(2), Some(3)), "as before");
        let other = says(Some(1), Some(4));
        assert_eq!(after(&mut wanted, other), (Some(9), Some(4), Some(3)));
        assert_eq!(after(&mut wanted, says(None, None)), (Some(9), Some(4), Some(3)));
        assert_eq!(after(&mut wanted, other), (Some(1), Some(4), Some(3)), "it is back");
    }
}
