//! Values of parameters, and the kinds of value that parameters accept.
//!
//! [`Kind::check`] turns a TOML value into a [`Value`], or into [`Refusal`]s with their spans.
//!
//! Source: docs/spec/pipeline.md §12; TOML 1.1.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use toml::Spanned;
use toml::de::{DeInteger, DeValue};
use weft_parsers::{AddrKey, AddrSpace, MacAddr};
use weft_toml::words::{choice, describe};

use super::places::{is_path, listen_addr, listen_place, mctp_place};
use super::quantity::{is_ratio_within, parse_ratio, parse_size, parse_time, parse_tolerance};

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Bool(bool),
    Int(i64),
    /// A number with a fraction; finite.
    Num(f64),
    /// Text: a word, a name, an address.
    Text(String),
    List(Vec<Value>),
}

impl Value {
    /// The whole number, if it is one.
    #[must_use]
    pub const fn as_int(&self) -> Option<i64> {
        if let Self::Int(int) = self { Some(*int) } else { None }
    }

    /// The number, whole or not.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "numbers that may have a fraction are small")]
    pub const fn as_num(&self) -> Option<f64> {
        match self {
            Self::Int(int) => Some(*int as f64),
            Self::Num(num) => Some(*num),
            _ => None,
        }
    }

    /// The text, if it is one.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    /// The members, if it is a list; else itself alone.
    #[must_use]
    pub fn members(&self) -> &[Self] {
        if let Self::List(list) = self { list } else { std::slice::from_ref(self) }
    }

    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Bool(bool) => (*bool).into(),
            Self::Int(int) => (*int).into(),
            Self::Num(num) => (*num).into(),
            Self::Text(text) => text.as_str().into(),
            Self::List(list) => list.iter().map(Self::to_json).collect(),
        }
    }
}

/// Writes the value as TOML.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(bool) => write!(f, "{bool}"),
            Self::Int(int) => write!(f, "{int}"),
            Self::Num(num) => write!(f, "{num}"),
            Self::Text(text) => quote(f, text),
            Self::List(list) => {
                f.write_str("[")?;
                for (i, item) in list.iter().enumerate() {
                    write!(f, "{}{item}", if i == 0 { "" } else { ", " })?;
                }
                f.write_str("]")
            }
        }
    }
}

fn quote(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_str("\"")?;
    for c in text.chars() {
        match c {
            '"' | '\\' => write!(f, "\\{c}")?,
            // A TOML string has no raw control characters (TOML 1.1 "String"). Four digits do: the last one is
            // U+009F.
            c if c.is_control() => write!(f, "\\u{:04X}", u32::from(c))?,
            c => write!(f, "{c}")?,
        }
    }
    f.write_str("\"")
}

/// The word for the scheduling policy that comes before all nice values.
pub const ROUND_ROBIN: &str = "rr";

