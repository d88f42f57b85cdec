//! The parameters that files and flags set, each with the place where it was set.
//!
//! [`Settings`] hold one [`Setting`] for each parameter of a table that is set, and one for each key of each item of
//! a repeated section. Flags replace the settings of files. Defaults are not among them: the table of parameters has
//! these.
//!
//! Source: docs/spec/pipeline.md §12 ("effective values with where each came from").

use std::collections::BTreeMap;

use toml::Spanned;
use toml::de::{DeTable, DeValue};
use weft_toml::words::unknown;
use weft_toml::{ConfigError, Document, Findings, Place, Problem};

use super::choice::{Choice, DeviceKind};
use super::param::{Form, Param, Section};
use super::table::{CONFIG, Key, PORT_KEYS, Schema, key};
use super::value::{Value, is_name};

/// Longest configuration that is read, in bytes.
pub const TEXT_LEN_MAX: usize = 1 << 20;
/// Most items of a repeated section.
pub const ITEMS_MAX: usize = 65_536;

/// A checked value and the place where it was set.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    pub value: Value,
    pub place: Place,
}

/// One item of a repeated section, such as a port.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// Where the item begins.
    pub place: Place,
    /// The settings of the item, by key.
    pub set: BTreeMap<&'static str, Setting>,
}

impl Item {
    /// The setting of `key`, if it is set here.
    pub(crate) fn get(&self, key: Key) -> Option<&Setting> {
        self.set.get(key.name)
    }

    /// The text of `key`, if it is set here.
    pub(crate) fn text(&self, key: Key) -> Option<&str> {
        self.get(key)?.value.as_text()
    }

    /// Where `key` is set; else where the item begins.
    pub(crate) fn place_of(&self, key: Key) -> &Place {
        self.get(key).map_or(&self.place, |set| &set.place)
    }
}

/// All settings of files and flags; the table of parameters has the defaults of the rest.
#[derive(Clone, Debug)]
pub struct Settings {
    schema: &'static Schema,
    tables: BTreeMap<(&'static str, &'static str), Setting>,
    items: BTreeMap<&'static str, Vec<Item>>,
}

/// An empty configuration.
impl Default for Settings {
    fn default() -> Self {
        Self::of(&CONFIG)
    }
}

impl Settings {
    /// An empty file of the kind that `schema` describes.
    #[must_use]
    pub const fn of(schema: &'static Schema) -> Self {
        Self { schema, tables: BTreeMap::new(), items: BTreeMap::new() }
    }

    /// Reads the TOML `text` of a configuration, which came from `file`.
    ///
    /// # Errors
    /// Everything that the table of parameters refuses, in the order of the text.
    pub fn read(file: &str, text: &str) -> Result<Self, ConfigError> {
        Self::read_as(&CONFIG, file, text)
    }

