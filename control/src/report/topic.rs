//! Topics of `weft show`, one row each.
//!
//! A client asks for a [`ShowTopic`] and gets a [`ShowResponse`]: as JSON, or by [`ShowResponse::to_text`] for people.
//!
//! Source: ARCHITECTURE.md "To add X, edit these files".

use serde::{Deserialize, Serialize};

use super::{
    BufferReport, ConservationReport, DropsReport, FdbReport, PfcReport, PortReport, QueueReport,
    StatsSnapshot, WorkerReport, fabric::FabricReport, process::ProcessReport, tables,
};
use crate::events::Page;

/// A row for each topic: its help, report, name, and the function of [`tables`] that writes it for people.
macro_rules! show_topics {
    ($(#[doc = $about:literal] $topic:ident($report:ty) $name:literal by $text:ident;)+) => {
        /// A topic of `weft show`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum ShowTopic {
            $(#[doc = $about] $topic,)+
        }

        impl ShowTopic {
            /// All topics, in the order of the help.
            pub const ALL: &[Self] = &[$(Self::$topic),+];

            /// The topic as it is typed, and as requests have it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$topic => $name,)+
                }
            }

            /// One line of help.
            #[must_use]
            pub const fn about(self) -> &'static str {
                match self {
                    $(Self::$topic => $about.trim_ascii(),)+
                }
            }
        }

        /// The answer to `weft show`.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum ShowResponse {
            $(#[doc = $about] $topic($report),)+
        }

        impl ShowResponse {
            /// As text that ends with a newline, for people.
            #[must_use]
            pub fn to_text(&self) -> String {
                match self {
                    $(Self::$topic(report) => tables::$text(report),)+
                }
            }
        }
    };
}

show_topics! {
    /// Links, frames and bytes of each port
    Ports(Vec<PortReport>) "ports" by of_ports;
    /// Forwarding database (FDB)
    Fdb(FdbReport) "fdb" by of_fdb;
    /// Depth, drops and marks of each (port, priority)
    Queues(Vec<QueueReport>) "queues" by of_queues;
    /// Shared buffer and packet pool
    Buffer(BufferReport) "buffer" by of_buffer;
    /// PFC pauses, ingress groups and headroom
    Pfc(Vec<PfcReport>) "pfc" by of_pfc;
    /// Drops by reason
    Drops(DropsReport) "drops" by of_drops;
    /// Frame conservation: whether every received frame is accounted for
    Conservation(ConservationReport) "conservation" by of_conservation;
    /// Worker threads
    Workers(Vec<WorkerReport>) "workers" by of_workers;
    /// User, capabilities and restrictions of the process
    Process(ProcessReport) "process" by of_process;
    /// PIDs, virtual switches, routes and functions of a CXL switch
    Fabric(Option<Box<FabricReport>>) "fabric" by of_fabric;
    /// Events: links, storms, loops, stations, refused clients; with --watch as they occur
    Events(Page) "events" by of_events;
    /// All topics except FDB entries, process and the list of events
    All(Box<StatsSnapshot>) "all" by of_all;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_are_typed_as_requests_have_them() {
        for &topic in ShowTopic::ALL {
            assert_eq!(serde_json::to_value(topic).unwrap(), topic.name());
            assert!(!topic.about().is_empty());
        }
    }
}
