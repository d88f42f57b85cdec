//! Names that users see and that have been changed: the old one goes on working beside the new for one release.
//!
//! Shape: [`TABLE`] is every such name; [`with_old`] adds the old keys to JSON that is written, [`accept`] takes them in
//! JSON that is read, [`drop_old`] leaves out what [`with_old`] added.
//! Units: none.
//! Source: docs/renamed.md.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use serde_json::{Map, Value};

use super::Refused;

/// Where a name is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// What `weft bench --json` writes.
    Bench,
    /// What `weft gen --json` writes.
    Gen,
    /// The report of `weft run --record --json`.
    RunReport,
    /// The report of `weft traffic --json`.
    Traffic,
    /// A request to a running switch.
    SwitchRequest,
    /// A report of a running switch on its ports.
    PortReport,
    /// A traced frame of a running switch.
    TracedFrame,
    /// An answer of the fabric manager.
    FmAnswer,
    /// An answer of a CXL endpoint.
    EndpointAnswer,
    /// A metric.
    Metric,
    /// A section of the configuration.
    Section,
}

impl Place {
    /// The name of the place in messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bench => "`weft bench --json`",
            Self::Gen => "`weft gen --json`",
            Self::RunReport => "`weft run --record --json`",
            Self::Traffic => "`weft traffic --json`",
            Self::SwitchRequest => "management request `trace`",
            Self::PortReport => "answer to `show ports` and `show all`",
            Self::TracedFrame => "answer to `trace`",
            Self::FmAnswer => "fabric manager's answer to `cdat` and `status`",
            Self::EndpointAnswer => "endpoint's `load_status`, `load_stop` and `status`",
            Self::Metric => "metric",
            Self::Section => "section of the configuration",
        }
    }
}

/// A name that has been changed.
#[derive(Debug)]
pub struct Renamed {
    /// Where it is seen.
    pub place: Place,
    /// What it was called.
    pub old: &'static str,
    /// What it is called.
    pub new: &'static str,
    /// First version with the new name.
    pub since: &'static str,
    /// First version without the old name.
    pub gone: &'static str,
    warned: AtomicBool,
}

const fn row(place: Place, old: &'static str, new: &'static str) -> Renamed {
    Renamed { place, old, new, since: "0.1.0", gone: "0.2.0", warned: AtomicBool::new(false) }
}

/// Every name that has two spellings now. The page docs/renamed.md has the same rows.
pub static TABLE: [Renamed; 15] = [
    row(Place::Bench, "frame_octets_with_fcs", "frame_bytes_with_fcs"),
    row(Place::Bench, "twelve_octets", "twelve_bytes"),
    row(Place::Gen, "octets", "bytes"),
    row(Place::RunReport, "octets", "bytes"),
    row(Place::Traffic, "octets", "bytes"),
    row(Place::SwitchRequest, "octets", "bytes"),
    row(Place::PortReport, "trouble", "last_error"),
    row(Place::TracedFrame, "octets", "bytes"),
    row(Place::FmAnswer, "octets", "bytes"),
    row(Place::FmAnswer, "trouble", "errors"),
    row(Place::EndpointAnswer, "octets", "bytes"),
    row(Place::EndpointAnswer, "octets_read", "bytes_read"),
    row(Place::EndpointAnswer, "octets_written", "bytes_written"),
    row(Place::Metric, "weft_pfc_asking", "weft_pfc_xoff_active"),
    row(Place::Section, "endpoint", "traffic"),
];

impl Renamed {
    /// What to tell a user who wrote the old name; nothing if this process has told it before.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        (!self.warned.swap(true, Ordering::Relaxed)).then(|| {
            let Self { place, old, new, gone, .. } = self;
            format!("{}: {old} is called {new} now, and weft {gone} refuses it", place.name())
        })
    }
}

/// The names of `place` that have been changed.
pub fn at(place: Place) -> impl Iterator<Item = &'static Renamed> + Clone {
    TABLE.iter().filter(move |row| row.place == place)
}

/// What `name` was called at `place`, if it has been changed.
#[must_use]
pub fn old_name(place: Place, new: &str) -> Option<&'static str> {
    at(place).find(|row| row.new == new).map(|row| row.old)
}

/// The change of `name`, an old one, at `place`, if there is one.
#[must_use]
pub fn by_old_name(place: Place, old: &str) -> Option<&'static Renamed> {
    at(place).find(|row| row.old == old)
}

/// Writes `value` as at `place`: with the old keys beside the new.
///
/// # Errors
/// It has no form in JSON.
pub fn with_old(place: Place, value: &impl Serialize) -> Result<Value, serde_json::Error> {
    let mut value = serde_json::to_value(value)?;
    for_each_object(&mut value, &mut |object| {
        for Renamed { old, new, .. } in at(place) {
            if let Some(field) = object.get(*new).cloned() {
                object.entry(*old).or_insert(field);
            }
        }
    });
    Ok(value)
}

