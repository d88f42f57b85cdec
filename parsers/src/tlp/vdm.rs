//! Vendor-defined messages of a PBR fabric, and the payloads of some.
//!
//! A 4-DW flit-mode message of Vendor ID 0x1E98 whose DW3 is `SeqLen` 8, `CmdSeq` and `SeqNum` one
//! nibble each, PBR opcode 8, CXL VDM code 8 bits. Payloads are little-endian in bytes.
//!
//! Source: CXL 3.1 section 7.7.11; docs/spec/wire-formats.md §3.8 (nibbles of byte 13 and
//! `RTUpdate` pairs are inferred).

use super::kind::{Kind, Mode, Routing};
use super::layout::{bits8, halves};
use super::repr::{Body, TlpRepr};
use super::view::{CODE_VDM_TYPE0, CODE_VDM_TYPE1, Tlp, refused};
use crate::bytes::{byte, cut, put, window};
use crate::error::{Field, Layer, ParseError};
use crate::fabric::{Bdf, Pid};

/// Vendor ID of CXL.
pub const VENDOR_CXL: u16 = 0x1E98;
/// Bytes of a GAM's payload: one notification.
pub const GAM_LEN: usize = 32;

/// Operation of a PBR fabric message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VdmOp {
    /// To a `vUSP`: assert PERST# below it.
    AssertPerst,
    /// To a `vUSP`: assert a hot reset below it.
    AssertReset,
    /// To a `vUSP`: end the reset below it.
    DeassertReset,
    /// To a `vDSP`: the link below the `vUSP` is up.
    LinkUp,
    /// To the link partner; [`PartnerInfo`].
    LinkPartnerInfo,
    /// To a GFD: a command of `SeqLen` DWs is ready to be pulled.
    DpCmd,
    /// To a host edge: the GFD asks for the command.
    UcPull,
    /// To a GFD: 32 DWs of a command.
    DcReq,
    /// To a GFD: the last 1 to 32 DWs of a command.
    DcReqLast,
    /// To a host edge: 32 DWs of a response.
    UcRsp,
    /// To a host edge: the last 1 to 32 DWs of a response.
    UcRspLast,
    /// To a host edge: the command has no response.
    UcRspFail,
    /// To a host edge: a notification for its GAM buffer.
    Gam,
    /// To a GFD: the host edge does not hand the command over.
    DcReqFail,
    /// To a host edge: [`RtPair`]s.
    RtUpdate,
    /// To a downstream edge: the update is taken.
    RtUpdateAck,
    /// To a downstream edge: the update is refused.
    RtUpdateNak,
    /// CXL power management; its DW3 has no sequence.
    CxlPm,
    /// CXL error; its DW3 has no sequence.
    CxlError,
}

impl VdmOp {
    /// Every operation, in the order of their definition.
    pub const ALL: [Self; 19] = [
        Self::AssertPerst,
        Self::AssertReset,
        Self::DeassertReset,
        Self::LinkUp,
        Self::LinkPartnerInfo,
        Self::DpCmd,
        Self::UcPull,
        Self::DcReq,
        Self::DcReqLast,
        Self::UcRsp,
        Self::UcRspLast,
        Self::UcRspFail,
        Self::Gam,
        Self::DcReqFail,
        Self::RtUpdate,
        Self::RtUpdateAck,
        Self::RtUpdateNak,
        Self::CxlPm,
        Self::CxlError,
    ];

    /// CXL VDM code and PBR opcode; 0 where a message has no opcode.
    #[must_use]
    pub const fn codes(self) -> (u8, u8) {
        match self {
            Self::AssertPerst => (0x80, 0x00),
            Self::AssertReset => (0x80, 0x01),
            Self::DeassertReset => (0x80, 0x03),
            Self::LinkUp => (0x80, 0x04),
            Self::LinkPartnerInfo => (0x90, 0x00),
            Self::DpCmd => (0xA0, 0x00),
            Self::UcPull => (0xA1, 0x01),
            Self::DcReq => (0xA0, 0x02),
            Self::DcReqLast => (0xA0, 0x03),
            Self::UcRsp => (0xA1, 0x04),
            Self::UcRspLast => (0xA1, 0x05),
            Self::UcRspFail => (0xA1, 0x06),
            Self::Gam => (0xA1, 0x07),
            Self::DcReqFail => (0xA0, 0x08),
            Self::RtUpdate => (0xA1, 0x10),
            Self::RtUpdateAck => (0xA1, 0x12),
            Self::RtUpdateNak => (0xA1, 0x13),
            Self::CxlPm => (0x68, 0),
            Self::CxlError => (0x00, 0),
        }
    }

