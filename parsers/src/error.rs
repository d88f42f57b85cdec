//! Errors of parsers: the layer that was refused, the bytes it needed and the bytes there were.
//!
//! [`ParseError`] has 6 bytes and is `Copy`, so that it fits a per-frame result. Bytes of
//! [`ParseError::Short`] count from the front of the slice that was handed in.
//!
//! Source: style of etherparse's `LenError` (layer, required, actual).

use core::fmt;

/// Layer of a frame that an error speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Layer {
    /// Addresses and EtherType, 14 bytes.
    Ethernet,
    /// 802.1Q tag behind its TPID, 4 bytes.
    VlanTag,
    /// Entry of an MPLS label stack, 4 bytes.
    Mpls,
    /// IPv4 header with its options.
    Ipv4,
    /// IPv6 fixed header, 40 bytes.
    Ipv6,
    /// UDP header, 8 bytes.
    Udp,
    /// RC Link header, 8 bytes.
    Rh,
    /// AFH header of any kind, 12 bytes.
    Afh,
    /// IBTA base transport header, 12 bytes.
    Bth,
    /// MAC Control opcode (EtherType 0x8808).
    MacControl,
    /// Priority-based flow control.
    Pfc,
    /// 802.3x PAUSE frame, 18 bytes up to its time.
    Pause,
    /// UEC credit counter update.
    CcUpdate,
    /// Loop probe of weft, up to its number.
    LoopProbe,
    /// Header in front of a TLP on an Ethernet link.
    TlpLink,
    /// TLP prefix, 4 bytes.
    TlpPrefix,
    /// PBR TLP header (PTH), 4 bytes.
    Pth,
    /// TLP base header with its extensions.
    Tlp,
    /// Payload of a TLP.
    TlpPayload,
    /// CXL.mem message, 16, 80 or 88 bytes.
    CxlMem,
    /// CXL.cache message, 16, 80 or 88 bytes.
    CxlCache,
    /// PBR vendor-defined message.
    Vdm,
    /// CCI message header, 12 bytes.
    Cci,
    /// Payload of a CCI message.
    CciPayload,
    /// MCTP message in a stream.
    Mctp,
}

impl Layer {
    /// Name as printed in messages and counters.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ethernet => "ethernet",
            Self::VlanTag => "vlan tag",
            Self::Mpls => "mpls",
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
            Self::Udp => "udp",
            Self::Rh => "rh",
            Self::Afh => "afh",
            Self::Bth => "bth",
            Self::MacControl => "mac control",
            Self::Pfc => "pfc",
            Self::Pause => "pause",
            Self::CcUpdate => "cc_update",
            Self::LoopProbe => "loop probe",
            Self::TlpLink => "tlp link header",
            Self::TlpPrefix => "tlp prefix",
            Self::Pth => "pth",
            Self::Tlp => "tlp",
            Self::TlpPayload => "tlp payload",
            Self::CxlMem => "cxl.mem",
            Self::CxlCache => "cxl.cache",
            Self::Vdm => "pbr vdm",
            Self::Cci => "cci",
            Self::CciPayload => "cci payload",
            Self::Mctp => "mctp",
        }
    }
}

/// Field whose value a strict view refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Field {
    /// EtherType, or the one behind a tag.
    EtherType,
    /// Version of IP, MCTP or a TLP link header.
    Version,
    /// IPv4 header length in 32-bit words.
    Ihl,
    /// Opcode of a MAC Control frame or a CXL message.
    Opcode,
    /// UEC CID of an extension frame.
    Cid,
    /// Message type of UEC or of MCTP.
    MsgType,
    /// `Key_words` of GEN2 and Lite.
    KeyWords,
    /// First byte of a TLP header or prefix.
    TlpType,
    /// Place of a TLP prefix among the others, or a second one where one may be.
    TlpPrefixOrder,
    /// Length of a TLP in DW.
    TlpLength,
    /// Byte enables of a TLP.
    ByteEnables,
    /// Address of a TLP: misaligned, or an access that crosses 4 KiB.
    TlpAddress,
    /// OHC of a flit-mode TLP.
    Ohc,
    /// TS of a flit-mode TLP.
    Trailer,
    /// First byte of a DW on a PBR link, before a PTH or right behind one.
    PbrGrammar,
    /// OUI of an extended EtherType.
    Oui,
    /// Protocol of an extended EtherType.
    Protocol,
    /// Vendor ID of a message.
    VendorId,
    /// CXL VDM code, and PBR opcode below it.
    VdmCode,
    /// Cache line of a Lightweight Notification.
    LnLine,
    /// Bytes that follow, of a CCI message, its payload or a message in a stream.
    Length,
    /// Category of a CCI message.
    Category,
    /// Operation of a command or a link message.
    Operation,
    /// Kind of a command's target or of a table entry.
    Kind,
    /// Policy by which dynamic capacity is chosen.
    Policy,
    /// Ways or granularity of interleaving.
    Interleave,
    /// Mode in which a routing group chooses a port.
    Mode,
    /// Last primary port of a routing group.
    Primary,
    /// Bytes that a command asks for.
    Size,
}