/// The kind of value that a parameter accepts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// `true` or `false`.
    Bool,
    /// A whole number from the first to the second.
    Int(i64, i64),
    /// An EtherType, 0x0600..=0xFFFF; shown in hexadecimal.
    EtherType,
    /// One of these whole numbers.
    IntOf(&'static [i64]),
    /// A number, fraction allowed, from the first to the second.
    Num(f64, f64),
    /// A fraction from 1 over the first to the second, as a number or as a text: see [`parse_ratio`].
    Ratio(u64, u64),
    /// One of these words.
    Word(&'static [&'static str]),
    /// The name of a switch or port: letters, digits, `-`, `_`, `.`, up to 32.
    Name,
    /// A device, file or peer.
    Path,
    /// The MAC address of a station, not of a group.
    Mac,
    /// A station or group: see [`parse_addr`].
    Addr,
    /// One of the groups that bridges keep to themselves: see [`parse_reserved_group`].
    ReservedGroup,
    /// Address and port of TCP.
    Socket,
    /// Address and port of TCP, or the kernel's MCTP: see [`mctp_place`].
    MctpPlace,
    /// Address and port of TCP, or a Unix socket: see [`listen_place`].
    Listen,
    /// A whole number from the first to the second that is a power of two.
    Power(i64, i64),
    /// A UUID: see [`parse_uuid`].
    Uuid,
    /// An OUI: see [`parse_oui`].
    Oui,
    /// VLAN ids: numbers and ranges such as `"10-20"`.
    Vids,
    /// A time: see [`parse_time`].
    Time,
    /// Bytes: see [`parse_size`].
    Size,
    /// A line of text that is not empty.
    Line,
    /// How far off a value may be: see [`parse_tolerance`].
    Tolerance,
    /// A nice value, or the word [`ROUND_ROBIN`].
    Priority,
    /// A list of the kind, of least to most members.
    List(&'static Kind, usize, usize),
    /// One value of the kind for all, or a list of least to most members.
    OneOr(&'static Kind, usize, usize),
}

/// A value that a kind refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Byte offsets of the value in the text.
    pub span: Range<usize>,
    /// Description of the expected value, which follows "expected" in messages.
    pub expected: String,
    pub found: String,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Bool => f.write_str("true or false"),
            Self::Int(0, i64::MAX) => f.write_str("a whole number, 0 or above"),
            Self::Int(min, max) => write!(f, "a whole number {min}..={max}"),
            Self::EtherType => f.write_str("an EtherType 0x0600..=0xFFFF"),
            Self::IntOf(ints) => f.write_str(&choice(ints.iter().map(i64::to_string))),
            Self::Num(min, max) => write!(f, "a number {min}..={max}"),
            Self::Ratio(a, b) => write!(f, "a number 1/{a}..={b}, such as 0.75 or \"3/4\""),
            Self::Word(words) => f.write_str(&choice(words.iter().map(|w| format!("{w:?}")))),
            Self::Name => f.write_str("a name: 1 to 32 letters, digits, '-', '_' or '.'"),
            Self::Path => f.write_str("a device or file, as text that is not empty"),
            Self::Mac => f.write_str("a MAC address such as \"02:00:00:00:00:01\", not a group"),
            Self::Addr => {
                f.write_str("an address: \"02:00:00:00:00:01\", \"gen1:0000000002\" or \"id:0002\"")
            }
            Self::ReservedGroup => f.write_str(
                "\"lldp\", \"lacp\", \"eapol\", \"stp\" or an address \"01:80:c2:00:00:00\" to 0f, but 01",
            ),
            Self::Socket => {
                f.write_str("address and port such as \"127.0.0.1:9460\", or a port of loopback")
            }
            Self::MctpPlace => f.write_str(
                "address and port such as \"127.0.0.1:2508\", a port of loopback, \"mctp\", or \"mctp:\" and a network of the kernel, 1 or above",
            ),
            Self::Listen => f.write_str(
                "the path of a socket such as \"/run/weft/s/cci.sock\", or address and port",
            ),
            Self::Power(min, max) => write!(f, "a power of two {min}..={max}"),
            Self::Uuid => f.write_str("a UUID such as \"5ed8a1c0-0000-4000-8000-000000000001\""),
            Self::Oui => f.write_str("an OUI such as \"02:57:46\""),
            Self::Vids => f.write_str("VLANs 1..=4094, as numbers or ranges such as \"10-20\""),
            Self::Time => f.write_str("a time such as \"10ms\": a number and ps, ns, us, ms or s"),
            Self::Size => f.write_str(
                "bytes, 1 or above, as a whole number or such as \"64KiB\": KB, MB, GB, KiB, MiB or GiB",
            ),
            Self::Line => f.write_str("a line of text that is not empty"),
            Self::Tolerance => f.write_str(
                "such as \"0.3%\", a number in the metric's unit, \"at least\" or \"at most\"",
            ),
            Self::Priority => write!(f, "a nice value -20..=19, or {ROUND_ROBIN:?}"),
            Self::List(kind, min, max) => write!(f, "a list of {}, each {kind}", count(min, max)),
            Self::OneOr(kind, min, max) => {
                write!(f, "{kind}, or a list of {} such", count(min, max))
            }
        }
    }
}

fn count(min: usize, max: usize) -> String {
    if min == max { min.to_string() } else { format!("{min} to {max}") }
}

