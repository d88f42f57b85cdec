//! Results of methods, and how they are written: an [`Answer`] as field 0 of an answer's struct.
//!
//! Source: docs/sai.md "On the wire".

use super::thrift::{Kind, Output};

/// Value of an attribute.
pub(super) enum Attribute {
    U32(i32),
    Objects(Vec<i64>),
}

/// Result of a method.
pub(super) enum Answer {
    Status(i32),
    Id(i64),
    Counts(Vec<i64>),
    One(i32, Attribute),
    Many(Vec<(i32, Attribute)>),
}

impl Answer {
    /// Writes it as field 0 of the answer's struct.
    pub fn write(&self, out: &mut Output) {
        match self {
            Answer::Status(status) => out.field(Kind::I32, 0).i32(*status),
            Answer::Id(id) => out.field(Kind::I64, 0).i64(*id),
            Answer::Counts(counts) => {
                out.field(Kind::List, 0);
                write_ids(out, counts);
            }
            Answer::One(id, value) => {
                out.field(Kind::Struct, 0);
                write_attribute(out, *id, value);
            }
            Answer::Many(attributes) => {
                out.field(Kind::Struct, 0);
                out.field(Kind::List, 1).list(Kind::Struct, attributes.len());
                for (id, value) in attributes {
                    write_attribute(out, *id, value);
                }
                out.field(Kind::I32, 2).i32(i32::try_from(attributes.len()).unwrap_or(i32::MAX));
                // Ends the list of attributes; the struct of the answer is ended by the caller.
                out.stop();
            }
        }
    }
}

fn write_ids(out: &mut Output, ids: &[i64]) {
    out.list(Kind::I64, ids.len());
    for &id in ids {
        out.i64(id);
    }
}

fn write_attribute(out: &mut Output, id: i32, value: &Attribute) {
    out.field(Kind::I32, 1).i32(id);
    out.field(Kind::Struct, 2);
    match value {
        // Members of SAI's union of attribute values: 7 is `u32`, 16 a list of objects.
        Attribute::U32(value) => out.field(Kind::I32, 7).i32(*value),
        Attribute::Objects(ids) => {
            out.field(Kind::Struct, 16);
            out.field(Kind::I32, 1).i32(i32::try_from(ids.len()).unwrap_or(i32::MAX));
            out.field(Kind::List, 2);
            write_ids(out, ids);
            out.stop();
        }
    }
    out.stop();
    out.stop();
}
