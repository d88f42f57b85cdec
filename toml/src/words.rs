//! Words of messages: suggestions for unknown names, and values as they were found.

use toml::de::DeValue;

/// The name of `names` that `given` was most likely meant to be.
#[must_use]
pub fn nearest<'a>(given: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    const LIKE: f64 = 0.8; // Jaro-Winkler: "dt_alfa" and "dt_alpha" have 0.95
    const GIVEN_LEN_MAX: usize = 64;
    // The comparison takes time by the product of both lengths, and a key of a hostile file may be a megabyte.
    if given.len() > GIVEN_LEN_MAX {
        return None;
    }
    names
        .map(|name| (strsim::jaro_winkler(given, name), name))
        .filter(|(like, _)| *like >= LIKE)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}

/// The message for an unknown `given`, a key or section: the name that was probably meant, or all of `names`.
#[must_use]
pub fn unknown<'a>(
    what: &str,
    given: &str,
    names: impl Iterator<Item = &'a str> + Clone,
) -> String {
    const GIVEN_MAX: usize = 60;
    let shown: String = given.chars().take(GIVEN_MAX).collect();
    if let Some(name) = nearest(given, names.clone()) {
        format!("unknown {what} {shown:?}, did you mean {name:?}?")
    } else {
        let all: Vec<_> = names.collect();
        format!("unknown {what} {shown:?}, expected one of {}", all.join(", "))
    }
}

/// Joins items as in `a`, `a or b`, `a, b or c`.
#[must_use]
pub fn choice(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.collect();
    match items.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        None => String::new(),
    }
}

/// `raw` for a message: the start of its text, or its type.
#[must_use]
pub fn describe(raw: &DeValue<'_>) -> String {
    match raw {
        DeValue::Integer(int) => shown(int.to_string()),
        DeValue::Float(float) => shown(float.to_string()),
        DeValue::Boolean(bool) => bool.to_string(),
        DeValue::String(text) => shown(format!("{text:?}")),
        DeValue::Array(items) => format!("a list of {}", items.len()),
        DeValue::Table(_) => "a table".to_owned(),
        DeValue::Datetime(_) => "a date or time".to_owned(),
    }
}

/// The start of a text that may be long.
#[must_use]
pub fn shown(text: String) -> String {
    const SHOWN_MAX: usize = 60;
    if text.chars().count() <= SHOWN_MAX {
        return text;
    }
    // By characters, as a cut at a byte could fall inside one.
    let start: String = text.chars().take(SHOWN_MAX).collect();
    format!("{start}...")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_suggested_and_far_ones_not() {
        let names = ["dt_alpha", "cell_bytes", "burst"];
        #[rustfmt::skip] // columns: given, want
        let cases = [
            ("dt_alfa", Some("dt_alpha")), ("cellbytes", Some("cell_bytes")), ("bursts", Some("burst")),
            ("zzz", None), ("", None),
        ];
        for (given, want) in cases {
            assert_eq!(nearest(given, names.into_iter()), want, "{given}");
        }
        assert_eq!(nearest(&"dt_alpha".repeat(1000), names.into_iter()), None);
    }
}