    /// Like [`Self::read`], for the kind of file that `schema` describes.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_as(schema: &'static Schema, file: &str, text: &str) -> Result<Self, ConfigError> {
        if text.len() > TEXT_LEN_MAX {
            let message = format!("expected at most {TEXT_LEN_MAX} bytes, found {}", text.len());
            let place = Place::WholeFile(file.to_owned());
            return Err(ConfigError(vec![Problem { place, key: String::new(), message }]));
        }
        let document = Document::parse(file, text)?;
        let settings = Self::of(schema);
        let mut reader = Reader { document: &document, settings, found: document.findings() };
        reader.root(document.root());
        if reader.found.is_empty() { Ok(reader.settings) } else { Err(reader.found.into_error()) }
    }

    /// Sets `section.key=value` in place of an earlier setting; `value` is TOML, or text without quotes. `flag` is
    /// named in problems.
    ///
    /// # Errors
    /// An unknown key, or a value that the parameter refuses.
    pub fn set(&mut self, assignment: &str, flag: &str) -> Result<(), ConfigError> {
        // Without `=` the value is empty. Every kind refuses an empty text, and says what it expects.
        let (path, text) = assignment.split_once('=').unwrap_or((assignment, ""));
        let path = path.trim();
        let place = Place::Flag(format!("{flag} {assignment}"));
        let refuse = |message| {
            Err(ConfigError(vec![Problem { place: place.clone(), key: path.to_owned(), message }]))
        };
        // Keys of a scenario that stand before all sections, such as `seed`, have no section to be named by.
        let of_root = self.schema.root().and_then(|root| Some((root, root.param(path)?)));
        let (section, param) = match of_root {
            Some(found) => found,
            None => match self.find(path) {
                Ok(found) => found,
                Err(message) => return refuse(message),
            },
        };
        let value = match check_text(param, text.trim()) {
            Ok(value) => value,
            Err(message) => return refuse(message),
        };
        self.tables.insert((section.name, param.name), Setting { value, place });
        Ok(())
    }

    /// The parameter at `section.key`, which a flag names.
    fn find(&self, path: &str) -> Result<(&'static Section, &'static Param), String> {
        let (section_name, name) = path.split_once('.').unwrap_or((path, ""));
        let Some(section) = self.schema.section(section_name, Form::Table) else {
            let (bare, _) = section_name.split_once('[').unwrap_or((section_name, ""));
            if self.schema.section(bare, Form::Repeated).is_some() {
                return Err(format!(
                    "expected a section that is there once; [[{bare}]] is changed in the file"
                ));
            }
            let tables = self.schema.sections().filter(|s| s.form == Form::Table);
            return Err(unknown("section", section_name, tables.map(|s| s.name)));
        };
        let param = section.param(name);
        let param = param.ok_or_else(|| unknown("key", name, section.params().map(|p| p.name)))?;
        Ok((section, param))
    }

    /// Applies `NAME=[KIND:]DEVICE`: gives the port called NAME another device, or adds a port of that name.
    ///
    /// # Errors
    /// The table refuses the name, kind or device, or two flags name the same port.
    pub fn set_port(&mut self, text: &str, flag: &str) -> Result<(), ConfigError> {
        let place = Place::Flag(format!("{flag} {text}"));
        let refuse = |key: &str, message: String| {
            let key = format!("port.{key}");
            Err(ConfigError(vec![Problem { place: place.clone(), key, message }]))
        };
        let Some((name, device)) = text.split_once('=') else {
            return refuse("name", format!("expected NAME=[KIND:]DEVICE, found {text:?}"));
        };
        let kinds = DeviceKind::NAMES;
        let (kind, device) = match device.split_once(':') {
            // Only a known kind ends at the colon: device names have colons, too, such as PCI addresses of DPDK.
            Some((kind, device)) if kinds.contains(&kind) => (Some(kind), device),
            // `--port p0=null` is a port without a device; its own name stands for one.
            _ if device == "null" => (Some(device), name),
            _ => (None, device),
        };
        if !is_name(name) {
            return refuse(
                "name",
                format!("expected {}, found {name:?}", super::value::Kind::Name),
            );
        }
        let setting =
            |text: &str| Setting { value: Value::Text(text.into()), place: place.clone() };
        let Some(device_param) = super::table::param("port.device").map(|(_, param)| param) else {
            return refuse("device", "expected a parameter of this name".to_owned());
        };
        if let Err(message) = check_text(device_param, device) {
            return refuse("device", message);
        }
        let ports = self.items.entry("port").or_default();
        let same = ports.iter_mut().find(|item| item.text(key!("port", "name")) == Some(name));
        let item = if let Some(item) = same {
            // A device that came from a flag stays: of two flags for one port, one is a mistake.
            if matches!(
                item.get(key!("port", "device")),
                Some(Setting { place: Place::Flag(_), .. })
            ) {
                return refuse("name", format!("expected each port once, found {name:?} twice"));
            }
            item
        } else {
            ports.push(Item { place: place.clone(), set: [("name", setting(name))].into() });
            let Some(item) = ports.last_mut() else { return Ok(()) };
            item
        };
        item.set.insert("device", setting(device));
        // Without KIND it is auto again, not the kind of the file, which belonged to the device of the file.
        item.set.insert("kind", setting(kind.unwrap_or("auto")));
        Ok(())
    }

    /// The setting of a table's key, if it is set.
    pub(crate) fn at(&self, key: Key) -> Option<&Setting> {
        self.table(key.section, key.name)
    }

    /// The setting of `section.key`; `None` where only the default holds.
    #[must_use]
    pub fn table(&self, section: &'static str, key: &'static str) -> Option<&Setting> {
        self.tables.get(&(section, key))
    }

    /// Sets `section.key`. The caller answers for a value that the table of parameters accepts: it is not checked
    /// here.
    pub(crate) fn put(&mut self, section: &'static str, key: &'static str, setting: Setting) {
        self.tables.insert((section, key), setting);
    }

    /// Takes the settings of `below` for keys of tables that are not set yet.
    pub(crate) fn lay_over(&mut self, below: Self) {
        for (key, setting) in below.tables {
            self.tables.entry(key).or_insert(setting);
        }
    }

    /// Adds an item to repeated section `name`.
    pub(crate) fn push(&mut self, name: &'static str, item: Item) {
        self.items.entry(name).or_default().push(item);
    }

    /// All settings of tables, as section, key and setting.
    pub fn tables(&self) -> impl Iterator<Item = (&'static str, &'static str, &Setting)> {
        self.tables.iter().map(|(&(section, key), setting)| (section, key, setting))
    }

    /// The items of repeated section `name`.
    #[must_use]
    pub fn items(&self, name: &str) -> &[Item] {
        self.items.get(name).map_or(&[], Vec::as_slice)
    }
}

