//! Logical devices (LDs) of a device at a port: their memory and bandwidth, and commands to change them.
//!
//! Requests go to LD `FFFFh` of the device, within a Tunnel Management Command (5300h) to its switch. Bandwidths are
//! 256ths of the device's.
//!
//! Source: CXL 3.1 sections 7.6.7.3.1, 7.6.7.4; docs/spec/wire-formats.md §4.3a.

use serde::{Deserialize, Serialize};
use weft_parsers::cci::ld::{
    LdAllocation, LdAllocations, LdFractions, LdInfo, LdPage, LdRange, SetLdAllocations,
};
use weft_parsers::cci::mld::{TunnelRequest, TunnelResponse, TunnelTarget};
use weft_parsers::cci::{Header, List, Opcode, Payload, Request, ReturnCode, header, mctp};
use weft_parsers::{Layer, ParseError};

use crate::cci::{CallError, CciSession, Way};
use crate::model::graph::PortRef;

/// Largest number of logical devices in a device.
pub const LDS_MAX: u8 = 16;

/// Resources of one logical device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LdShare {
    /// Bytes of memory.
    pub memory: u64,
    /// Share of the bandwidth when all want more, in 256ths; `None` if the device does not tell.
    pub bandwidth: Option<u8>,
    /// Limit on the bandwidth in 256ths, 0 for none; `None` if the device does not tell.
    pub limit: Option<u8>,
}

/// Settings of one logical device in the wanted state; `None` where it has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LdAmounts {
    pub memory: Option<u64>,
    /// Share of the bandwidth when all want more, in 256ths.
    pub bandwidth: Option<u8>,
    /// Limit on the bandwidth in 256ths; 0 for none.
    pub limit: Option<u8>,
}

/// Wanted resources of one logical device, by command or from the wanted state; `None` where neither has set any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LdWanted {
    /// Port of its device.
    pub at: PortRef,
    /// Its number in the device.
    pub ld: u8,
    pub memory: Option<u64>,
    /// Share of the bandwidth when all want more, in 256ths.
    pub bandwidth: Option<u8>,
    /// Limit on the bandwidth in 256ths.
    pub limit: Option<u8>,
    /// Settings of the wanted state when it was read last.
    #[serde(default)]
    pub file: LdAmounts,
}

impl LdWanted {
    /// No setting of anything yet.
    #[must_use]
    pub const fn new(at: PortRef, ld: u8) -> Self {
        let file = LdAmounts { memory: None, bandwidth: None, limit: None };
        Self { at, ld, memory: None, bandwidth: None, limit: None, file }
    }

    /// Takes over settings of the wanted state that have changed since it was read last; others keep the value that a
    /// command set.
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

    /// Whether an LD has other resources than are wanted.
    #[must_use]
    pub fn differs(&self, has: &LdShare) -> bool {
        self.memory.is_some_and(|memory| memory != has.memory)
            || self.bandwidth.is_some_and(|part| Some(part) != has.bandwidth)
            || self.limit.is_some_and(|part| Some(part) != has.limit)
    }
}

/// A device with logical devices, behind a port of a switch.
pub struct LdDevice<'a> {
    pub fabric: &'a mut CciSession,
    /// Way to its switch.
    pub way: Way,
    pub port: u8,
}

/// Why a device cannot be bound as requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoLd {
    /// The device has logical devices, each for a bridge of its own, and none was named, or one that it does not have.
    #[error("the device at {port} has logical devices 0 to {last}: name one, as port:{}.0", port.port)]
    Other {
        port: PortRef,
        /// Number of its last logical device.
        last: u8,
    },
    /// The device has no logical devices, or its switch does not know of them yet: it asks once the device announces
    /// itself.
    #[error(
        "the device at {port} has told its switch of no logical devices: bind it whole, as port:{}, or again once \
         `weft fm topology` shows some",
        port.port
    )]
    Whole { port: PortRef },
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
    /// Memory is given in multiples of this unit, MiB.
    #[error("memory of a logical device is a multiple of {0} MiB")]
    Unit(u64),
    /// There is no LD of that number.
    #[error("the device has no logical device {0}")]
    NoLd(u8),
    /// The host of the LD uses its memory.
    #[error("the host of logical device {0} uses its memory: unbind it first")]
    InUse(u8),
    /// Too little memory is unallocated.
    #[error(
        "logical device {ld} cannot have {want} MiB: {free} MiB of {all} MiB are no other one's"
    )]
    TooMuch {
        ld: u8,
        want: u64,
        /// MiB that no other LD has.
        free: u64,
        /// MiB of the device.
        all: u64,
    },
    /// The shares of bandwidth would add up to more than there is.
    #[error("the shares of all logical devices together are more than 256")]
    Shares,
}

