//! Where a file says what, for what is refused only when the scenario is about to run.
//!
//! [`RunError`] → [`Problem`] with a place.
//!
//! Source: docs/spec/model.md §3 (refusals with file, line and column).

use std::path::PathBuf;

use weft_base::causes::with_causes;
use weft_sim::network::NetworkError;
use weft_sim::scenario::Scenario;
use weft_sim::scenario::run::RunError;

use super::keys::Keys;
use super::{Source, problem};
use crate::{Place, Problem, Settings};

/// Places of a scenario's parts.
#[derive(Clone, Debug)]
pub struct Places {
    file: Place,
    net: Place,
    /// Files that it is read from.
    inputs: Vec<PathBuf>,
    /// By number.
    workloads: Vec<Place>,
    expects: Vec<Place>,
}

impl Places {
    pub(super) fn of(source: &Source, settings: &Settings) -> Self {
        let all = |name, key| Keys::items(settings, name).map(|item| item.place(key)).collect();
        let file = Place::WholeFile(source.name.clone());
        let net = match Keys::table(settings, "net").here() {
            Place::Default | Place::Derived => file.clone(),
            place => place,
        };
        let named = Keys::items(settings, "workload").filter_map(|item| item.text("file"));
        let named = named.chain(Keys::table(settings, "net").text("import"));
        let mut inputs: Vec<PathBuf> = named.filter_map(|name| source.path(&name).ok()).collect();
        inputs.extend(source.dir.is_some().then(|| PathBuf::from(&source.name)));
        let (workloads, expects) = (all("workload", "kind"), all("expect", "metric"));
        Self { file, net, inputs, workloads, expects }
    }

    /// Files that it is read from: itself, and those that it names.
    #[must_use]
    pub fn inputs(&self) -> &[PathBuf] {
        &self.inputs
    }

    /// What is wrong, and where.
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
