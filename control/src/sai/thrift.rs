//! Thrift's binary protocol: reads messages from a stream, writes calls and answers.
//!
//! A [`Message`] has dynamic [`Value`]s by field number. There is no frame around it: it ends where its struct does.
//! Integers are signed and big-endian.
//!
//! Source: Apache Thrift, "Thrift Binary protocol encoding" (strict and older headers) and "Thrift Remote Procedure
//! Call".
//!
//! The other side chooses lengths and depth. So a client's message has at most [`MESSAGE_LEN_MAX`] bytes, structs and
//! lists are nested at most [`DEPTH_MAX`] deep, and a length that the rest of the message could not have is refused.

use std::collections::BTreeMap;
use std::io::{self, Read};

/// Longest message of a client, in bytes.
pub const MESSAGE_LEN_MAX: usize = 16 * 1024;
/// Longest answer that [`read_answer`] takes, in bytes: that of a switch with a thousand ports.
pub const ANSWER_LEN_MAX: usize = 1 << 20;
/// Deepest nesting. A list of attributes, each with a value that holds a list of maps of two structs, is 8 deep.
pub const DEPTH_MAX: usize = 16;
/// Version in the first word of a strict message, and the mask of its bits.
const VERSION: u32 = 0x8001_0000;
const VERSION_MASK: u32 = 0xFFFF_0000;

/// Types of values on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    Stop = 0,
    Bool = 2,
    I8 = 3,
    Double = 4,
    I16 = 6,
    I32 = 8,
    I64 = 10,
    Binary = 11,
    Struct = 12,
    Map = 13,
    Set = 14,
    List = 15,
    Uuid = 16,
}

impl Kind {
    fn read(byte: u8) -> Result<Self, WireError> {
        Ok(match byte {
            0 => Self::Stop,
            2 => Self::Bool,
            3 => Self::I8,
            4 => Self::Double,
            6 => Self::I16,
            8 => Self::I32,
            10 => Self::I64,
            11 => Self::Binary,
            12 => Self::Struct,
            13 => Self::Map,
            14 => Self::Set,
            15 => Self::List,
            16 => Self::Uuid,
            other => return Err(WireError::Malformed(format!("no type {other}"))),
        })
    }
}

/// Fields of a struct, by number.
pub type Fields = BTreeMap<i16, Value>;

/// Value of a field or element. Types that no method uses are read and dropped.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Bool(bool),
    /// An integer of 8 to 64 bits.
    Int(i64),
    /// Text or bytes.
    Binary(Vec<u8>),
    Struct(Fields),
    List(Vec<Self>),
    /// A value of any other type.
    Other,
}

impl Value {
    /// The value of an integer of any width.
    #[must_use]
    pub const fn as_int(&self) -> Option<i64> {
        if let Self::Int(value) = self { Some(*value) } else { None }
    }

    /// The value of a flag; also of an integer, as older clients send one.
    #[must_use]
    pub const fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            Self::Int(value) => Some(*value != 0),
            _ => None,
        }
    }

    /// The text, if it is valid UTF-8.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        if let Self::Binary(bytes) = self { std::str::from_utf8(bytes).ok() } else { None }
    }

    #[must_use]
    pub const fn as_struct(&self) -> Option<&Fields> {
        if let Self::Struct(fields) = self { Some(fields) } else { None }
    }

    #[must_use]
    pub fn as_list(&self) -> Option<&[Self]> {
        if let Self::List(values) = self { Some(values) } else { None }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Name of the method.
    pub name: String,
    /// Whether it is a call or an answer.
    pub kind: MessageKind,
    /// Number that the answer repeats.
    pub seq: i32,
    /// Whether it has a strict header; its answer gets the same kind.
    pub strict: bool,
    /// Arguments of a call. Of an answer, field 0 is the result.
    pub args: Fields,
}

/// Types of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    Call = 1,
    Reply = 2,
    Exception = 3,
    Oneway = 4,
}

/// Why a message cannot be read. The beginning of the next one is not known then.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The connection failed, or ended within a message.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It, or a length in it, exceeds the limit.
    #[error("a message of more than {0} bytes")]
    TooLong(usize),
    /// It is nested deeper than [`DEPTH_MAX`].
    #[error("a message nested deeper than {DEPTH_MAX}")]
    TooDeep,
    /// It does not follow the protocol.
    #[error("malformed message: {0}")]
    Malformed(String),
}

