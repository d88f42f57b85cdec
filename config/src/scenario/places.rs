//! Places of the parts of a scenario, for errors that show only when it is about to run.
//!
//! [`Places`] turn a [`RunError`] into a [`Problem`] with a place in the file.
//!
//! Source: docs/spec/model.md §3 (refusals with file, line and column).

use std::path::PathBuf;

use weft_base::causes::with_causes;
use weft_sim::network::NetworkError;
use weft_sim::run::RunError;
use weft_sim::scenario::Scenario;

use super::keys::Keys;
use super::{Source, problem};
use crate::{Place, Problem, Settings};

/// Places of the parts of a scenario.
#[derive(Clone, Debug)]
pub struct Places {
    file: Place,
    net: Place,
    /// All files that the scenario is read from.
    inputs: Vec<PathBuf>,
    /// In the order of the file, as in [`Scenario::workloads`].
    workloads: Vec<Place>,
    expects: Vec<Place>,
}

impl Places {
    pub(super) fn of(source: &Source, settings: &Settings) -> Self {
        let all = |name, key| Keys::items(settings, name).map(|item| item.place(key)).collect();
        let file = Place::WholeFile(source.name.clone());
        // A network of `[[switch]]`, `[[host]]` and `[[link]]` may have no `[net]`.
        let net = match Keys::table(settings, "net").here() {
            Place::Default | Place::Derived => file.clone(),
            place => place,
        };
        let named = Keys::items(settings, "workload").filter_map(|item| item.text("file"));
        let named = named.chain(Keys::table(settings, "net").text("import"));
        let mut inputs: Vec<PathBuf> = named.filter_map(|name| source.path(&name).ok()).collect();
        // Without a folder it came from standard input, and is no file.
        inputs.extend(source.dir.is_some().then(|| PathBuf::from(&source.name)));
        let (workloads, expects) = (all("workload", "kind"), all("expect", "metric"));
        Self { file, net, inputs, workloads, expects }
    }

    /// All files that the scenario is read from: itself, and those that it names. A run refuses to write results to
    /// them.
    #[must_use]
    pub fn inputs(&self) -> &[PathBuf] {
        &self.inputs
    }

    /// The problem that `error` stands for, at the place of the part that it names.
    pub(super) fn problem(&self, scenario: &Scenario, error: &RunError) -> Problem {
        let (place, key) = match error {
            RunError::Workload(of) => {
                let number = scenario.workloads.iter().position(|it| it.name == of.name);
                (number.and_then(|number| self.workloads.get(number)), "workload")
            }
            RunError::Metric(of) => {
                let number = scenario.expects.iter().position(|it| it.metric == of.name);
                (number.and_then(|number| self.expects.get(number)), "expect.metric")
            }
            RunError::Nothing => (self.workloads.first(), "workload"),
            RunError::Circle(_)
            | RunError::Topology(_)
            | RunError::Network(NetworkError::Topology(_) | NetworkError::Room { .. }) => {
                (Some(&self.net), "net")
            }
            RunError::Network(_) | RunError::Memory { .. } => (None, ""),
        };
        problem(place.unwrap_or(&self.file).clone(), key, with_causes(error))
    }
}
