//! The types that the table of parameters is made of: [`Param`] and [`Section`].
//!
//! Reading, defaults, documentation and reports all walk the same [`Section`]s, so that a new row is enough for all
//! of them.
//!
//! Source: docs/spec/pipeline.md §12.

use super::value::Kind;

/// When a change of a parameter takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Apply {
    /// At `weft reload`, without interrupting traffic.
    Hot,
    /// When the switch is started again.
    Restart,
}

impl Apply {
    /// The word for it in pages and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hot => "hot",
            Self::Restart => "restart",
        }
    }
}

/// Value of a parameter that is not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Initial {
    /// This value, as TOML.
    Fixed(&'static str),
    /// These values, as TOML, with 4 and with 8 priorities.
    ByPris(&'static str, &'static str),
    /// Worked out from other parameters, as the text says.
    Derived(&'static str),
    /// Nothing, with the meaning that the text gives.
    Unset(&'static str),
    /// None: the configuration must set it.
    Required,
}

impl Initial {
    /// The TOML text of the default with `pris` priorities, if there is one.
    #[must_use]
    pub const fn toml(self, pris: i64) -> Option<&'static str> {
        match self {
            Self::Fixed(text) => Some(text),
            Self::ByPris(four, eight) => Some(if pris <= 4 { four } else { eight }),
            Self::Derived(_) | Self::Unset(_) | Self::Required => None,
        }
    }

    /// The value for people to read, or how it is worked out.
    #[must_use]
    pub fn describe(self) -> String {
        match self {
            Self::Fixed(text) => text.to_owned(),
            Self::ByPris(four, eight) => format!("{four} with 4 priorities, {eight} with 8"),
            Self::Derived(how) => format!("derived: {how}"),
            Self::Unset(meaning) => format!("unset: {meaning}"),
            Self::Required => "must be given".to_owned(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Param {
    /// Key within its section.
    pub name: &'static str,
    /// The values that it accepts.
    pub kind: Kind,
    /// Unit of the value; empty for none.
    pub unit: &'static str,
    pub initial: Initial,
    /// When a change takes effect.
    pub apply: Apply,
    /// One line of documentation.
    pub doc: &'static str,
}

/// How often a section occurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Once: `[name]`.
    Table,
    /// Any number of times: `[[name]]`.
    Repeated,
}

/// A table of the file, or the tables of a repeated section.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    pub name: &'static str,
    /// How often it occurs.
    pub form: Form,
    /// One line of documentation.
    pub doc: &'static str,
    /// Its parameters, in groups: one array of parameters may belong to several sections.
    pub groups: &'static [&'static [Param]],
}

impl Section {
    /// All parameters, in order.
    pub fn params(&self) -> impl Iterator<Item = &'static Param> + Clone + use<> {
        self.groups.iter().flat_map(|group| group.iter())
    }

    /// The parameter called `name`.
    #[must_use]
    pub fn param(&self, name: &str) -> Option<&'static Param> {
        self.params().find(|param| param.name == name)
    }
}

/// A row whose change takes effect at `weft reload`.
pub(crate) const fn hot(
    name: &'static str,
    kind: Kind,
    unit: &'static str,
    initial: Initial,
    doc: &'static str,
) -> Param {
    Param { name, kind, unit, initial, apply: Apply::Hot, doc }
}

/// A row whose change takes a restart.
pub(crate) const fn restart(
    name: &'static str,
    kind: Kind,
    unit: &'static str,
    initial: Initial,
    doc: &'static str,
) -> Param {
    Param { name, kind, unit, initial, apply: Apply::Restart, doc }
}
