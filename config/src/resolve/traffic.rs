//! Traffic of the hosts that `weft traffic` plays.
//!
//! `[traffic]` becomes a [`TrafficConfig`]. A running switch does not read it.
//!
//! Source: docs/spec/pipeline.md §12; docs/spec/wire-formats.md §1.1.

use weft_parsers::Format;

use super::{Resolver, Value, to_usize};
use crate::choice::{FlowControl, HostFormat};
use crate::table::key;

/// Traffic of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrafficConfig {
    /// Format of all frames of the host.
    pub format: Format,
    /// In bytes without FCS.
    pub frame_len_max: usize,
    /// Whether a PAUSE stops the host.
    pub obeys_pfc: bool,
    /// Whether frames carry a VLAN tag.
    pub vlan: bool,
    /// Whether frames are sent as ECT, so that switches may mark them.
    pub ecn: bool,
    /// Number of virtual channels, of 8 at most.
    pub vcs: u8,
    /// PCP of each virtual channel; those from `vcs` on do not count.
    pub vc_pcp: [u8; 8],
}

/// Most payload of TYPE1 and TYPE2, in bytes (docs/spec/wire-formats.md §1.1).
const PAYLOAD_LEN_MAX: usize = 1_344;

/// Bytes beside the payload, without tag: those before it, and the ICRC behind it (docs/spec/wire-formats.md §1.1).
const fn overhead_len(format: Format) -> usize {
    match format {
        Format::Standard => 50 + 4,
        Format::AfhGen1 | Format::AfhGen2 => 22 + 4,
        Format::AfhLite => 12,
        _ => 14,
    }
}

impl Resolver<'_> {
    pub(super) fn traffic(&mut self) -> TrafficConfig {
        const HERE: &str = "traffic";
        let lite = self.get(key!(HERE, "lite_mode")).map(|lite| lite == Value::Bool(true));
        let is_set = self.settings.at(key!(HERE, "pkt_format")).is_some();
        let format = match self.choice(key!(HERE, "pkt_format")) {
            // `lite_mode` alone chooses the format; beside a `pkt_format` it has to agree with it, which is checked
            // below.
            _ if lite == Some(true) && !is_set => Format::AfhLite,
            HostFormat::Gen1 => Format::AfhGen1,
            HostFormat::Gen2 => Format::AfhGen2,
            HostFormat::Lite => Format::AfhLite,
            HostFormat::Ethernet => Format::Other,
            HostFormat::Standard => Format::Standard,
        };
        let flow_control = self.choice::<FlowControl>(key!(HERE, "flow_control_mode"));
        let vlan = self.flag(key!(HERE, "vlan_enabled"));
        let ecn = self.get(key!(HERE, "ecn_capable")).map(|ecn| ecn == Value::Bool(true));
        let refusals = [
            (
                key!(HERE, "vlan_enabled"),
                vlan && format == Format::AfhLite,
                "expected false with pkt_format lite",
            ),
            (
                key!(HERE, "lite_mode"),
                lite.is_some_and(|lite| lite != (format == Format::AfhLite)),
                "expected true with pkt_format lite, false with all others",
            ),
            (
                key!(HERE, "ecn_capable"),
                ecn == Some(true) && format != Format::Standard,
                "expected false: only pkt_format standard has an ECN field",
            ),
            (
                key!(HERE, "flow_control_mode"),
                flow_control == FlowControl::Cbfc,
                "expected \"pfc\" or \"none\", found \"cbfc\": the hosts of weft have no credits; take \"none\"",
            ),
        ];
        for (key, is_wrong, message) in refusals {
            if is_wrong {
                self.refuse(self.place(key), &key.path(), message);
            }
        }
        // Not a fixed default: it would be refused with every format without an ECN field.
        let ecn = ecn.unwrap_or(format == Format::Standard);
        self.derived.insert(key!(HERE, "ecn_capable").slot(0), Value::Bool(ecn));
        self.derived
            .insert(key!(HERE, "lite_mode").slot(0), Value::Bool(format == Format::AfhLite));
        let tag_len = if vlan { 4 } else { 0 };
        let longest = overhead_len(format) + tag_len + PAYLOAD_LEN_MAX;
        let shown = i64::try_from(longest).unwrap_or(i64::MAX);
        self.derived.insert(key!(HERE, "max_frame_size").slot(0), Value::Int(shown));
        let pcps = self.get(key!(HERE, "vc_pcp_mapping"));
        let mut vc_pcp = [0; 8];
        for (slot, pcp) in vc_pcp.iter_mut().zip(pcps.iter().flat_map(Value::members)) {
            *slot = pcp.as_int().and_then(|pcp| u8::try_from(pcp).ok()).unwrap_or(0);
        }
        TrafficConfig {
            format,
            frame_len_max: self.int(key!(HERE, "max_frame_size")).map_or(longest, to_usize),
            obeys_pfc: flow_control != FlowControl::None,
            vlan,
            ecn,
            vcs: self.int(key!(HERE, "num_vc")).and_then(|vcs| u8::try_from(vcs).ok()).unwrap_or(8),
            vc_pcp,
        }
    }
}
