//! MCTP control messages: assignment of the EID, and capabilities of the endpoint.
//!
//! [`Control::answer`] takes the body of a message of type 0 and returns that of its response.
//!
//! Units: bytes; UUIDs in the order of RFC 9562.
//! Source: DMTF DSP0236 sections 11 and 12 (codes, fields); DSP0234, DSP0281 (versions of types 7 and 8); docs/mctp.md
//! "Control messages".

use weft_parsers::cci::Uuid;
use weft_parsers::cci::mctp::MessageType;
use weft_parsers::mctp::{EID_BROADCAST, EID_NULL, UNIT};

/// MCTP message type of control messages.
pub const CONTROL: u8 = 0;

const REQUEST: u8 = 1 << 7;
const DATAGRAM: u8 = 1 << 6;

const SUCCESS: u8 = 0;
const INVALID_DATA: u8 = 2;
const INVALID_LENGTH: u8 = 3;
const UNSUPPORTED_COMMAND: u8 = 5;
const TYPE_NOT_SUPPORTED: u8 = 0x80;

const SET_EID: u8 = 1;
const GET_EID: u8 = 2;
const GET_UUID: u8 = 3;
const GET_VERSIONS: u8 = 4;
const GET_TYPES: u8 = 5;

/// Type number in Get MCTP Version Support that stands for the base specification.
const BASE: u8 = 0xFF;
/// Versions 1.0 to 1.3.1, each as major, minor, update and alpha.
const BASE_VERSIONS: [[u8; 4]; 4] =
    [[0xF1, 0xF0, 0xFF, 0], [0xF1, 0xF1, 0xFF, 0], [0xF1, 0xF2, 0xFF, 0], [0xF1, 0xF3, 0xF1, 0]];
/// Version 1.0.0 of the bindings of FM-API and CCI.
const CCI_VERSIONS: [[u8; 4]; 1] = [[0xF1, 0xF0, 0xF0, 0]];

/// State of an endpoint that control messages read and change.
#[derive(Clone, Copy, Debug)]
pub struct Control {
    uuid: Uuid,
    eid: u8,
}

impl Control {
    /// An endpoint without an EID.
    #[must_use]
    pub const fn new(uuid: Uuid) -> Self {
        Self { uuid, eid: EID_NULL }
    }

    /// EID of the endpoint; 0 until it is assigned.
    #[must_use]
    pub const fn eid(&self) -> u8 {
        self.eid
    }

    /// Whether a packet to `dest` is for this endpoint: all are, until it has an EID.
    #[must_use]
    pub const fn is_called(&self, dest: u8) -> bool {
        self.eid == EID_NULL || dest == self.eid || dest == EID_NULL || dest == EID_BROADCAST
    }

    /// Carries out the request in `body` (without the type, with padding) and returns the body of the response;
    /// `None` if it is no request, or a datagram.
    pub fn answer(&mut self, body: &[u8]) -> Option<Vec<u8>> {
        let [flags, command, data @ ..] = body else { return None };
        if flags & REQUEST == 0 {
            return None;
        }
        // A response repeats instance id and command, with Rq and D as 0 (DSP0236, section 11).
        let mut out = vec![flags & 0x1F, *command, SUCCESS];
        // Padding hides the length of a request, but no request of these needs a second packet.
        let done = if body.len() < UNIT {
            self.carry_out(*command, data, &mut out)
        } else {
            Err(INVALID_LENGTH)
        };
        if let Err(code) = done {
            // An error response has no data behind its completion code.
            out.truncate(2);
            out.push(code);
        }
        (flags & DATAGRAM == 0).then_some(out)
    }

    fn carry_out(&mut self, command: u8, data: &[u8], out: &mut Vec<u8>) -> Result<(), u8> {
        match (command, data) {
            (SET_EID, [op, eid, ..]) => self.set_eid(op & 3, *eid, out),
            (GET_EID, _) => {
                out.extend([self.eid, 0, 0]); // a simple endpoint, a dynamic EID, nothing of its medium
                Ok(())
            }
            (GET_UUID, _) => {
                out.extend(self.uuid);
                Ok(())
            }
            (GET_VERSIONS, [kind, ..]) => {
                let versions: &[[u8; 4]] = match *kind {
                    BASE | CONTROL => &BASE_VERSIONS,
                    kind if cci_type(kind).is_some() => &CCI_VERSIONS,
                    _ => return Err(TYPE_NOT_SUPPORTED),
                };
                out.push(u8::try_from(versions.len()).unwrap_or(u8::MAX));
                out.extend(versions.iter().flatten());
                Ok(())
            }
            (GET_TYPES, _) => {
                out.extend([2, MessageType::FmApi as u8, MessageType::Cci as u8]);
                Ok(())
            }
            (SET_EID | GET_VERSIONS, _) => Err(INVALID_LENGTH),
            _ => Err(UNSUPPORTED_COMMAND),
        }
    }

    /// Set Endpoint ID: operations 0 (set) and 1 (force). There is no static EID to reset to, and no discovered
    /// flag.
    fn set_eid(&mut self, op: u8, eid: u8, out: &mut Vec<u8>) -> Result<(), u8> {
        if op > 1 || eid == EID_NULL || eid == EID_BROADCAST {
            return Err(INVALID_DATA);
        }
        self.eid = eid;
        out.extend([0, eid, 0]); // accepted, and no pool of EIDs
        Ok(())
    }
}

/// Message type of CCI messages with this type number; `None` for other types.
#[must_use]
pub const fn cci_type(kind: u8) -> Option<MessageType> {
    match kind {
        7 => Some(MessageType::FmApi),
        8 => Some(MessageType::Cci),
        _ => None,
    }
}
