//! The keys of one section of a scenario file: values with their defaults, and places.
//!
//! [`Keys`] read a table of [`Settings`], or an item of a repeated section.
//!
//! Source: docs/spec/model.md §3.

use weft_dataplane::time::{LinkRate, Span};

use crate::param::{Form, Section};
use crate::quantity::{parse_size, parse_time};
use crate::resolve::{initial, scale};
use crate::settings::{Item, Setting};
use crate::value::Value;
use crate::{Place, Settings};

use super::table::SCENARIO;

/// Bit/s of a Gbit/s.
const GBIT: f64 = 1e9;
/// Picoseconds that light takes for a metre of cable.
const PS_A_METRE: f64 = 5_000.0;

/// A table, or an item of a repeated section; a cheap copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keys<'a> {
    settings: &'a Settings,
    section: &'static Section,
    item: Option<&'a Item>,
}

impl<'a> Keys<'a> {
    /// The table called `name`; "" for the keys before all sections.
    pub fn table(settings: &'a Settings, name: &str) -> Self {
        let section =
            if name.is_empty() { SCENARIO.root() } else { SCENARIO.section(name, Form::Table) };
        Self { settings, section: section.expect("the table of keys has it"), item: None }
    }

    /// The items of the repeated section called `name`.
    pub fn items(settings: &'a Settings, name: &str) -> impl Iterator<Item = Self> + use<'a> {
        let section = SCENARIO.section(name, Form::Repeated).expect("the table of keys has it");
        let items = settings.items(section.name);
        items.iter().map(move |item| Self { settings, section, item: Some(item) })
    }

    /// The default of a number of the table called `name`.
    pub fn default_of(name: &str, key: &str) -> Option<u64> {
        let section = SCENARIO.section(name, Form::Table)?;
        initial(section.param(key)?, 4)?.as_int().and_then(|int| u64::try_from(int).ok())
    }

    /// `section.key`, for messages.
    pub fn name(&self, key: &str) -> String {
        let section = self.section.name;
        if section.is_empty() { key.to_owned() } else { format!("{section}.{key}") }
    }

    /// Where the item begins; for a table, where one of its keys is set.
    pub fn here(&self) -> Place {
        if let Some(item) = self.item {
            return item.place.clone();
        }
        let of_table = self.settings.tables().filter(|(section, ..)| *section == self.section.name);
        // Settings do not keep the place of a heading.
        of_table.map(|(_, _, set)| set.place.clone()).next().unwrap_or(Place::Default)
    }

    /// The setting of `key`, without its default.
    pub fn set(&self, key: &'static str) -> Option<&'a Setting> {
        debug_assert!(self.section.param(key).is_some(), "{} is not in the table", self.name(key));
        match self.item {
            Some(item) => item.set.get(key),
            None => self.settings.table(self.section.name, key),
        }
    }

    /// Whether the section has such a key.
    pub fn has(&self, key: &str) -> bool {
        self.section.param(key).is_some()
    }

    /// Keys that are set, in the order of the table.
    pub fn all_set(&self) -> impl Iterator<Item = (&'static str, &'a Setting)> + use<'a> {
        let keys = *self;
        keys.section.params().filter_map(move |param| Some((param.name, keys.set(param.name)?)))
    }

    /// Where `key` was set; else where this begins.
    pub fn place(&self, key: &'static str) -> Place {
        self.set(key).map_or_else(|| self.here(), |set| set.place.clone())
    }

    /// The value of `key`, or its default.
    pub fn get(&self, key: &'static str) -> Option<Value> {
        match self.set(key) {
            Some(set) => Some(set.value.clone()),
            // Defaults of a scenario's own keys do not depend on the number of priorities; any will do here.
            None => initial(self.section.param(key)?, 4),
        }
    }

    pub fn int(&self, key: &'static str) -> Option<u64> {
        self.get(key)?.as_int().and_then(|int| u64::try_from(int).ok())
    }

    /// A number that the table bounds.
    pub fn count(&self, key: &'static str) -> Option<usize> {
        self.int(key).and_then(|int| usize::try_from(int).ok())
    }

    pub fn num(&self, key: &'static str) -> Option<f64> {
        self.get(key)?.as_num()
    }

    pub fn text(&self, key: &'static str) -> Option<String> {
        self.get(key)?.as_text().map(str::to_owned)
    }

    pub fn flag(&self, key: &'static str) -> bool {
        self.get(key) == Some(Value::Bool(true))
    }

    /// A list's members as texts, or the one text.
    pub fn texts(&self, key: &'static str) -> Vec<String> {
        let list = self.get(key);
        let members = list.iter().flat_map(Value::members);
        members.filter_map(Value::as_text).map(str::to_owned).collect()
    }

    pub fn time(&self, key: &'static str) -> Option<Span> {
        parse_time(self.get(key)?.as_text()?).map(Span::from_ps)
    }

    pub fn size(&self, key: &'static str) -> Option<u64> {
        match self.get(key)? {
            Value::Int(int) => u64::try_from(int).ok(),
            value => parse_size(value.as_text()?),
        }
    }

    /// A rate in Gbit/s.
    pub fn rate(&self, key: &'static str) -> Option<LinkRate> {
        LinkRate::bps(scale(self.num(key)?, GBIT))
    }

    /// Time that light takes over a length in metres, 1 ps at least.
    pub fn flight(&self, key: &'static str) -> Option<Span> {
        // Never 0: the two ends of a link would see each other at the same instant.
        Some(Span::from_ps(scale(self.num(key)?, PS_A_METRE).max(1)))
    }
}