    /// From both codes; the opcode of power management and errors does not count.
    #[must_use]
    pub const fn decode(code: u8, opcode: u8) -> Option<Self> {
        Some(match (code, opcode) {
            (0x80, 0x00) => Self::AssertPerst,
            (0x80, 0x01) => Self::AssertReset,
            (0x80, 0x03) => Self::DeassertReset,
            (0x80, 0x04) => Self::LinkUp,
            (0x90, 0x00) => Self::LinkPartnerInfo,
            (0xA0, 0x00) => Self::DpCmd,
            (0xA1, 0x01) => Self::UcPull,
            (0xA0, 0x02) => Self::DcReq,
            (0xA0, 0x03) => Self::DcReqLast,
            (0xA1, 0x04) => Self::UcRsp,
            (0xA1, 0x05) => Self::UcRspLast,
            (0xA1, 0x06) => Self::UcRspFail,
            (0xA1, 0x07) => Self::Gam,
            (0xA0, 0x08) => Self::DcReqFail,
            (0xA1, 0x10) => Self::RtUpdate,
            (0xA1, 0x12) => Self::RtUpdateAck,
            (0xA1, 0x13) => Self::RtUpdateNak,
            (0x68, _) => Self::CxlPm,
            (0x00, _) => Self::CxlError,
            _ => return None,
        })
    }

    /// Least and most DWs of its payload.
    #[must_use]
    pub const fn payload_dws(self) -> (usize, usize) {
        match self {
            Self::LinkPartnerInfo => (16, 16),
            Self::DcReq | Self::UcRsp => (32, 32),
            Self::DcReqLast | Self::UcRspLast => (1, 32),
            Self::Gam => (GAM_LEN / 4, GAM_LEN / 4),
            Self::RtUpdate => (1, 8),
            Self::CxlPm => (4, 4),
            _ => (0, 0),
        }
    }

    /// DSAR of the PTH in front: set on all but errors.
    #[must_use]
    pub const fn dsar(self) -> bool {
        !matches!(self, Self::CxlError)
    }

    /// Whether its header is PCIe's own and not that of a PBR message.
    #[must_use]
    pub const fn has_pcie_header(self) -> bool {
        matches!(self, Self::CxlPm | Self::CxlError)
    }
}

/// A vendor-defined message between components of a PBR fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PbrVdm<'a> {
    /// Operation of the message.
    pub op: VdmOp,
    /// `SeqLen`: DWs of a command or response, 0 for 256 where one is announced.
    pub seq_len: u8,
    /// `CmdSeq`: number of the command, modulo 8.
    pub cmd_seq: u8,
    /// `SeqNum`: number of the message within it, modulo 8.
    pub seq_num: u8,
    /// Payload of whole DWs; [`VdmOp::payload_dws`] has its bounds.
    pub payload: &'a [u8],
}

impl<'a> PbrVdm<'a> {
    /// A message with no sequence.
    #[must_use]
    pub const fn new(op: VdmOp, payload: &'a [u8]) -> Self {
        Self { op, seq_len: 0, cmd_seq: 0, seq_num: 0, payload }
    }

    /// Reads a parsed flit-mode message.
    ///
    /// # Errors
    /// It is not a vendor-defined message of CXL's, has an unknown code, is not routed as its code
    /// demands, or its payload has another size.
    pub fn parse(tlp: &Tlp<'a>) -> Result<Self, ParseError> {
        let (Kind::Message { routing, .. }, Some((_, dw3))) = (tlp.kind(), tlp.message_dws())
        else {
            return Err(refused(Layer::Vdm, Field::TlpType, 0));
        };
        let code = tlp.message_code().unwrap_or_default();
        if tlp.vendor_id() != Some(VENDOR_CXL) {
            return Err(refused(Layer::Vdm, Field::VendorId, tlp.vendor_id().unwrap_or_default()));
        }
        let Some(op) = VdmOp::decode(bits8(dw3, 0), bits8(dw3, 8)) else {
            return Err(refused(Layer::Vdm, Field::VdmCode, super::layout::low16(dw3)));
        };
        // the PTH routes a PBR message, so that its own routing is always local
        let pbr = tlp.mode() == Mode::Flit && routing == Routing::Local && code == CODE_VDM_TYPE0;
        if !pbr && !op.has_pcie_header() {
            return Err(refused(Layer::Vdm, Field::TlpType, u16::from(code)));
        }
        let payload = tlp.payload();
        let (least, most) = op.payload_dws();
        if !(least..=most).contains(&(payload.len() / 4)) {
            return Err(refused(Layer::Vdm, Field::TlpLength, tlp.length_dw()));
        }
        // the DW3 of power management and errors has no sequence
        if op.has_pcie_header() {
            return Ok(Self::new(op, payload));
        }
        Ok(Self {
            op,
            seq_len: bits8(dw3, 24),
            cmd_seq: bits8(dw3, 20) & 7,
            seq_num: bits8(dw3, 16) & 7,
            payload,
        })
    }

