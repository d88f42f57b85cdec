//! MCTP control messages: what an endpoint is called and what it can.
//!
//! A message of type 0 in, its response out; [`Control`] knows the EID that the endpoint was given.
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

/// Message type that asks for versions of the base specification.
const BASE: u8 = 0xFF;
/// 1.0 to 1.3.1, each as major, minor, update and alpha.
const BASE_VERSIONS: [[u8; 4]; 4] =
    [[0xF1, 0xF0, 0xFF, 0], [0xF1, 0xF1, 0xFF, 0], [0xF1, 0xF2, 0xFF, 0], [0xF1, 0xF3, 0xF1, 0]];
/// 1.0.0 of the bindings of FM-API and CCI.
const CCI_VERSIONS: [[u8; 4]; 1] = [[0xF1, 0xF0, 0xF0, 0]];

/// What an endpoint is called.
#[derive(Clone, Copy, Debug)]
pub struct Control {
    uuid: Uuid,
    eid: u8,
}

impl Control {
    /// An endpoint that has not been given an EID.
    #[must_use]
    pub const fn new(uuid: Uuid) -> Self {
        Self { uuid, eid: EID_NULL }
    }

    /// Its EID, 0 before it was given one.
    #[must_use]
    pub const fn eid(&self) -> u8 {
        self.eid
    }

    /// Whether a packet to `dest` is for it: any, until it has an EID of its own.
    #[must_use]
    pub const fn is_called(&self, dest: u8) -> bool {
        self.eid == EID_NULL || dest == self.eid || dest == EID_NULL || dest == EID_BROADCAST
    }

    /// Carries out the request in `body`, what follows the type, with padding: the response's body; none to what is no
    /// request, or wants none.
    pub fn answer(&mut self, body: &[u8]) -> Option<Vec<u8>> {
        let [flags, command, data @ ..] = body else { return None };
        if flags & REQUEST == 0 {
            return None;
        }
        let mut out = vec![flags & 0x1F, *command, SUCCESS];
        // Padding does not tell how long a request is, but none of these takes a second packet.
        let done = if body.len() < UNIT {
            self.carry_out(*command, data, &mut out)
        } else {
            Err(INVALID_LENGTH)
        };
        if let Err(code) = done {
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

    /// Operations 0 (set) and 1 (force); there is no static EID to reset to, and no discovered flag.
    fn set_eid(&mut self, op: u8, eid: u8, out: &mut Vec<u8>) -> Result<(), u8> {
        if op > 1 || eid == EID_NULL || eid == EID_BROADCAST {
            return Err(INVALID_DATA);
        }
        self.eid = eid;
        out.extend([0, eid, 0]); // accepted, and no pool of EIDs
        Ok(())
    }
}

/// The type of CCI messages that a type octet names.
#[must_use]
pub const fn cci_type(kind: u8) -> Option<MessageType> {
    match kind {
        7 => Some(MessageType::FmApi),
        8 => Some(MessageType::Cci),
        _ => None,
    }
}