impl Kind {
    /// `value` as TOML, in the notation that this kind is written in.
    #[must_use]
    pub fn show(self, value: &Value) -> String {
        match (self, value) {
            // `#06X` writes 0X88B5, which TOML refuses: its prefix is in lower case.
            (Self::EtherType, Value::Int(int)) => format!("{int:#06X}").replace("0X", "0x"),
            (Self::List(kind, ..) | Self::OneOr(kind, ..), Value::List(list)) => {
                let shown: Vec<String> = list.iter().map(|member| kind.show(member)).collect();
                format!("[{}]", shown.join(", "))
            }
            (Self::OneOr(kind, ..), value) => kind.show(value),
            _ => value.to_string(),
        }
    }

    /// Checks `raw`, whose place is `raw.span()`.
    ///
    /// # Errors
    /// All refusals in it: a list can have several.
    pub fn check(self, raw: &Spanned<DeValue<'_>>) -> Result<Value, Vec<Refusal>> {
        let refuse = || {
            Err(vec![Refusal {
                span: raw.span(),
                expected: self.to_string(),
                found: describe(raw.get_ref()),
            }])
        };
        match (self, raw.get_ref()) {
            (Self::List(kind, min, max) | Self::OneOr(kind, min, max), DeValue::Array(items)) => {
                if items.len() < min || items.len() > max {
                    return refuse();
                }
                check_all(*kind, items.iter())
            }
            (Self::Vids, DeValue::Array(items)) => {
                // There are no more VLANs than that: 4,095 is reserved (IEEE 802.1Q Table 9-2), 0 means no VLAN.
                if items.len() > 4_094 {
                    return refuse();
                }
                check_all(self, items.iter())
            }
            // Refuse as a whole: the message of the inner kind would not mention that a list is accepted, too.
            (Self::OneOr(kind, ..), _) => kind.check(raw).or_else(|_| refuse()),
            (_, value) => self.scalar(value).map_or_else(refuse, Ok),
        }
    }

    fn scalar(self, raw: &DeValue<'_>) -> Option<Value> {
        match (self, raw) {
            (Self::Bool, DeValue::Boolean(bool)) => Some(Value::Bool(*bool)),
            (Self::Int(min, max), DeValue::Integer(int)) => {
                integer(int).filter(|int| (min..=max).contains(int)).map(Value::Int)
            }
            (Self::Power(min, max), DeValue::Integer(int)) => integer(int)
                .filter(|int| (min..=max).contains(int) && int.count_ones() == 1)
                .map(Value::Int),
            (Self::EtherType, DeValue::Integer(int)) => {
                integer(int).filter(|int| (0x0600..=0xFFFF).contains(int)).map(Value::Int)
            }
            (Self::IntOf(ints), DeValue::Integer(int)) => {
                integer(int).filter(|int| ints.contains(int)).map(Value::Int)
            }
            (Self::Vids, DeValue::Integer(int)) => {
                integer(int).filter(|int| (1..=4_094).contains(int)).map(Value::Int)
            }
            (Self::Num(min, max), _) => {
                number(raw).filter(|num| (min..=max).contains(num)).map(tidy)
            }
            (Self::Size, DeValue::Integer(int)) => {
                integer(int).filter(|int| *int >= 1).map(Value::Int)
            }
            (Self::Tolerance, DeValue::Integer(_) | DeValue::Float(_)) => {
                number(raw).filter(|num| *num >= 0.0).map(tidy)
            }
            (Self::Priority, DeValue::Integer(int)) => {
                integer(int).filter(|int| (-20..=19).contains(int)).map(Value::Int)
            }
            // By its shortest decimal text: 0.1 is exactly 1/10 there, and not the binary fraction next to it.
            (Self::Ratio(..), DeValue::Integer(_) | DeValue::Float(_)) => {
                number(raw).filter(|num| self.text(&num.to_string())).map(tidy)
            }
            (_, DeValue::String(text)) => self.text(text).then(|| Value::Text(text.to_string())),
            _ => None,
        }
    }

