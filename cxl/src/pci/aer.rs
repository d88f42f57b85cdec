//! Advanced Error Reporting: error status of a function, and the messages that report errors to the root.
//!
//! [`Aer::report`] takes an error and the header of the TLP that caused it, sets the status bits, and returns the
//! message to send, if software has enabled one. Headers are double words as on the wire.
//!
//! Source: PCIe 6.0 §6.2.3 to §6.2.5, §7.8.4.
//!
//! Advisory errors are those that another component reports as well: a request refused by a completion, or an
//! unexpected completion. They send a correctable message at most. Their bit of the uncorrectable status is set all
//! the same, as in most hardware.

use super::express::Express;
use super::regs::{self, aer as r, command, express, ext, status};
use super::space::{Space, SpaceError};

/// Advisory non-fatal error, in the correctable status and mask.
const ADVISORY: u32 = 1 << 13;
/// All correctable errors: writable in the correctable mask.
const CORRECTABLE: u32 = 0x0000_31C1;
/// The bits of all [`Uncorrectable`] errors.
const UNCORRECTABLE: u32 = 0x0015_D020;
/// Errors that are fatal after reset, of those modelled: surprise down and malformed TLP.
const SEVERITY: u32 = 0x0004_0020;

/// An uncorrectable error; the discriminant is its bit number in status, mask and severity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Uncorrectable {
    /// The link went down, and neither software nor a reset had caused that.
    SurpriseDown = 5,
    /// A TLP with the EP bit set was received.
    Poisoned = 12,
    /// A request got no completion in time.
    CompletionTimeout = 14,
    /// A request was completed with status CA.
    CompleterAbort = 15,
    /// A completion matched no request.
    UnexpectedCompletion = 16,
    /// A TLP broke the rules of its format.
    Malformed = 18,
    /// No function here accepts the request.
    UnsupportedRequest = 20,
}

impl Uncorrectable {
    pub const ALL: [Self; 7] = [
        Self::SurpriseDown,
        Self::Poisoned,
        Self::CompletionTimeout,
        Self::CompleterAbort,
        Self::UnexpectedCompletion,
        Self::Malformed,
        Self::UnsupportedRequest,
    ];

    /// Mask of its bit in status, mask and severity.
    #[must_use]
    pub const fn bit(self) -> u32 {
        1 << self as u8
    }

    /// Whether the error is advisory, as the other end reports it too; `posted`: the request had no completion.
    const fn is_advisory(self, posted: bool) -> bool {
        match self {
            // The completion with UR or CA tells the requester, who reports it; a posted request has none (PCIe
            // 6.0, 6.2.3.2.4.1).
            Self::UnsupportedRequest | Self::CompleterAbort => !posted,
            Self::UnexpectedCompletion => true,
            _ => false,
        }
    }
}

/// A message that reports an error to the root complex; the discriminant is its message code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum ErrorMessage {
    /// `ERR_COR`, message code 30h.
    Correctable = 0x30,
    /// `ERR_NONFATAL`, message code 31h.
    NonFatal = 0x31,
    /// `ERR_FATAL`, message code 33h.
    Fatal = 0x33,
}

impl ErrorMessage {
    /// Message code of its TLP.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }
}

/// An AER capability in a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aer {
    /// Offset of the capability.
    pub at: u16,
}

impl Aer {
    /// Adds the capability, with the Root Error registers if `root`.
    ///
    /// # Errors
    /// No room is left.
    pub fn add(space: &mut Space, root: bool) -> Result<Self, SpaceError> {
        let at = space.add_ext(ext::AER, 2, if root { r::LEN_ROOT } else { r::LEN })?;
        space.clear_by_one32(at + r::STATUS, UNCORRECTABLE);
        space.allow32(at + r::MASK, UNCORRECTABLE);
        space.set32(at + r::SEVERITY, SEVERITY);
        space.allow32(at + r::SEVERITY, UNCORRECTABLE);
        space.clear_by_one32(at + r::COR_STATUS, CORRECTABLE);
        // Masked after reset (7.8.4.6): role-based reporting leaves advisory errors quiet until software asks for
        // them.
        space.set32(at + r::COR_MASK, ADVISORY);
        space.allow32(at + r::COR_MASK, CORRECTABLE);
        if root {
            space.allow32(at + r::ROOT_COMMAND, 0x7);
            space.clear_by_one32(at + r::ROOT_STATUS, 0x7F);
        }
        Ok(Self { at })
    }