impl LdDevice<'_> {
    /// Sends a request to LD `FFFFh` and returns the payload of its answer.
    pub(crate) fn ask(&mut self, request: &Request<'_>) -> Result<Vec<u8>, CallError> {
        let (way, opcode) = (self.way, request.opcode());
        let malformed = |source| CallError::Malformed { way, opcode, source };
        // Shorter than a message may be, as the tunnel puts a header of its own around it.
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

    /// Number of LDs, and bytes of memory of the device.
    ///
    /// # Errors
    /// The device refuses, or does not answer.
    pub fn info(&mut self) -> Result<LdInfo, CallError> {
        let payload = self.ask(&Request::GetLdInfo)?;
        self.read(Opcode::GET_LD_INFO, &payload)
    }

    /// Bytes of an allocation unit, and the units of each LD.
    fn allocations(&mut self) -> Result<(u64, Vec<LdAllocation>), CallError> {
        let page = LdPage { start: 0, limit: LDS_MAX };
        let payload = self.ask(&Request::GetLdAllocations(page))?;
        let opcode = Opcode::GET_LD_ALLOCATIONS;
        let list = self.read::<LdAllocations<'_>>(opcode, &payload)?;
        if list.start != 0 || list.allocations.len() > LDS_MAX.into() {
            // The page was asked for whole: anything else would put LDs under wrong numbers.
            let source =
                ParseError::short(Layer::CciPayload, LDS_MAX.into(), list.allocations.len());
            return Err(CallError::Malformed { way: self.way, opcode, source });
        }
        Ok((list.granularity.bytes(), list.allocations.iter().collect()))
    }

    /// The fractions that `request` reads; `None` if the device does not have the command.
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

    /// Resources of each LD, by number.
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
            // Both ranges are memory of the LD; weft gives it in the first one only.
            memory: allocation.range1.saturating_add(allocation.range2).saturating_mul(unit),
            bandwidth: of(&bandwidth, at),
            limit: of(&limit, at),
        };
        Ok(list.iter().enumerate().map(share).collect())
    }

    /// Sets the wanted resources of logical devices where they differ, reductions of memory and bandwidth first.
    /// Returns the number of LDs that differed.
    ///
    /// # Errors
    /// The first error. All else that can be set is set, unless the device does not answer.
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
            // A silent device ends it: each further command would wait for its time limit.
            Err(error @ LdError::Call(_)) => Err(error),
            Err(error) => {
                first.get_or_insert(error);
                Ok(())
            }
            Ok(()) => Ok(()),
        };
        // Memory and bandwidth taken from one LD are there for another only afterwards.
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

    /// Sets the memory of an LD, in bytes.
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
            // Busy is the device's word for memory that its host has enabled.
            Err(CallError::Refused { code: ReturnCode::Busy, .. }) => Err(LdError::InUse(ld)),
            Err(error) => Err(error.into()),
        }
    }

    /// Sets an LD's share of the bandwidth when all want more.
    ///
    /// # Errors
    /// See [`LdError`]; nothing has changed then.
    pub fn set_bandwidth(&mut self, ld: u8, fraction: u8) -> Result<(), LdError> {
        let fractions = [fraction];
        let set = LdFractions { start: ld, fractions: List::of(&fractions) };
        match self.ask(&Request::SetLdBandwidth(set)) {
            Ok(_) => Ok(()),
            // The LD is known to exist, so Invalid Input means that the shares add up to more than 256.
            Err(CallError::Refused { code: ReturnCode::InvalidInput, .. }) => Err(LdError::Shares),
            Err(error) => Err(error.into()),
        }
    }

    /// Sets an LD's limit on the bandwidth; 0 for none.
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
    use crate::model::graph::SwitchId;

    /// A value set by a command stays until the value in the file changes. A value removed from the file stays, too.
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
