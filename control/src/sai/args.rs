//! Arguments of calls, read by number and type.
//!
//! Functions from [`Fields`] to values; a [`Fault`] becomes an application exception.
//!
//! Source: docs/sai.md "Methods".

use weft_config::value::parse_addr;
use weft_parsers::AddrKey;

use super::objects::Object;
use super::thrift::{Fields, Value, exception};

/// Reason for an application exception: its code, and a text for people.
pub(super) struct Fault(pub(super) i32, pub(super) String);

/// Argument `number`, read by `read`; else the error says that `what` was expected.
pub(super) fn arg<'a, T>(
    args: &'a Fields,
    number: i16,
    what: &str,
    read: impl FnOnce(&'a Value) -> Option<T>,
) -> Result<T, Fault> {
    args.get(&number).and_then(read).ok_or_else(|| {
        Fault(exception::PROTOCOL_ERROR, format!("expected {what} as argument {number}"))
    })
}

/// The object that a method is about, argument 1; `None` if there can be no such object.
pub(super) fn object(args: &Fields) -> Result<Option<Object>, Fault> {
    arg(args, 1, "an object id", Value::as_int).map(Object::of)
}

/// Numbers of counters, argument 2.
pub(super) fn counter_ids(args: &Fields) -> Result<Vec<i32>, Fault> {
    let values = arg(args, 2, "a list of counters", Value::as_list)?;
    let id = |value: &Value| value.as_int().and_then(|id| i32::try_from(id).ok());
    values
        .iter()
        .map(id)
        .collect::<Option<_>>()
        .ok_or_else(|| Fault(exception::PROTOCOL_ERROR, "expected numbers as counters".to_owned()))
}

/// Number and value of an attribute, argument `number`.
pub(super) fn attribute_of(args: &Fields, number: i16) -> Result<(i32, &Fields), Fault> {
    attribute_in(arg(args, number, "an attribute", Some)?)
}

pub(super) fn attribute_in(value: &Value) -> Result<(i32, &Fields), Fault> {
    // Field 1 is the number; field 2 is a union, of which the method reads the member that it expects.
    let read = || {
        let fields = value.as_struct()?;
        let id = fields.get(&1)?.as_int()?;
        Some((i32::try_from(id).ok()?, fields.get(&2)?.as_struct()?))
    };
    read().ok_or_else(|| Fault(exception::PROTOCOL_ERROR, "expected an attribute".to_owned()))
}

/// VLAN and address of an FDB entry, argument 1. VLAN 0 stands for 1.
pub(super) fn station(args: &Fields) -> Result<Option<(u16, AddrKey)>, Fault> {
    let entry = arg(args, 1, "an FDB entry", Value::as_struct)?;
    let addr = entry.get(&1).and_then(Value::as_text).and_then(parse_addr);
    let vid = entry.get(&2).and_then(Value::as_int).unwrap_or(0);
    let vid = if vid == 0 { Some(1) } else { u16::try_from(vid).ok() };
    Ok(vid.filter(|vid| (1..=4_094).contains(vid)).zip(addr))
}