/// Checks the text of a flag: as TOML, then as text without quotes.
fn check_text(param: &Param, text: &str) -> Result<Value, String> {
    let bare = Spanned::new(0..text.len(), DeValue::String(text.into()));
    // A name such as `10` parses as a TOML number, which a name refuses: then it is taken as a text. If both are
    // refused, the message is that of the TOML value.
    let checked = match DeValue::parse(text) {
        Ok(raw) => {
            param.kind.check(&raw).or_else(|refused| param.kind.check(&bare).or(Err(refused)))
        }
        Err(_) => param.kind.check(&bare),
    };
    checked.map_err(|refusals| match refusals.into_iter().next() {
        Some(refusal) => format!("expected {}, found {}", refusal.expected, refusal.found),
        None => format!("expected {}", param.kind),
    })
}

struct Reader<'a> {
    document: &'a Document<'a>,
    settings: Settings,
    found: Findings<'a>,
}

impl Reader<'_> {
    fn problem(&mut self, at: usize, key: String, message: String) {
        self.found.add(at, key, message);
    }

    fn root(&mut self, root: &DeTable<'_>) {
        // Keys before the first section come mixed with sections here: gather them, and check them as one section.
        let mut own = DeTable::new();
        let schema = self.settings.schema;
        for (key, value) in root {
            let (at, name) = (key.span().start, key.get_ref().as_ref());
            if schema.root().is_some_and(|root| root.param(name).is_some()) {
                own.insert(key.clone(), value.clone());
                continue;
            }
            self.section(schema, at, name, value.get_ref());
        }
        if let Some(root) = schema.root() {
            for (name, setting) in self.keys(root, &own) {
                self.settings.tables.insert((root.name, name), setting);
            }
        }
    }

    fn section(&mut self, schema: &'static Schema, at: usize, name: &str, value: &DeValue<'_>) {
        let [table, repeated] =
            [Form::Table, Form::Repeated].map(|form| schema.section(name, form));
        match (value, table, repeated) {
            (DeValue::Table(table), Some(section), _) => {
                for (name, setting) in self.keys(section, table) {
                    self.settings.tables.insert((section.name, name), setting);
                }
            }
            (DeValue::Array(items), _, Some(section)) => self.items(section, at, items.iter()),
            (_, None, None) => {
                let is_key = !matches!(value, DeValue::Table(_) | DeValue::Array(_));
                let what = if is_key && schema.root().is_some() { "key" } else { "section" };
                let keys = schema.root().into_iter().flat_map(Section::params).map(|p| p.name);
                let names = keys.chain(schema.sections().map(|section| section.name));
                self.problem(at, String::new(), unknown(what, name, names));
            }
            (_, Some(_), _) => {
                let message = format!("expected a table: [{name}]");
                self.problem(at, name.to_owned(), message);
            }
            (_, None, Some(_)) => {
                let message = format!("expected tables in double brackets: [[{name}]]");
                self.problem(at, name.to_owned(), message);
            }
        }
    }

    fn items<'a, 'i: 'a>(
        &mut self,
        section: &'static Section,
        at: usize,
        items: impl ExactSizeIterator<Item = &'a Spanned<DeValue<'i>>>,
    ) {
        if items.len() > ITEMS_MAX {
            let message = format!("expected at most {ITEMS_MAX} of these, found {}", items.len());
            return self.problem(at, section.name.to_owned(), message);
        }
        for item in items {
            let at = item.span().start;
            let DeValue::Table(table) = item.get_ref() else {
                let message = format!("expected tables in double brackets: [[{}]]", section.name);
                self.problem(at, section.name.to_owned(), message);
                continue;
            };
            let set = self.keys(section, table);
            let item = Item { place: self.document.place(at), set };
            self.settings.items.entry(section.name).or_default().push(item);
        }
    }

    fn keys(
        &mut self,
        section: &'static Section,
        table: &DeTable<'_>,
    ) -> BTreeMap<&'static str, Setting> {
        let mut set = BTreeMap::new();
        for (key, raw) in table {
            let (at, name) = (key.span().start, key.get_ref().as_ref());
            let Some(param) = section.param(name) else {
                let mut message = unknown("key", name, section.params().map(|p| p.name));
                // `unknown key` would mislead, as `[[port]]` does have this one.
                if section.name == "port_defaults" && PORT_KEYS.contains(&name) {
                    message = format!("{name} is each port's own, expected it in [[port]]");
                }
                self.problem(at, section.name.to_owned(), message);
                continue;
            };
            match param.kind.check(raw) {
                Ok(value) => {
                    let place = self.document.place(at);
                    set.insert(param.name, Setting { value, place });
                }
                Err(refusals) => {
                    for refusal in refusals {
                        let message =
                            format!("expected {}, found {}", refusal.expected, refusal.found);
                        let key = format!("{}.{}", section.name, param.name);
                        // The section of keys before all sections has no name: `seed`, not `.seed`.
                        let key = key.trim_start_matches('.').to_owned();
                        self.problem(refusal.span.start, key, message);
                    }
                }
            }
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusals(text: &str) -> Vec<String> {
        match Settings::read("f", text) {
            Ok(_) => Vec::new(),
            Err(error) => error.to_string().lines().map(str::to_owned).collect(),
        }
    }

    #[test]
    fn each_refusal_names_place_key_and_what_was_expected() {
        #[rustfmt::skip] // columns: name, text, want
        let cases: &[(&str, &str, &[&str])] = &[
            ("empty", "", &[]),
            ("good", "[buffer]\ndt_alpha = 2\n", &[]),
            ("near key", "[buffer]\ndt_alfa = 2\n",
             &["f:2:1: buffer: unknown key \"dt_alfa\", did you mean \"dt_alpha\"?"]),
            ("near section", "[bufer]\n", &["f:1:2: unknown section \"bufer\", did you mean \"buffer\"?"]),
            ("range", "[ecn]\n  ecn_threshold_low = 101\n",
             &["f:2:23: ecn.ecn_threshold_low: expected a whole number 0..=100, found 101"]),
            ("type", "[ecn]\necn_enabled = 1\n",
             &["f:2:15: ecn.ecn_enabled: expected true or false, found 1"]),
            ("in a list", "[classify]\npcp_to_pri = [0,1,2,3,4,5,6,8]\n",
             &["f:2:29: classify.pcp_to_pri: expected a whole number 0..=7, found 8"]),
            ("all of them", "[ecn]\necn_threshold_low = -1\necn_threshold_high = 'x'\n", &[
                "f:2:21: ecn.ecn_threshold_low: expected a whole number 0..=100, found -1",
                "f:3:22: ecn.ecn_threshold_high: expected a whole number 0..=100, found \"x\"",
            ]),
            ("table for items", "[port]\nname = 'a'\n", &["f:1:2: port: expected tables in double brackets: [[port]]"]),
            ("items for table", "[[ecn]]\n", &["f:1:3: ecn: expected a table: [ecn]"]),
            ("value for table", "ecn = 5\n", &["f:1:1: ecn: expected a table: [ecn]"]),
            ("own key", "[port_defaults]\nname = 'x'\n",
             &["f:2:1: port_defaults: name is each port's own, expected it in [[port]]"]),
        ];
        for (name, text, want) in cases {
            assert_eq!(refusals(text), *want, "{name}");
        }
    }

    #[test]
    fn broken_text_is_refused_with_its_place() {
        for (name, text, place) in [
            ("no value", "[ecn]\necn_enabled =\n", "f:2:"),
            ("twice", "[ecn]\necn_enabled = true\necn_enabled = true\n", "f:3:"),
            ("open list", "[classify]\npcp_to_pri = [1,\n", "f:"),
            ("not TOML", "hello world", "f:1:"),
        ] {
            let got = refusals(text);
            assert!(!got.is_empty() && got[0].starts_with(place), "{name}: {got:?}");
        }
        let long = "#".repeat(TEXT_LEN_MAX + 1);
        assert_eq!(refusals(&long), ["f: expected at most 1048576 bytes, found 1048577"]);
    }

    #[test]
    fn flags_lie_over_the_file() {
        let mut settings =
            Settings::read("f", "[buffer]\ndt_alpha = 2\n[[port]]\nname='a'\n").unwrap();
        settings.set("buffer.dt_alpha=0.5", "--set").unwrap();
        settings.set("run.poll=busy", "--set").unwrap();
        settings.set("switch.name = 7", "--set").unwrap();
        let alpha = settings.table("buffer", "dt_alpha").unwrap();
        assert_eq!(alpha.value, Value::Num(0.5));
        assert_eq!(alpha.place.to_string(), "--set buffer.dt_alpha=0.5");
        assert_eq!(settings.table("run", "poll").unwrap().value, Value::Text("busy".into()));
        assert_eq!(settings.table("switch", "name").unwrap().value, Value::Text("7".into()));
        #[rustfmt::skip] // columns: assignment, want
        let refused = [
            ("buffer.dt_alfa=1", "--set buffer.dt_alfa=1: buffer.dt_alfa: unknown key \"dt_alfa\", did you mean \"dt_alpha\"?"),
            ("ecn.ecn_enabled", "--set ecn.ecn_enabled: ecn.ecn_enabled: expected true or false, found \"\""),
            ("run.poll=fast", "--set run.poll=fast: run.poll: expected \"adaptive\" or \"busy\", found \"fast\""),
        ];
        for (assignment, want) in refused {
            assert_eq!(settings.set(assignment, "--set").unwrap_err().to_string(), want);
        }
        assert!(settings.set("port.name=x", "--set").is_err(), "items have no one value");
    }

    #[test]
    fn port_flags_add_and_replace() {
        let mut settings = Settings::read("f", "[[port]]\nname='a'\ndevice='x'\n").unwrap();
        for text in ["a=tap:t0", "b=veth1", "c=null"] {
            settings.set_port(text, "--port").unwrap();
        }
        let shown: Vec<_> = settings
            .items("port")
            .iter()
            .map(|item| {
                ["name", "kind", "device"].map(|key| item.set[key].value.to_string()).join(" ")
            })
            .collect();
        let want = [r#""a" "tap" "t0""#, r#""b" "auto" "veth1""#, r#""c" "null" "c""#];
        assert_eq!(shown, want);
        for refused in ["a=veth9", "b=veth9", "noequals", "=veth0", "x y=veth0", "d=", "e=tap:"] {
            assert!(settings.set_port(refused, "--port").is_err(), "{refused}");
        }
    }
}