/// Leaves out of `value`, which was written at `place`, each old key that has the new one beside it.
pub fn drop_old(place: Place, value: &mut Value) {
    for_each_object(value, &mut |object| {
        for Renamed { old, new, .. } in at(place) {
            if object.contains_key(*new) {
                object.remove(*old);
            }
        }
    });
}

/// Gives old keys of `value`, which is read at `place`, their new names; returns what was found, for a warning.
///
/// Only keys of the outermost object: what is further in is what a user wrote about other things.
///
/// # Errors
/// The old and the new key are both there.
pub fn accept(place: Place, value: &mut Value) -> Result<Vec<&'static Renamed>, Refused> {
    let mut found = Vec::new();
    let Value::Object(object) = value else { return Ok(found) };
    for row in at(place) {
        let Some(field) = object.remove(row.old) else { continue };
        if object.insert(row.new.to_owned(), field).is_some() {
            let text = format!("expected {} or its old name {}, found both", row.new, row.old);
            return Err(Refused::bad_request(text));
        }
        found.push(row);
    }
    Ok(found)
}

fn for_each_object(value: &mut Value, change: &mut dyn FnMut(&mut Map<String, Value>)) {
    match value {
        Value::Object(object) => {
            object.values_mut().for_each(|inner| for_each_object(inner, change));
            change(object);
        }
        Value::Array(items) => items.iter_mut().for_each(|item| for_each_object(item, change)),
        _ => {}
    }
}

/// The table as Markdown, a row a name.
#[must_use]
pub fn markdown() -> String {
    let mut rows = BTreeSet::new();
    for Renamed { place, old, new, since, gone, .. } in &TABLE {
        rows.insert(format!("| {} | `{old}` | `{new}` | {since} | {gone} |\n", place.name()));
    }
    rows.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_written_has_both_names_at_any_depth_and_only_where_they_were_changed() {
        let value = json!({ "streams": [{ "bytes": 7, "frames": 1 }], "bytes": { "bytes": 2 } });
        let both = with_old(Place::Traffic, &value).unwrap();
        let inner = json!({ "bytes": 2, "octets": 2 });
        let want = json!({
            "streams": [{ "bytes": 7, "octets": 7, "frames": 1 }], "bytes": inner, "octets": inner
        });
        assert_eq!(both, want);
        assert_eq!(with_old(Place::Bench, &value).unwrap(), value, "another place");
        let mut again = both;
        drop_old(Place::Traffic, &mut again);
        assert_eq!(again, value);
        let mut old = json!({ "octets": "00" });
        drop_old(Place::FmAnswer, &mut old);
        assert_eq!(old, json!({ "octets": "00" }), "of a server that knows no other name");
    }

    #[test]
    fn what_is_read_may_have_either_name_but_not_both() {
        #[rustfmt::skip] // columns: read, taken as, old names found
        let cases = [
            (json!({ "cmd": "trace", "octets": true }), json!({ "cmd": "trace", "bytes": true }), 1),
            (json!({ "cmd": "trace", "bytes": true }), json!({ "cmd": "trace", "bytes": true }), 0),
            (json!({ "a": { "octets": 1 } }), json!({ "a": { "octets": 1 } }), 0),
            (json!([1]), json!([1]), 0), (json!(null), json!(null), 0),
        ];
        for (mut value, want, count) in cases {
            assert_eq!(accept(Place::SwitchRequest, &mut value).unwrap().len(), count, "{want}");
            assert_eq!(value, want);
        }
        let mut both = json!({ "cmd": "trace", "octets": true, "bytes": false });
        let refused = accept(Place::SwitchRequest, &mut both).unwrap_err();
        assert_eq!(refused.code, "bad_request");
        assert!(refused.message.contains("found both"), "{refused}");
    }

    #[test]
    fn a_name_is_warned_about_once() {
        let row = row(Place::Metric, "a", "b");
        let text = row.warning().unwrap();
        assert_eq!(text, "metric: a is called b now, and weft 0.2.0 refuses it");
        assert_eq!(row.warning(), None);
    }

    #[test]
    fn the_page_has_every_row_and_no_name_is_old_and_new_at_one_place() {
        let path = format!("{}/../{}", env!("CARGO_MANIFEST_DIR"), "docs/renamed.md");
        let page = std::fs::read_to_string(path).unwrap();
        let rows: String = page
            .lines()
            .filter(|line| line.starts_with("| ") && !line.starts_with("| where"))
            .flat_map(|line| [line, "\n"])
            .collect();
        assert_eq!(rows, markdown(), "docs/renamed.md");
        for row in &TABLE {
            assert!(old_name(row.place, row.old).is_none(), "{row:?}");
            assert_eq!(at(row.place).filter(|other| other.old == row.old).count(), 1, "{row:?}");
            assert_eq!(at(row.place).filter(|other| other.new == row.new).count(), 1, "{row:?}");
            assert_eq!(by_old_name(row.place, row.old).map(|found| found.new), Some(row.new));
        }
    }
}