    /// Uncorrectable errors that have been detected and not cleared.
    #[must_use]
    pub fn status(self, space: &Space) -> u32 {
        space.get32(self.at + r::STATUS)
    }

    /// Records `error` with the header of the TLP that caused it (zeros if none did); `posted` says whether that
    /// TLP was a posted request. Returns the message for the root, if software wants one.
    #[must_use = "the message must be sent"]
    pub fn report(
        self,
        space: &mut Space,
        express: Express,
        error: Uncorrectable,
        posted: bool,
        header: [u32; 4],
    ) -> Option<ErrorMessage> {
        let bit = error.bit();
        let masked = space.get32(self.at + r::MASK) & bit != 0;
        let fatal = space.get32(self.at + r::SEVERITY) & bit != 0;
        // The header log keeps the first unmasked error until software clears its status (6.2.4.2): a later one
        // must not overwrite it.
        if !masked && self.status(space) & !space.get32(self.at + r::MASK) == 0 {
            let control = space.get32(self.at + r::CONTROL);
            space.set32(self.at + r::CONTROL, (control & !0x1F) | u32::from(error as u8));
            for (at, word) in (self.at + r::HEADER..).step_by(4).zip(header) {
                space.set32(at, word);
            }
        }
        space.set32(self.at + r::STATUS, self.status(space) | bit);
        let device_status = express.reg(express::DEV_STA);
        if error == Uncorrectable::UnsupportedRequest {
            space.set_bits16(device_status, express::DEV_STA_UNSUPPORTED, true);
        }
        if error == Uncorrectable::CompleterAbort {
            space.set_bits16(regs::STATUS, status::TARGET_ABORT_SENT, true);
        }
        let control = space.get16(express.reg(express::DEV_CTL));
        // UR has an enable of its own (7.5.3.4), so that probing for functions need not raise an error.
        let told = error != Uncorrectable::UnsupportedRequest
            || control & express::DEV_CTL_UNSUPPORTED != 0;
        // An advisory error whose severity software has set to fatal is reported as fatal, not as correctable
        // (6.2.3.2.4).
        if error.is_advisory(posted) && !fatal {
            space.set_bits16(device_status, express::DEV_STA_CORRECTABLE, true);
            let seen = space.get32(self.at + r::COR_STATUS);
            space.set32(self.at + r::COR_STATUS, seen | ADVISORY);
            let quiet = masked || space.get32(self.at + r::COR_MASK) & ADVISORY != 0;
            let wanted = told && control & express::DEV_CTL_CORRECTABLE != 0;
            return (wanted && !quiet).then_some(ErrorMessage::Correctable);
        }
        let (seen, enable, message) = if fatal {
            (express::DEV_STA_FATAL, express::DEV_CTL_FATAL, ErrorMessage::Fatal)
        } else {
            (express::DEV_STA_NON_FATAL, express::DEV_CTL_NON_FATAL, ErrorMessage::NonFatal)
        };
        space.set_bits16(device_status, seen, true);
        // SERR# Enable of the command register also enables messages, whatever Device Control says (6.2.6).
        let serr = space.get16(regs::COMMAND) & command::SERR != 0;
        let wanted = !masked && (serr || (told && control & enable != 0));
        if wanted && serr {
            space.set_bits16(regs::STATUS, status::SYSTEM_ERROR_SENT, true);
        }
        wanted.then_some(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pci::express::{ExpressSpec, Link, LnSystem, PortKind, add_express};
    use crate::pci::space::{ByteEnables, Reg};

    fn port() -> (Space, Express, Aer) {
        let mut space = Space::new();
        let (kind, link) = (PortKind::Downstream, Link::default());
        let spec = ExpressSpec { kind, link, payload: 0, port: 1, flr: false, ln: LnSystem::None };
        space.allow16(regs::COMMAND, command::WRITABLE);
        let express = add_express(&mut space, &spec).unwrap();
        let aer = Aer::add(&mut space, false).unwrap();
        (space, express, aer)
    }

    #[test]
    fn software_says_which_errors_it_hears_of() {
        use ErrorMessage::{Correctable, Fatal, NonFatal};
        use Uncorrectable as U;
        #[rustfmt::skip] // columns: name, device control, mask, correctable mask, error, posted, want
        let cases = [
            ("all off",               0x0, 0,      0,      U::SurpriseDown,         true,  None),
            ("fatal",                 0x4, 0,      0x2000, U::SurpriseDown,         true,  Some(Fatal)),
            ("fatal, other on",       0x3, 0,      0,      U::SurpriseDown,         true,  None),
            ("fatal, masked",         0x4, 0x20,   0,      U::SurpriseDown,         true,  None),
            ("posted UR",             0xA, 0,      0x2000, U::UnsupportedRequest,   true,  Some(NonFatal)),
            ("posted UR, UR off",     0x2, 0,      0x2000, U::UnsupportedRequest,   true,  None),
            ("UR that is answered",   0xF, 0,      0x2000, U::UnsupportedRequest,   false, None),
            ("advisory unmasked",     0xF, 0,      0,      U::UnsupportedRequest,   false, Some(Correctable)),
            ("unexpected completion", 0x7, 0,      0,      U::UnexpectedCompletion, false, Some(Correctable)),
            ("it masked",             0x7, 1 << 16, 0,     U::UnexpectedCompletion, false, None),
            ("CA, posted",            0x7, 0,      0,      U::CompleterAbort,       true,  Some(NonFatal)),
        ];
        for (name, control, mask, cor_mask, error, posted, want) in cases {
            let (mut space, express, aer) = port();
            let writes = [
                (express.reg(express::DEV_CTL), control),
                (aer.at + r::MASK, mask),
                (aer.at + r::COR_MASK, cor_mask),
            ];
            for (at, value) in writes {
                space.write(Reg::at(at), value, ByteEnables::ALL);
            }
            let message = aer.report(&mut space, express, error, posted, [0; 4]);
            assert_eq!(message, want, "{name}");
            assert_eq!(aer.status(&space), error.bit(), "{name}: seen in any case");
        }
    }

    #[test]
    fn the_first_error_keeps_its_header_until_it_is_cleared() {
        let (mut space, express, aer) = port();
        let first = |space: &Space| {
            (space.get32(aer.at + r::CONTROL) & 0x1F, space.get32(aer.at + r::HEADER + 12))
        };
        let report = |space: &mut Space, error, word| {
            let _ = aer.report(space, express, error, true, [0, 0, 0, word]);
        };
        report(&mut space, Uncorrectable::UnsupportedRequest, 7);
        report(&mut space, Uncorrectable::CompleterAbort, 8);
        assert_eq!((first(&space), aer.status(&space)), ((20, 7), 0x0010_8000));
        space.write(Reg::at(aer.at + r::STATUS), u32::MAX, ByteEnables::ALL);
        assert_eq!(aer.status(&space), 0);
        report(&mut space, Uncorrectable::CompleterAbort, 9);
        assert_eq!(first(&space), (15, 9));
    }

    #[test]
    fn every_error_has_its_bit_and_can_be_cleared() {
        let all = Uncorrectable::ALL.iter().fold(0, |bits, error| bits | error.bit());
        assert_eq!(all, UNCORRECTABLE);
        let (mut space, express, aer) = port();
        space.write(Reg::at(regs::COMMAND), 0x100, ByteEnables::ALL);
        for error in Uncorrectable::ALL {
            let message = aer.report(&mut space, express, error, true, [0; 4]);
            assert_eq!(message.is_some(), error != Uncorrectable::UnexpectedCompletion, "SERR#");
        }
        assert_eq!(space.get16(regs::STATUS) & 0x4800, 0x4800, "told, and CA signalled");
    }
}