impl Field {
    /// Name as printed in messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::EtherType => "ethertype",
            Self::Version => "version",
            Self::Ihl => "header length",
            Self::Opcode => "opcode",
            Self::Cid => "cid",
            Self::MsgType => "message type",
            Self::KeyWords => "key_words",
            Self::TlpType => "type",
            Self::TlpPrefixOrder => "order of prefixes",
            Self::TlpLength => "length",
            Self::ByteEnables => "byte enables",
            Self::TlpAddress => "address",
            Self::Ohc => "ohc",
            Self::Trailer => "ts",
            Self::PbrGrammar => "next double word",
            Self::Oui => "oui",
            Self::Protocol => "protocol",
            Self::VendorId => "vendor id",
            Self::VdmCode => "vdm code",
            Self::LnLine => "line",
            Self::Length => "length",
            Self::Category => "category",
            Self::Operation => "operation",
            Self::Kind => "kind",
            Self::Policy => "policy",
            Self::Interleave => "interleave",
            Self::Mode => "mode",
            Self::Primary => "last primary port",
            Self::Size => "size",
        }
    }
}

/// Why a layer could not be read. Cheap to copy; the dataplane maps it to one drop reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParseError {
    /// Fewer bytes than the layer needs.
    Short {
        /// Layer that does not fit.
        layer: Layer,
        /// Bytes needed up to and including the layer.
        need: u16,
        /// Bytes that the slice had.
        had: u16,
    },
    /// A field holds a value that the layer cannot have.
    Value {
        /// Layer of the field.
        layer: Layer,
        /// Field whose value was refused.
        field: Field,
        /// Value found; the low 16 bits where the field is wider.
        value: u16,
    },
}

impl ParseError {
    /// Makes a [`ParseError::Short`]; numbers beyond 65,535 are shown as 65,535.
    #[inline]
    #[must_use]
    pub const fn short(layer: Layer, need: usize, had: usize) -> Self {
        Self::Short { layer, need: saturate(need), had: saturate(had) }
    }

    /// Layer that was refused.
    #[must_use]
    pub const fn layer(self) -> Layer {
        match self {
            Self::Short { layer, .. } | Self::Value { layer, .. } => layer,
        }
    }
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the branch holds the value below 2^16")]
const fn saturate(bytes: usize) -> u16 {
    if bytes > u16::MAX as usize { u16::MAX } else { bytes as u16 }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Short { layer, need, had } => {
                write!(f, "{}: needs {need} bytes, has {had}", layer.name())
            }
            Self::Value { layer, field, value } => {
                write!(f, "{}: {} cannot be {value:#06x}", layer.name(), field.name())
            }
        }
    }
}

impl core::error::Error for ParseError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Text;

    #[test]
    fn messages_name_layer_need_and_had() {
        let value = ParseError::Value { layer: Layer::Pfc, field: Field::Opcode, value: 0x100 };
        #[rustfmt::skip] // columns: error, message
        let cases = [
            (ParseError::short(Layer::Rh, 50, 49),     "rh: needs 50 bytes, has 49"),
            (ParseError::short(Layer::Ipv4, 34, 0),    "ipv4: needs 34 bytes, has 0"),
            (ParseError::short(Layer::Udp, 65_535, 9), "udp: needs 65535 bytes, has 9"),
            (ParseError::short(Layer::Udp, 65_536, usize::MAX), "udp: needs 65535 bytes, has 65535"),
            (value,                                    "pfc: opcode cannot be 0x0100"),
        ];
        for (error, want) in cases {
            assert_eq!(Text::of(&error).as_str(), want);
        }
        assert_eq!((value.layer(), size_of::<ParseError>()), (Layer::Pfc, 6));
    }
}