    fn text(self, text: &str) -> bool {
        match self {
            Self::Word(words) => words.contains(&text),
            Self::Name => is_name(text),
            Self::Path => is_path(text),
            Self::Mac => MacAddr::from_str(text).is_ok_and(|mac| !mac.is_group()),
            Self::Addr => parse_addr(text).is_some(),
            Self::ReservedGroup => parse_reserved_group(text).is_some(),
            Self::Socket => listen_addr(text).is_some(),
            Self::MctpPlace => mctp_place(text).is_some(),
            Self::Listen => listen_place(text).is_some(),
            Self::Uuid => parse_uuid(text).is_some(),
            Self::Oui => parse_oui(text).is_some(),
            Self::Vids => vid_range(text).is_some(),
            Self::Time => parse_time(text).is_some(),
            Self::Size => parse_size(text).is_some(),
            Self::Line => !text.trim().is_empty() && Self::Path.text(text),
            Self::Tolerance => parse_tolerance(text).is_some(),
            Self::Ratio(least, most) => {
                parse_ratio(text).is_some_and(|(num, den)| is_ratio_within(num, den, least, most))
            }
            Self::Priority => text == ROUND_ROBIN,
            _ => false,
        }
    }
}

fn check_all<'a, 'i: 'a>(
    kind: Kind,
    items: impl Iterator<Item = &'a Spanned<DeValue<'i>>>,
) -> Result<Value, Vec<Refusal>> {
    let mut list = Vec::new();
    let mut refusals = Vec::new();
    for item in items {
        match kind.check(item) {
            Ok(value) => list.push(value),
            Err(more) => refusals.extend(more),
        }
    }
    if refusals.is_empty() { Ok(Value::List(list)) } else { Err(refusals) }
}

/// Whether `text` can name a switch or port.
#[must_use]
pub fn is_name(text: &str) -> bool {
    // The name of a switch becomes a folder (`default_socket`): no slash, no `..`. One that begins with `-` would be
    // taken for a flag.
    (1..=32).contains(&text.len())
        && !text.starts_with(['.', '-'])
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

/// Reads a station or group as [`AddrKey`] shows it: a MAC address, `gen1:` and 10 or 12 hexadecimal digits, or `id:`
/// and 4.
#[must_use]
pub fn parse_addr(text: &str) -> Option<AddrKey> {
    let hex = |digits: &str, lens: &[usize]| {
        // `from_str_radix` would also accept a sign.
        let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        (lens.contains(&digits.len()) && is_hex).then(|| u64::from_str_radix(digits, 16).ok())?
    };
    if let Some(digits) = text.strip_prefix("gen1:") {
        // A station has 40 bits there; the key of a group has all 48 (docs/spec/pipeline.md §3).
        return hex(digits, &[10, 12]).map(|bits| AddrKey::new(AddrSpace::Gen1, bits));
    }
    if let Some(digits) = text.strip_prefix("id:") {
        return hex(digits, &[4]).map(|bits| AddrKey::new(AddrSpace::Id16, bits));
    }
    MacAddr::from_str(text).ok().map(AddrKey::ethernet)
}

/// Names of protocols, with the last digit of the reserved group that each uses (IEEE 802.1Q-2022 Table 8-1; 802.3
/// Annex 57A for slow protocols).
const RESERVED_GROUPS: [(&str, u8); 4] =
    [("stp", 0x0), ("lacp", 0x2), ("eapol", 0x3), ("lldp", 0xE)];

/// The last digit of a reserved group, given by the name of a protocol or by its address. `None` also for the group
/// of PAUSE, which is never forwarded: it would pause the senders of another link.
#[must_use]
pub fn parse_reserved_group(text: &str) -> Option<u8> {
    if let Some((_, digit)) = RESERVED_GROUPS.iter().find(|(name, _)| *name == text) {
        return Some(*digit);
    }
    let address = MacAddr::from_str(text).ok()?;
    let MacAddr([.., digit]) = address;
    (address.is_reserved_group() && address != MacAddr::PAUSE).then_some(digit)
}

/// Reads 32 hexadecimal digits, the first byte first, in groups of 8, 4, 4, 4 and 12, or without hyphens.
#[must_use]
pub fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    // `from_str_radix` below would also accept a sign in place of the first digit: check each byte.
    let groups: Vec<&str> = text.split('-').collect();
    if !matches!(
        groups.iter().map(|group| group.len()).collect::<Vec<_>>()[..],
        [8, 4, 4, 4, 12] | [32]
    ) || !text.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
    {
        return None;
    }
    u128::from_str_radix(&groups.concat(), 16).ok().map(u128::to_be_bytes)
}