    /// The flit-mode message. Of power management and errors, with PCIe's header: type 1, to the root.
    #[must_use]
    pub const fn repr(&self) -> TlpRepr<'a> {
        let (code, opcode) = self.op.codes();
        let sequence = (self.cmd_seq & 7) << 4 | self.seq_num & 7;
        let (routing, message) = if self.op.has_pcie_header() {
            (Routing::ToRoot, CODE_VDM_TYPE1)
        } else {
            (Routing::Local, CODE_VDM_TYPE0)
        };
        let kind = Kind::Message { routing, data: !self.payload.is_empty() };
        let body = Body::Message {
            code: message,
            dw2: halves(0, VENDOR_CXL),
            dw3: u32::from_be_bytes([self.seq_len, sequence, opcode, code]),
        };
        let mut repr = TlpRepr::new(Mode::Flit, kind, Bdf::from_bits(0), 0, body);
        repr.payload = self.payload;
        repr
    }
}

/// Payload of [`VdmOp::LinkPartnerInfo`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartnerInfo {
    /// Port of the sender.
    pub port: u8,
    /// Port of the receiver, as far as the sender knows it.
    pub far_port: u8,
    /// PID of the sender.
    pub pid: Pid,
    /// [`Self::SWITCH`], [`Self::GFD`] or a reserved type, 4 bits.
    pub component_type: u8,
    /// UUID of the sender.
    pub uuid: [u8; 16],
    /// Virtual channels with standard flow control, bit n = `VCn`.
    pub vcs: u8,
    /// Virtual channels with UIO flow control.
    pub uio_vcs: u8,
    /// UUID of its primary fabric manager; zeros where it is not known.
    pub primary_fm: [u8; 16],
    /// UUID of its secondary fabric manager; zeros where it is not known.
    pub secondary_fm: [u8; 16],
}

impl PartnerInfo {
    /// Bytes on the wire.
    pub const LEN: usize = 64;
    /// Type of a switch.
    pub const SWITCH: u8 = 0;
    /// Type of a GFD.
    pub const GFD: u8 = 1;

    /// Of a component of which nothing else is known yet.
    #[must_use]
    pub const fn new(pid: Pid, component_type: u8) -> Self {
        Self {
            port: 0,
            far_port: 0,
            pid,
            component_type,
            uuid: [0; 16],
            vcs: 0,
            uio_vcs: 0,
            primary_fm: [0; 16],
            secondary_fm: [0; 16],
        }
    }

    /// Reads the payload.
    ///
    /// # Errors
    /// Fewer than [`Self::LEN`] bytes.
    pub const fn decode(payload: &[u8]) -> Result<Self, ParseError> {
        let bytes = match cut::<{ Self::LEN }>(payload, Layer::TlpPayload) {
            Ok((bytes, _)) => bytes,
            Err(error) => return Err(error),
        };
        Ok(Self {
            port: byte::<0, _>(bytes),
            far_port: byte::<1, _>(bytes),
            pid: Pid::from_low_bits(u16::from_le_bytes(*window::<2, 2, _>(bytes))),
            component_type: byte::<3, _>(bytes) >> 4,
            uuid: *window::<4, 16, _>(bytes),
            vcs: byte::<20, _>(bytes),
            uio_vcs: byte::<21, _>(bytes),
            primary_fm: *window::<22, 16, _>(bytes),
            secondary_fm: *window::<38, 16, _>(bytes),
        })
    }

    /// The payload, reserved bytes 0.
    #[must_use]
    pub const fn emit(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        put::<0, 2, _>(&mut out, [self.port, self.far_port]);
        let pid_and_type = self.pid.bits() | (self.component_type as u16 & 0xF) << 12;
        put::<2, 2, _>(&mut out, pid_and_type.to_le_bytes());
        put::<4, 16, _>(&mut out, self.uuid);
        put::<20, 2, _>(&mut out, [self.vcs, self.uio_vcs]);
        put::<22, 16, _>(&mut out, self.primary_fm);
        put::<38, 16, _>(&mut out, self.secondary_fm);
        out
    }
}

/// One pair of an [`VdmOp::RtUpdate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtPair {
    /// PID of the downstream port; [`Pid::NONE`] says that the pair means nothing.
    pub pid: Pid,
    /// `CacheID`, bits 15:12 of the pair.
    pub cache_id: u8,
}

impl RtPair {
    /// Bytes on the wire.
    pub const LEN: usize = 2;
    /// Most pairs in one message.
    pub const COUNT_MAX: usize = 16;

    /// Reads one pair of a payload.
    #[must_use]
    pub const fn decode(bytes: [u8; Self::LEN]) -> Self {
        let bits = u16::from_le_bytes(bytes);
        let [_, high] = bytes;
        Self { pid: Pid::from_low_bits(bits), cache_id: high >> 4 }
    }

    /// The pair's two bytes.
    #[must_use]
    pub const fn emit(self) -> [u8; Self::LEN] {
        (self.pid.bits() | (self.cache_id as u16 & 0xF) << 12).to_le_bytes()
    }

    /// The pairs of a payload that mean something.
    pub fn all(payload: &[u8]) -> impl Iterator<Item = Self> + '_ {
        let pairs = payload.chunks_exact(Self::LEN).take(Self::COUNT_MAX);
        pairs
            .filter_map(|bytes| bytes.first_chunk().map(|bytes| Self::decode(*bytes)))
            .filter(|pair| !pair.pid.is_none())
    }
}