/// Reads one message of a client; `None` where the stream ends before it.
///
/// # Errors
/// See [`WireError`].
pub fn read_message(stream: &mut dyn Read) -> Result<Option<Message>, WireError> {
    read_of(stream, &[MessageKind::Call, MessageKind::Oneway], MESSAGE_LEN_MAX)
}

/// Reads one answer of a server; `None` where the stream ends before it.
///
/// # Errors
/// See [`WireError`].
pub fn read_answer(stream: &mut dyn Read) -> Result<Option<Message>, WireError> {
    read_of(stream, &[MessageKind::Reply, MessageKind::Exception], ANSWER_LEN_MAX)
}

/// Reads one message of one of `kinds`, of at most `len_max` bytes.
fn read_of(
    stream: &mut dyn Read,
    kinds: &[MessageKind],
    len_max: usize,
) -> Result<Option<Message>, WireError> {
    // One byte alone: only here the end of the stream is no error.
    let mut first = [0];
    loop {
        match stream.read(&mut first) {
            Ok(0) => return Ok(None),
            Ok(_) => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    let mut input = Input { stream, left: len_max - 1, len_max };
    let [second, third, fourth] = input.take()?;
    let word = u32::from_be_bytes([first[0], second, third, fourth]);
    // The sign bit tells the headers apart: an older one begins with the length of the name, which is not negative.
    let strict = word & (1 << 31) != 0;
    let (name, kind) = if strict {
        if word & VERSION_MASK != VERSION {
            return Err(WireError::Malformed(format!("no version {:#x}", word >> 16)));
        }
        let [.., kind] = word.to_be_bytes();
        (input.binary()?, kind)
    } else {
        // `claim` in `bytes` bounds the length, so a wrong first word cannot allocate more than a message.
        let name = input.bytes(word as usize)?;
        (name, input.byte()?)
    };
    let kind =
        kinds.iter().copied().find(|of| *of as u8 == kind).ok_or_else(|| {
            WireError::Malformed(format!("no message of type {kind} comes this way"))
        })?;
    // A name that is no text is no method either; the exception shows it as far as it can be read.
    let name = String::from_utf8_lossy(&name).into_owned();
    let seq = i32::from_be_bytes(input.take()?);
    Ok(Some(Message { name, kind, seq, strict, args: input.fields(0)? }))
}

/// The bytes of one message.
struct Input<'a> {
    stream: &'a mut dyn Read,
    /// Bytes that it may still have, and its limit.
    left: usize,
    len_max: usize,
}

impl Input<'_> {
    fn claim(&mut self, count: usize) -> Result<(), WireError> {
        // Claimed before it is read or allocated: a length of the other side is never trusted.
        self.left = self.left.checked_sub(count).ok_or(WireError::TooLong(self.len_max))?;
        Ok(())
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        self.claim(N)?;
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn byte(&mut self) -> Result<u8, WireError> {
        let [byte] = self.take()?;
        Ok(byte)
    }

    fn bytes(&mut self, count: usize) -> Result<Vec<u8>, WireError> {
        self.claim(count)?;
        let mut bytes = vec![0; count];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Reads a length, or a number of elements.
    fn count(&mut self) -> Result<usize, WireError> {
        let count = i32::from_be_bytes(self.take()?);
        usize::try_from(count).map_err(|_| WireError::Malformed(format!("a length of {count}")))
    }

    fn binary(&mut self) -> Result<Vec<u8>, WireError> {
        let count = self.count()?;
        self.bytes(count)
    }

    fn fields(&mut self, depth: usize) -> Result<Fields, WireError> {
        if depth >= DEPTH_MAX {
            return Err(WireError::TooDeep);
        }
        let mut fields = Fields::new();
        loop {
            let kind = Kind::read(self.byte()?)?;
            if kind == Kind::Stop {
                return Ok(fields);
            }
            let number = i16::from_be_bytes(self.take()?);
            let value = self.value(kind, depth + 1)?;
            fields.insert(number, value);
        }
    }

    fn elements(&mut self, depth: usize) -> Result<Vec<Value>, WireError> {
        let kind = Kind::read(self.byte()?)?;
        let count = self.count()?;
        // Every element has at least one byte, except those of type stop, which are refused: else a short message could
        // claim any number.
        if count > self.left || kind == Kind::Stop && count > 0 {
            return Err(WireError::TooLong(self.len_max));
        }
        (0..count).map(|_| self.value(kind, depth + 1)).collect()
    }

    fn value(&mut self, kind: Kind, depth: usize) -> Result<Value, WireError> {
        if depth >= DEPTH_MAX {
            return Err(WireError::TooDeep);
        }
        Ok(match kind {
            Kind::Bool => Value::Bool(self.byte()? != 0),
            Kind::I8 => Value::Int(i8::from_be_bytes(self.take()?).into()),
            Kind::I16 => Value::Int(i16::from_be_bytes(self.take()?).into()),
            Kind::I32 => Value::Int(i32::from_be_bytes(self.take()?).into()),
            Kind::I64 => Value::Int(i64::from_be_bytes(self.take()?)),
            Kind::Binary => Value::Binary(self.binary()?),
            Kind::Struct => Value::Struct(self.fields(depth)?),
            Kind::List | Kind::Set => Value::List(self.elements(depth)?),
            Kind::Double => {
                self.take::<8>()?;
                Value::Other
            }
            Kind::Uuid => {
                self.take::<16>()?;
                Value::Other
            }
            Kind::Map => {
                let (of, to) = (Kind::read(self.byte()?)?, Kind::read(self.byte()?)?);
                let count = self.count()?;
                // As for lists: an entry has at least one byte.
                if count > self.left || count > 0 && (of == Kind::Stop || to == Kind::Stop) {
                    return Err(WireError::TooLong(self.len_max));
                }
                for _ in 0..count {
                    self.value(of, depth + 1)?;
                    self.value(to, depth + 1)?;
                }
                Value::Other
            }
            Kind::Stop => return Err(WireError::Malformed("a value of no type".to_owned())),
        })
    }
}

/// An answer or call that is being written.
#[derive(Debug, Default)]
pub struct Output(Vec<u8>);

impl Output {
    /// Begins an answer of `kind` to `message`. The fields of its struct follow, then [`Self::stop`].
    #[must_use]
    pub fn answer(message: &Message, kind: MessageKind) -> Self {
        let mut out = Self::default();
        // Older clients read only the header that they send.
        if message.strict {
            out.0.extend((VERSION | kind as u32).to_be_bytes());
            out.binary(message.name.as_bytes());
        } else {
            out.binary(message.name.as_bytes());
            out.0.push(kind as u8);
        }
        out.i32(message.seq);
        out
    }

    /// Begins a call. The fields of its arguments follow, then [`Self::stop`].
    #[must_use]
    pub fn call(name: &str, seq: i32) -> Self {
        let mut out = Self::default();
        out.0.extend((VERSION | MessageKind::Call as u32).to_be_bytes());
        out.binary(name.as_bytes());
        out.i32(seq);
        out
    }

    /// The whole answer to a call that cannot be carried out: an application exception.
    #[must_use]
    pub fn exception(message: &Message, code: i32, text: &str) -> Vec<u8> {
        let mut out = Self::answer(message, MessageKind::Exception);
        out.field(Kind::Binary, 1).binary(text.as_bytes());
        out.field(Kind::I32, 2).i32(code);
        out.stop();
        out.0
    }

    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// Begins a field; its value follows.
    pub fn field(&mut self, kind: Kind, number: i16) -> &mut Self {
        self.0.push(kind as u8);
        self.0.extend(number.to_be_bytes());
        self
    }

    pub fn stop(&mut self) {
        self.0.push(Kind::Stop as u8);
    }

    /// Begins a list; its elements follow.
    pub fn list(&mut self, of: Kind, count: usize) -> &mut Self {
        self.0.push(of as u8);
        self.i32(i32::try_from(count).unwrap_or(i32::MAX));
        self
    }

    pub fn byte(&mut self, value: u8) {
        self.0.push(value);
    }

    pub fn i32(&mut self, value: i32) {
        self.0.extend(value.to_be_bytes());
    }

    pub fn i64(&mut self, value: i64) {
        self.0.extend(value.to_be_bytes());
    }

    /// Writes the length and the bytes.
    pub fn binary(&mut self, bytes: &[u8]) {
        self.i32(i32::try_from(bytes.len()).unwrap_or(i32::MAX));
        self.0.extend_from_slice(bytes);
    }
}

/// Codes of application exceptions.
pub mod exception {
    pub const UNKNOWN_METHOD: i32 = 1;
    /// The method failed.
    pub const INTERNAL_ERROR: i32 = 6;
    /// The arguments are not those of the method.
    pub const PROTOCOL_ERROR: i32 = 7;
}
