//! What `weft show` can show: a row a topic.
//!
//! [`ShowTopic`] is asked for, [`ShowResponse`] comes back, as JSON or, by [`ShowResponse::to_text`], for people.
//!
//! Units: as the reports have them.
//! Source: ARCHITECTURE.md "To add X, edit these files".

use serde::{Deserialize, Serialize};

use super::{
    BufferReport, ConservationReport, DropsReport, FdbReport, PfcReport, PortReport, QueueReport,
    StatsSnapshot, WorkerReport, fabric::FabricReport, process::ProcessReport, tables,
};
use crate::events::Page;

/// A row a topic: its name, what it answers, and the function of [`tables`] that writes this for people.
macro_rules! show_topics {
    ($($(#[$doc:meta])* $topic:ident($report:ty) by $text:ident;)+) => {
        /// What `weft show` can show.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
        #[serde(rename_all = "snake_case")]
        #[value(rename_all = "snake_case")]
        pub enum ShowTopic {
            $($(#[$doc])* $topic,)+
        }

        /// What `weft show` answers.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum ShowResponse {
            $($(#[$doc])* $topic($report),)+
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
    Ports(Vec<PortReport>) by of_ports;
    /// Forwarding database
    Fdb(FdbReport) by of_fdb;
    /// Depth, drops and marks of each (port, priority)
    Queues(Vec<QueueReport>) by of_queues;
    /// Shared buffer and packet pool
    Buffer(BufferReport) by of_buffer;
    /// Pauses, ingress groups and headroom
    Pfc(Vec<PfcReport>) by of_pfc;
    /// Drops by reason
    Drops(DropsReport) by of_drops;
    /// Whether every frame is accounted for
    Conservation(ConservationReport) by of_conservation;
    /// Worker threads
    Workers(Vec<WorkerReport>) by of_workers;
    /// User, capabilities and restrictions of the process
    Process(ProcessReport) by of_process;
    /// PIDs, virtual switches, routes and functions of a switch that routes TLPs
    Fabric(Option<Box<FabricReport>>) by of_fabric;
    /// What happened: links, storms, loops, stations, refused clients; with --watch as it happens
    Events(Page) by of_events;
    /// All of it but FDB entries and the process
    All(Box<StatsSnapshot>) by of_all;
}
