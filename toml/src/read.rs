//! Reads a document into a type by serde, and reports every mistake with its place.
//!
//! A deserializer stops at its first error. So a type is read again and again, each time without the entries (keys with
//! their values, and members of lists) that were refused before, until nothing more is found. An error that only follows
//! from such a gap is not reported: the misspelt key is unknown, and nobody needs to hear that it is missing, too.

use std::collections::BTreeMap;
use std::fmt;
use std::ptr;

use serde::de::value::StrDeserializer;
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, Expected, MapAccess, SeqAccess,
    Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;
use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

use crate::document::{Document, Findings};
use crate::problem::ConfigError;
use crate::words::{choice, describe, nearest, shown, unknown};

/// Reads `text`, which came from `file`, as a `T`.
///
/// # Errors
/// All that is wrong: errors of syntax, or keys and values that `T` refuses.
pub fn read<T: DeserializeOwned>(file: &str, text: &str) -> Result<T, ConfigError> {
    Document::parse(file, text)?.read()
}

impl<'t> Document<'t> {
    /// Reads the whole document as a `T`.
    ///
    /// # Errors
    /// All keys and values that `T` refuses.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, ConfigError> {
        let root = self.root_value();
        let mut found = self.findings();
        match read_without(&root, Refused::new(), &mut found) {
            Some(value) if found.is_empty() => Ok(value),
            _ => Err(found.into_error()),
        }
    }

    /// Checks each key of the document as if it stood alone. A `T` has the keys `names`, all with defaults.
    ///
    /// For types with `#[serde(flatten)]`: serde takes any key for them, and loses the places of values.
    ///
    /// # Errors
    /// All keys and values that `T` refuses.
    pub fn check_keys<T: DeserializeOwned>(&self, names: &[&str]) -> Result<(), ConfigError> {
        let mut all = self.findings();
        for (key, value) in self.root() {
            let name: &str = key.get_ref();
            if !names.contains(&name) {
                let message = unknown(noun(value), name, names.iter().copied());
                all.add(key.span().start, String::new(), message);
                continue;
            }
            let alone = DeTable::from_iter([(key.clone(), value.clone())]);
            // Errors that have lost their place are placed at the value: it is all that the table has.
            let alone = Spanned::new(value.span(), DeValue::Table(alone));
            let mut found = self.findings();
            let _ = read_without::<T>(&alone, Refused::new(), &mut found);
            all.extend(found, name);
        }
        if all.is_empty() { Ok(()) } else { Err(all.into_error()) }
    }

    fn root_value(&self) -> Spanned<DeValue<'t>> {
        Spanned::new(0..0, DeValue::Table(self.root().clone()))
    }
}

/// Entries that were refused, by [`id`]; for an unknown key, also the key that was probably meant.
type Refused = BTreeMap<usize, Option<&'static str>>;

/// What tells an entry from all others of its document while that is read: its address.
fn id(entry: &Spanned<DeValue<'_>>) -> usize {
    ptr::from_ref(entry).addr()
}

