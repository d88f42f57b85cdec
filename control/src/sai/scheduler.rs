//! Scheduler profiles: with a profile without a limit a port sends; with one whose rate is next to nothing it is held.
//!
//! [`create`] turns the arguments of a call into the id of a profile, and [`sends`] the id into the state of a port.
//! SAI's rate is bytes or frames a second; 0 means no limit.
//! Source: docs/sai.md; Switch Abstraction Interface (SAI) 1.x, saischeduler.h.

use super::args::{Fault, arg, attribute_in};
use super::objects::{NULL, Object, attribute};
use super::thrift::{Fields, Value};

/// The profile for the requested rate. The switch's port rates come from its configuration, so only two rates are
/// known: 0, and 1, at which not even one frame a minute would leave. For any other it is [`NULL`].
///
/// # Errors
/// The arguments are no list of attributes.
pub(super) fn create(args: &Fields) -> Result<i64, Fault> {
    let mut rate = Some(0);
    for value in arg(args, 1, "attributes", Value::as_list)? {
        let (id, value) = attribute_in(value)?;
        if id == attribute::SCHEDULER_MAX_BANDWIDTH_RATE {
            rate = value.get(&9).and_then(Value::as_int);
        }
    }
    Ok(match rate {
        Some(0) => Object::Scheduler(true).id(),
        Some(1) => Object::Scheduler(false).id(),
        _ => NULL,
    })
}

/// Whether a port sends with this profile; [`NULL`] is no profile, with which it sends. `None` if there is no such
/// profile.
pub(super) fn sends(profile: i64) -> Option<bool> {
    match Object::of(profile) {
        Some(Object::Scheduler(sends)) => Some(sends),
        _ => (profile == NULL).then_some(true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(members: impl IntoIterator<Item = (i16, Value)>) -> Value {
        Value::Struct(members.into_iter().collect())
    }

    #[test]
    fn there_are_profiles_of_two_rates() {
        let asked = |field: i16, rate: Value| {
            let rate = fields([(1, Value::Int(5)), (2, fields([(field, rate)]))]);
            let kind = fields([(1, Value::Int(0)), (2, fields([(8, Value::Int(1))]))]);
            Fields::from_iter([(1, Value::List(vec![rate, kind]))])
        };
        let of = |args: &Fields| create(args).map_err(|Fault(code, _)| code);
        assert_eq!(of(&asked(9, Value::Int(0))), Ok(Object::Scheduler(true).id()));
        assert_eq!(of(&asked(9, Value::Int(1))), Ok(Object::Scheduler(false).id()));
        for rate in [2, -1, i64::MAX] {
            assert_eq!(of(&asked(9, Value::Int(rate))), Ok(NULL), "{rate}");
        }
        assert_eq!(of(&asked(7, Value::Int(1))), Ok(NULL), "not a u64");
        assert_eq!(of(&Fields::from_iter([(1, Value::List(vec![]))])), Ok(sends_id()));
        assert_eq!(of(&Fields::new()), Err(7));
    }

    fn sends_id() -> i64 {
        Object::Scheduler(true).id()
    }

    #[test]
    fn no_profile_is_one_without_a_limit() {
        assert_eq!(sends(NULL), Some(true));
        assert_eq!(sends(sends_id()), Some(true));
        assert_eq!(sends(Object::Scheduler(false).id()), Some(false));
        for id in [Object::Port(0).id(), sends_id() + 2, -1] {
            assert_eq!(sends(id), None, "{id:#x}");
        }
    }
}