/// Reads three bytes of two hexadecimal digits each, with colons between them.
#[must_use]
pub fn parse_oui(text: &str) -> Option<[u8; 3]> {
    let byte = |digits: &str| {
        // `from_str_radix` would also accept a sign: +6.
        let is_byte = digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        is_byte.then(|| u8::from_str_radix(digits, 16).ok()).flatten()
    };
    let bytes: Option<Vec<u8>> = text.split(':').map(byte).collect();
    bytes?.try_into().ok()
}

/// `"10-20"` as its first and last VLAN, `"7"` as both.
#[must_use]
pub fn vid_range(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (1 <= first && first <= last && last <= 4_094).then_some((first, last))
}

fn integer(int: &DeInteger<'_>) -> Option<i64> {
    i64::from_str_radix(int.as_str(), int.radix()).ok()
}

#[expect(clippy::cast_precision_loss, reason = "numbers that may have a fraction are small")]
fn number(raw: &DeValue<'_>) -> Option<f64> {
    match raw {
        DeValue::Integer(int) => integer(int).map(|int| int as f64),
        DeValue::Float(float) => float.as_str().parse().ok().filter(|num: &f64| num.is_finite()),
        _ => None,
    }
}

/// Turns a number without a fraction into a whole one, so that 1.0 and 1 are shown alike.
#[expect(clippy::cast_possible_truncation, reason = "checked to be whole and small")]
fn tidy(num: f64) -> Value {
    // Below 2^53 (9e15) every whole f64 is exact.
    if num.fract() == 0.0 && num.abs() < 1e15 { Value::Int(num as i64) } else { Value::Num(num) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(kind: Kind, toml: &str) -> Result<Value, Vec<Refusal>> {
        kind.check(&DeValue::parse(toml).unwrap())
    }

    #[test]
    fn kinds_accept_up_to_their_bounds() {
        const PRI: Kind = Kind::Int(0, 7);
        #[rustfmt::skip] // columns: kind, text, want (as TOML; none: refused)
        let cases = [
            (Kind::Bool, "true", Some("true")),
            (Kind::Bool, "1", None),
            (PRI, "0", Some("0")),
            (PRI, "7", Some("7")),
            (PRI, "8", None),
            (PRI, "-1", None),
            (PRI, "3.0", None),
            (PRI, "99999999999999999999999", None),
            (Kind::EtherType, "0x88B5", Some("0x88B5")),
            (Kind::EtherType, "1536", Some("0x0600")),
            (Kind::EtherType, "1535", None),
            (Kind::EtherType, "0x10000", None),
            (Kind::IntOf(&[4, 8]), "8", Some("8")),
            (Kind::IntOf(&[4, 8]), "6", None),
            (Kind::Num(0.5, 8.0), "0.5", Some("0.5")),
            (Kind::Num(0.5, 8.0), "8.0", Some("8")),
            (Kind::Num(0.5, 8.0), "8.001", None),
            (Kind::Num(0.5, 8.0), "nan", None),
            (Kind::Num(0.5, 8.0), "inf", None),
            (Kind::Word(&["dt", "static"]), "'dt'", Some("\"dt\"")),
            (Kind::Word(&["dt", "static"]), "'DT'", None),
            (Kind::Name, "'p-0_a.b'", Some("\"p-0_a.b\"")),
            (Kind::Name, "''", None),
            (Kind::Name, "'a/b'", None),
            (Kind::Name, "'.'", None),
            (Kind::Path, "'/dev/x y'", Some("\"/dev/x y\"")),
            (Kind::Path, "\"a\\u0000b\"", None),
            (Kind::Mac, "'02:00:00:00:00:01'", Some("\"02:00:00:00:00:01\"")),
            (Kind::Mac, "'03:00:00:00:00:01'", None),
            (Kind::Addr, "'02:00:00:00:00:01'", Some("\"02:00:00:00:00:01\"")),
            (Kind::Addr, "'gen1:00000000ff'", Some("\"gen1:00000000ff\"")),
            (Kind::Addr, "'gen1:010000000001'", Some("\"gen1:010000000001\"")),
            (Kind::Addr, "'gen1:1'", None),
            (Kind::Addr, "'id:8005'", Some("\"id:8005\"")),
            (Kind::Addr, "'id:+123'", None),
            (Kind::Addr, "'id:80050'", None),
            (Kind::Socket, "'127.0.0.1:80'", Some("\"127.0.0.1:80\"")),
            (Kind::Socket, "'[::1]:80'", Some("\"[::1]:80\"")),
            (Kind::Socket, "'9460'", Some("\"9460\"")),
            (Kind::Socket, "'65536'", None),
            (Kind::Socket, "'localhost:80'", None),
            (Kind::Vids, "[1, '10-20']", Some("[1, \"10-20\"]")),
            (Kind::Vids, "4094", Some("4094")),
            (Kind::Vids, "4095", None),
            (Kind::Vids, "'20-10'", None),
            (Kind::List(&PRI, 1, 2), "[1, 2]", Some("[1, 2]")),
            (Kind::List(&PRI, 1, 2), "[]", None),
            (Kind::List(&PRI, 1, 2), "[1, 2, 3]", None),
            (Kind::List(&PRI, 1, 2), "1", None),
            (Kind::OneOr(&PRI, 2, 2), "1", Some("1")),
            (Kind::OneOr(&PRI, 2, 2), "[1, 2]", Some("[1, 2]")),
            (Kind::OneOr(&PRI, 2, 2), "[1]", None),
        ];
        accepts(&cases);
    }

    fn accepts(cases: &[(Kind, &str, Option<&str>)]) {
        for (kind, text, want) in cases {
            let got = check(*kind, text).ok().map(|value| kind.show(&value));
            assert_eq!(got.as_deref(), *want, "{kind} of {text}");
        }
    }

    #[test]
    fn kinds_of_a_fabric_accept_up_to_their_bounds() {
        #[rustfmt::skip] // columns: kind, text, want (as TOML; none: refused)
        let cases = [
            (Kind::MctpPlace, "'2508'", Some("\"2508\"")),
            (Kind::MctpPlace, "'mctp'", Some("\"mctp\"")),
            (Kind::MctpPlace, "'mctp:1'", Some("\"mctp:1\"")),
            (Kind::MctpPlace, "'mctp:0'", None),
            (Kind::MctpPlace, "'mctp:'", None),
            (Kind::MctpPlace, "'mctp:4294967296'", None),
            (Kind::Listen, "'127.0.0.1:80'", Some("\"127.0.0.1:80\"")),
            (Kind::Listen, "'4000'", Some("\"4000\"")),
            (Kind::Listen, "'/run/cci.sock'", Some("\"/run/cci.sock\"")),
            (Kind::Listen, "'cci.sock'", None),
            (Kind::Power(1, 64), "64", Some("64")),
            (Kind::Power(1, 64), "48", None),
            (Kind::Power(1, 64), "128", None),
            (Kind::Uuid, "'5ed8a1c0-0000-4000-8000-000000000001'", Some("\"5ed8a1c0-0000-4000-8000-000000000001\"")),
            (Kind::Uuid, "'5ed8a1c0000040008000000000000001'", Some("\"5ed8a1c0000040008000000000000001\"")),
            (Kind::Uuid, "'5ed8a1c-00000-4000-8000-000000000001'", None),
            (Kind::Uuid, "'+ed8a1c0-0000-4000-8000-000000000001'", None),
            (Kind::Oui, "'02:57:46'", Some("\"02:57:46\"")),
            (Kind::Oui, "'02:57'", None),
            (Kind::Oui, "'02:57:+6'", None),
        ];
        accepts(&cases);
    }

    #[test]
    fn a_refusal_says_what_where_and_why() {
        const PRI: Kind = Kind::Int(0, 7);
        let refusals = check(Kind::List(&PRI, 0, 8), "[1, 9, 'x']").unwrap_err();
        let texts: Vec<_> = refusals
            .iter()
            .map(|r| format!("{:?}: {}, not {}", r.span, r.expected, r.found))
            .collect();
        let want = ["4..5: a whole number 0..=7, not 9", "7..10: a whole number 0..=7, not \"x\""];
        assert_eq!(texts, want);
        let long = check(Kind::Name, &format!("'{}'", "x".repeat(500))).unwrap_err();
        assert!(long[0].found.len() < 80, "{}", long[0].found);
        assert_eq!(Kind::Word(&["a", "b", "c"]).to_string(), "\"a\", \"b\" or \"c\"");
        assert_eq!(Kind::IntOf(&[4, 8]).to_string(), "4 or 8");
    }
}