/// Reads a `T` without the entries that are refused, of which there may be more at each turn. `None` if there is no `T`
/// without them.
fn read_without<T: DeserializeOwned>(
    root: &Spanned<DeValue<'_>>,
    mut refused: Refused,
    found: &mut Findings<'_>,
) -> Option<T> {
    while !found.is_full() {
        let node = Node { raw: root, refused: &refused };
        let error = match T::deserialize(node) {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        let spot = error.spot.unwrap_or_else(|| node.spot(&error.reason));
        if !spot.follows {
            let keys: Vec<&str> = error.keys.iter().rev().map(String::as_str).collect();
            found.add(spot.at, keys.join("."), error.reason.to_string());
        }
        // An entry is refused once, so the loop ends with the last of them.
        let is_root = spot.entry == id(root);
        if is_root || refused.insert(spot.entry, error.reason.meant()).is_some() {
            return None;
        }
    }
    None
}

/// Why a type refuses an entry.
#[derive(Debug)]
enum Reason {
    /// The type has no such key, but these.
    Unknown { noun: &'static str, key: String, names: &'static [&'static str] },
    /// The type needs this key.
    Missing(&'static str),
    /// A wrong value.
    Value(String),
}

impl Reason {
    /// The key that an unknown one was probably meant to be.
    fn meant(&self) -> Option<&'static str> {
        match self {
            Self::Unknown { key, names, .. } => nearest(key, names.iter().copied()),
            _ => None,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { noun, key, names } => {
                f.write_str(&unknown(noun, key, names.iter().copied()))
            }
            Self::Missing(key) => write!(f, "expected a key {key:?}, found none"),
            Self::Value(message) => f.write_str(message),
        }
    }
}

/// Where an error is.
#[derive(Debug)]
struct Spot {
    /// Byte in the text.
    at: usize,
    /// The entry to go on without.
    entry: usize,
    /// Whether the error may only follow from entries that were left out.
    follows: bool,
}

/// An error on its way up from the entry that it is in.
#[derive(Debug)]
struct Refusal {
    reason: Reason,
    /// Set by the innermost node that it passes.
    spot: Option<Spot>,
    /// Keys that lead to it, the innermost first.
    keys: Vec<String>,
}

impl Refusal {
    const fn new(reason: Reason) -> Self {
        Self { reason, spot: None, keys: Vec::new() }
    }

    fn expected(what: &dyn Expected, found: &str) -> Self {
        Self::new(Reason::Value(format!("expected {}, found {found}", expectation(what))))
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl std::error::Error for Refusal {}

impl de::Error for Refusal {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(Reason::Value(message.to_string()))
    }

    fn invalid_type(found: Unexpected<'_>, what: &dyn Expected) -> Self {
        Self::expected(what, &unexpected(found))
    }

    fn invalid_value(found: Unexpected<'_>, what: &dyn Expected) -> Self {
        Self::expected(what, &unexpected(found))
    }

    fn invalid_length(len: usize, what: &dyn Expected) -> Self {
        Self::expected(what, &format!("a list of {len}"))
    }

    fn unknown_variant(word: &str, words: &'static [&'static str]) -> Self {
        let near = nearest(word, words.iter().copied());
        let near = near.map(|near| format!(", did you mean {near:?}?")).unwrap_or_default();
        let found = shown(format!("{word:?}"));
        Self::new(Reason::Value(format!("expected {}, found {found}{near}", quoted(words))))
    }

    fn unknown_field(key: &str, names: &'static [&'static str]) -> Self {
        Self::new(Reason::Unknown { noun: "key", key: key.to_owned(), names })
    }

    fn missing_field(key: &'static str) -> Self {
        Self::new(Reason::Missing(key))
    }
}

fn quoted(words: &[&str]) -> String {
    choice(words.iter().map(|word| format!("{word:?}")))
}

/// What serde's own visitors expect, in the words of our messages; those of other visitors stay.
fn expectation(what: &dyn Expected) -> String {
    let bounds = |max: u64| format!("a whole number 0..={max}");
    match what.to_string().as_str() {
        "u8" => bounds(u8::MAX.into()),
        "u16" => bounds(u16::MAX.into()),
        "u32" => bounds(u32::MAX.into()),
        "u64" | "usize" => "a whole number, 0 or above".to_owned(),
        "i64" => "a whole number".to_owned(),
        "f64" => "a number".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a string" => "text".to_owned(),
        "path string" => "a path, as text".to_owned(),
        "a sequence" => "a list".to_owned(),
        other if other.starts_with("struct ") => "a table".to_owned(),
        other => other.to_owned(),
    }
}

fn unexpected(found: Unexpected<'_>) -> String {
    match found {
        Unexpected::Bool(bool) => bool.to_string(),
        Unexpected::Unsigned(int) => int.to_string(),
        Unexpected::Signed(int) => int.to_string(),
        Unexpected::Float(float) => float.to_string(),
        Unexpected::Str(text) => shown(format!("{text:?}")),
        Unexpected::Seq => "a list".to_owned(),
        Unexpected::Map => "a table".to_owned(),
        other => other.to_string(),
    }
}

/// A key of `value`, as messages name it: keys of tables are sections.
fn noun(value: &Spanned<DeValue<'_>>) -> &'static str {
    let is_table = |value: &Spanned<DeValue<'_>>| matches!(value.get_ref(), DeValue::Table(_));
    match value.get_ref() {
        DeValue::Table(_) => "section",
        DeValue::Array(items) if items.iter().next().is_some_and(is_table) => "section",
        _ => "key",
    }
}

/// A value of the document, without the entries that are refused.
#[derive(Clone, Copy)]
struct Node<'a, 't> {
    raw: &'a Spanned<DeValue<'t>>,
    refused: &'a Refused,
}

impl Node<'_, '_> {
    /// Reads the value by `seed`; an error that has no place further down has it here.
    fn read<'de, S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Refusal> {
        seed.deserialize(self).map_err(|mut error| {
            if error.spot.is_none() {
                error.spot = Some(self.spot(&error.reason));
            }
            error
        })
    }

    fn spot(self, reason: &Reason) -> Spot {
        let follows = match (reason, self.raw.get_ref()) {
            (Reason::Missing(key), DeValue::Table(table)) => self.has_gap_for(table, key),
            _ => self.has_gaps(self.raw),
        };
        Spot { at: self.raw.span().start, entry: id(self.raw), follows }
    }

    /// Whether `key` was refused, or an unknown key that was probably meant to be it.
    fn has_gap_for(self, table: &DeTable<'_>, key: &str) -> bool {
        table.iter().any(|(name, value)| match self.refused.get(&id(value)) {
            Some(meant) => name.get_ref() == key || *meant == Some(key),
            None => false,
        })
    }

    fn has_gaps(self, value: &Spanned<DeValue<'_>>) -> bool {
        let is_gap = |entry| self.refused.contains_key(&id(entry)) || self.has_gaps(entry);
        match value.get_ref() {
            DeValue::Array(items) => items.iter().any(is_gap),
            DeValue::Table(table) => table.iter().any(|(_, entry)| is_gap(entry)),
            _ => false,
        }
    }

    fn visit<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        match self.raw.get_ref() {
            DeValue::String(text) => visitor.visit_str(text),
            DeValue::Boolean(bool) => visitor.visit_bool(*bool),
            DeValue::Integer(int) => match (signed(int), unsigned(int)) {
                (Some(int), _) => visitor.visit_i64(int),
                (None, Some(int)) => visitor.visit_u64(int),
                (None, None) => Err(Refusal::expected(&visitor, &shown(int.to_string()))),
            },
            DeValue::Float(float) => match float.as_str().parse() {
                Ok(float) => visitor.visit_f64(float),
                Err(_) => Err(Refusal::expected(&visitor, &shown(float.to_string()))),
            },
            DeValue::Datetime(_) => Err(Refusal::expected(&visitor, "a date or time")),
            DeValue::Array(items) => {
                visitor.visit_seq(Members { items: items.iter(), refused: self.refused })
            }
            DeValue::Table(table) => {
                let rest = table.iter();
                visitor.visit_map(Entries { rest, value: None, refused: self.refused })
            }
        }
    }
}

fn signed(int: &DeInteger<'_>) -> Option<i64> {
    i64::from_str_radix(int.as_str(), int.radix()).ok()
}

fn unsigned(int: &DeInteger<'_>) -> Option<u64> {
    u64::from_str_radix(int.as_str(), int.radix()).ok()
}

impl<'de> Deserializer<'de> for Node<'_, '_> {
    type Error = Refusal;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        self.visit(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        // TOML has no null: a key that is there has a value.
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Refusal> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        words: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refusal> {
        match self.raw.get_ref() {
            DeValue::String(word) => visitor.visit_enum(StrDeserializer::<Refusal>::new(word)),
            other => {
                let message = format!("expected {}, found {}", quoted(words), describe(other));
                Err(Refusal::new(Reason::Value(message)))
            }
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

/// The members of a list.
struct Members<'a, 't> {
    items: std::slice::Iter<'a, Spanned<DeValue<'t>>>,
    refused: &'a Refused,
}

impl<'de> SeqAccess<'de> for Members<'_, '_> {
    type Error = Refusal;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Refusal> {
        let refused = self.refused;
        let next = self.items.find(|item| !refused.contains_key(&id(item)));
        next.map(|raw| Node { raw, refused }.read(seed)).transpose()
    }
}

/// The keys and values of a table.
struct Entries<'a, 't, I> {
    rest: I,
    /// The key that was read last, and its value.
    value: Option<(&'a str, &'a Spanned<DeValue<'t>>)>,
    refused: &'a Refused,
}

impl<'de, 'a, 't: 'a, I> MapAccess<'de> for Entries<'a, 't, I>
where
    I: Iterator<Item = (&'a Spanned<std::borrow::Cow<'t, str>>, &'a Spanned<DeValue<'t>>)>,
{
    type Error = Refusal;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Refusal> {
        let refused = self.refused;
        let Some((key, value)) = self.rest.find(|(_, value)| !refused.contains_key(&id(value)))
        else {
            return Ok(None);
        };
        let name: &str = key.get_ref();
        self.value = Some((name, value));
        seed.deserialize(StrDeserializer::<Refusal>::new(name)).map(Some).map_err(|mut error| {
            if let Reason::Unknown { noun: of, .. } = &mut error.reason {
                *of = noun(value);
            }
            error.spot = Some(Spot { at: key.span().start, entry: id(value), follows: false });
            error
        })
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Refusal> {
        let Some((name, raw)) = self.value.take() else {
            return Err(de::Error::custom("expected a key before its value"));
        };
        Node { raw, refused: self.refused }.read(seed).map_err(|mut error| {
            error.keys.push(name.to_owned());
            error
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::PROBLEMS_MAX;
    use serde::Deserialize;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Fabric {
        #[serde(default)]
        about: String,
        #[serde(default, rename = "host")]
        hosts: Vec<Host>,
        #[serde(default)]
        manager: Option<Manager>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Host {
        name: String,
        #[serde(default)]
        kind: Kind,
        #[serde(default)]
        port: u8,
        #[serde(default)]
        sizes: Vec<u64>,
        #[serde(default, deserialize_with = "two")]
        ends: Option<[String; 2]>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Manager {
        serial: u64,
        #[serde(default)]
        on: bool,
    }

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    enum Kind {
        #[default]
        Memory,
        Accelerator,
    }

    fn two<'de, D: Deserializer<'de>>(from: D) -> Result<Option<[String; 2]>, D::Error> {
        let ends = Vec::<String>::deserialize(from)?;
        ends.try_into().map(Some).map_err(|_| de::Error::custom("expected two names"))
    }

    fn refusals(text: &str) -> Vec<String> {
        match read::<Fabric>("f", text) {
            Ok(_) => Vec::new(),
            Err(error) => error.0.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn good_text_is_read_as_serde_reads_it() {
        let text = "about = 'x'\nmanager.serial = 0xFFFF_FFFF_FFFF_FFFF\n[[host]]\nname = 'a'\nkind = 'accelerator'\n\
                    port = 0b11\nsizes = [1, 2]\nends = ['b', 'c']\n[[host]]\nname = 'b'\n";
        assert_eq!(read::<Fabric>("f", text).unwrap(), toml::from_str(text).unwrap());
        assert_eq!(read::<Fabric>("f", "").unwrap().hosts, []);
    }

    #[test]
    fn each_refusal_names_place_key_and_what_was_expected() {
        #[rustfmt::skip] // columns: name, text, want
        let cases: &[(&str, &str, &[&str])] = &[
            ("near key", "[[host]]\nnam = 'a'\n", &["f:2:1: host: unknown key \"nam\", did you mean \"name\"?"]),
            ("near section", "[[hots]]\nname = 'a'\n", &["f:1:3: unknown section \"hots\", did you mean \"host\"?"]),
            ("far key", "zzz = 1\n", &["f:1:1: unknown key \"zzz\", expected one of about, host, manager"]),
            ("range", "[[host]]\nname = 'a'\nport = 300\n",
             &["f:3:8: host.port: expected a whole number 0..=255, found 300"]),
            ("below 0", "[manager]\nserial = -1\n",
             &["f:2:10: manager.serial: expected a whole number, 0 or above, found -1"]),
            ("above 64 bits", "[manager]\nserial = 18446744073709551616\n",
             &["f:2:10: manager.serial: expected a whole number, 0 or above, found 18446744073709551616"]),
            ("type", "about = 1\n", &["f:1:9: about: expected text, found 1"]),
            ("date", "about = 2026-01-01\n", &["f:1:9: about: expected text, found a date or time"]),
            ("bool", "manager = { serial = 1, on = 'x' }\n",
             &["f:1:30: manager.on: expected true or false, found \"x\""]),
            ("word", "[[host]]\nname = 'a'\nkind = 'acelerator'\n",
             &["f:3:8: host.kind: expected \"memory\" or \"accelerator\", found \"acelerator\", did you mean \"accelerator\"?"]),
            ("no word", "[[host]]\nname = 'a'\nkind = 3\n",
             &["f:3:8: host.kind: expected \"memory\" or \"accelerator\", found 3"]),
            ("table for items", "[host]\nname = 'a'\n", &["f:1:1: host: expected a list, found a table"]),
            ("value for table", "manager = 5\n", &["f:1:11: manager: expected a table, found 5"]),
            ("missing", "[[host]]\nport = 1\n", &["f:1:1: host: expected a key \"name\", found none"]),
            ("custom", "[[host]]\nname = 'a'\nends = ['b']\n", &["f:3:8: host.ends: expected two names"]),
        ];
        for (name, text, want) in cases {
            assert_eq!(refusals(text), *want, "{name}");
        }
    }

    #[test]
    fn all_mistakes_are_reported_in_the_order_of_the_text_and_none_that_follows() {
        let text = "manager = { serail = 1 }\n\
                    [[host]]\nname = 1\nport = -1\nsizes = [1, 'x', 2, 'y']\n\
                    [[host]]\nport = 1\n[[host]]\nname = 'c'\nends = ['a', 2]\ncolour = 1\n";
        let want = [
            "f:1:13: manager: unknown key \"serail\", did you mean \"serial\"?",
            "f:3:8: host.name: expected text, found 1",
            "f:4:8: host.port: expected a whole number 0..=255, found -1",
            "f:5:13: host.sizes: expected a whole number, 0 or above, found \"x\"",
            "f:5:21: host.sizes: expected a whole number, 0 or above, found \"y\"",
            "f:6:1: host: expected a key \"name\", found none",
            "f:10:14: host.ends: expected text, found 2",
            "f:11:1: host: unknown key \"colour\", expected one of name, kind, port, sizes, ends",
        ];
        assert_eq!(refusals(text), want);
        let many = "[[host]]\nport = 1\n".repeat(PROBLEMS_MAX + 9);
        assert_eq!(refusals(&many).len(), PROBLEMS_MAX);
    }

    #[test]
    fn keys_of_flattened_types_are_checked_one_by_one() {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Common {
            gbps: u8,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        #[expect(dead_code, reason = "only reading is tested")]
        struct All {
            #[serde(flatten)]
            common: Common,
            ports: Vec<String>,
        }
        let check =
            |text| Document::parse("f", text).unwrap().check_keys::<All>(&["gbps", "ports"]);
        assert_eq!(check("gbps = 1\nports = ['a']\n"), Ok(()));
        let error = check("ports = ['a', 1]\ngbps = 256\nport = 1\n").unwrap_err().to_string();
        let want = "f:1:15: ports: expected text, found 1\n\
                    f:2:8: gbps: expected a whole number 0..=255, found 256\n\
                    f:3:1: unknown key \"port\", did you mean \"ports\"?";
        assert_eq!(error, want);
    }
}
