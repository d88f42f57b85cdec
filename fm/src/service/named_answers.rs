//! Names in place of numbers in the answers that clients get.

use super::request::Response;
use crate::show::display_names::DisplayNames;

impl DisplayNames {
    /// Puts names in place of numbers in the rows of an answer.
    #[must_use]
    pub fn answer(&self, mut answer: Response) -> Response {
        let put = |text: &mut String| *text = self.with_names(text);
        match &mut answer {
            Response::Bindings(rows) => rows.iter_mut().for_each(|row| {
                put(&mut row.bridge);
                put(&mut row.to);
            }),
            Response::Done(said) => said.iter_mut().for_each(put),
            Response::Routes(routes) => {
                routes.rows.iter_mut().for_each(|row| put(&mut row.switch));
                routes.proof.iter_mut().chain(&mut routes.partition).for_each(put);
            }
            Response::Lds(rows) => rows.iter_mut().for_each(|row| {
                put(&mut row.device);
                row.bridge.iter_mut().for_each(put);
            }),
            Response::LdCapacity(rows) => rows.iter_mut().for_each(|row| put(&mut row.device)),
            Response::Pids(rows) => rows.iter_mut().for_each(|row| put(&mut row.at)),
            Response::Costs(rows) => rows.iter_mut().for_each(|row| put(&mut row.what)),
            Response::Trace(trace) => self.trace(trace),
            // These have the names already, or want none: data for programs, bytes, rows of PIDs.
            Response::Status(_)
            | Response::Topology(_)
            | Response::Inventory(_)
            | Response::Overview(_)
            | Response::Memory(_)
            | Response::Partitions(_)
            | Response::Gim(_)
            | Response::P2p(_)
            | Response::Access(_)
            | Response::Bytes(_)
            | Response::Events(_)
            | Response::Cci(_) => {}
        }
        answer
    }
}
