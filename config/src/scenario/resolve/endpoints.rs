//! The endpoints of the hosts.
//!
//! `[endpoint]` becomes [`Endpoints`], whose template changes the specification of each host; `[[host]]` may give a
//! host another virtual channel.
//!
//! Source: docs/spec/model.md §4; docs/spec/wire-formats.md §1.1.

use std::collections::BTreeMap;

use weft_dataplane::time::Span;
use weft_dataplane::types::PriSet;
use weft_hosts::classes::PriMap;
use weft_hosts::frames::Kind;
use weft_hosts::pfc::SlowSpec;
use weft_hosts::rclink::credits::CreditSpec;
use weft_hosts::rclink::dcqcn::DcqcnSpec;
use weft_hosts::rclink::endpoint::{EndpointSpec, LOCAL_CREDITS, OUTSTANDING, Transport};
use weft_parsers::{Ecn, ParseConfig, Pcp, Vid};
use weft_sim::engine::Latency;
use weft_sim::scenario::Endpoints;
use weft_sim::topology::{NodeKind, Topology};

use super::delay::{RECEIVING, SENDING, host_delay};
use super::switches::{Frames, Plan};
use super::{Keys, ScenarioReader};
use crate::value::Value;

/// VLAN of frames with a tag: the one that ports have by default.
const VID: Vid = Vid::from_low_bits(1);
/// Keys without effect where frames are not acknowledged.
const OF_ACKS: [&str; 3] = ["ack_delay", "ack_timeout", "rnr_timer"];
/// Keys without effect where frames have no RC Link header, and so no CNPs either.
const OF_ANSWERS: [&str; 4] = ["ack_vc", "cnp_delay", "cnp_merge_us", "controller"];
/// Keys that have an effect with DCQCN only.
const OF_DCQCN: [&str; 7] = [
    "dcqcn_gain",
    "dcqcn_shift",
    "dcqcn_timer",
    "dcqcn_fast_rounds",
    "dcqcn_additive_bytes",
    "dcqcn_hyper_bytes",
    "dcqcn_least_bytes",
];

/// Keys that have an effect with credits only.
const OF_CREDITS: [&str; 6] =
    ["credit_limit", "credit_size", "credit_overhead_bytes", "uf_limit", "dyn_uf", "drain_gbps"];

/// The settings that all endpoints have in common.
#[derive(Clone, Debug)]
struct Template {
    vlan: bool,
    ecn: bool,
    icrc: bool,
    payload: usize,
    request_vc: u8,
    ack_vc: u8,
    transport: Transport,
    ack_delay: Span,
    cnp_delay: Span,
    cnp_merge: Span,
    rate: Option<(Span, u32)>,
    slots: u16,
    dcqcn: Option<DcqcnSpec>,
    /// Number of banks, and whether they take turns.
    banks: (u8, bool),
    rnr: Option<u8>,
    credits: Option<CreditSpec>,
    slow: Option<SlowSpec>,
    /// Virtual channels by host, for those that do not use `request_vc`.
    request_vcs: BTreeMap<String, u8>,
    classes: PriMap,
    parse: ParseConfig,
}

impl Template {
    fn change(&self, name: &str, spec: &mut EndpointSpec) {
        // An endpoint reads frames as the ports of switches do, but keeps its own address.
        spec.parse = ParseConfig { port_mac: spec.parse.port_mac, ..self.parse };
        spec.classes = self.classes;
        spec.transport = self.transport;
        spec.payload_max = self.payload;
        spec.request_vc = self.request_vcs.get(name).copied().unwrap_or(self.request_vc);
        spec.ack_vc = self.ack_vc;
        (spec.slots, spec.credits, spec.slow) = (self.slots, self.credits, self.slow);
        (spec.ack_delay, spec.cnp_delay) = (self.ack_delay, self.cnp_delay);
        (spec.cnp_merge, spec.rate) = (self.cnp_merge, self.rate);
        (spec.dcqcn, spec.rnr) = (self.dcqcn, self.rnr);
        (spec.banks, spec.bank_turns) = self.banks;
        spec.frame.icrc = self.icrc;
        spec.frame.ecn = if self.ecn { Ecn::Ect0 } else { Ecn::NotEct };
        spec.frame.gen2_order = self.parse.gen2_order;
        spec.frame.tpid = self.parse.tpids.first();
        match spec.frame.kind {
            Kind::Standard => spec.frame.dport = self.parse.udp_type1,
            Kind::Ethernet => {}
            // TYPE2 has an EtherType of its own in AFH formats (docs/spec/model.md §4).
            _ if matches!(self.transport, Transport::Unreliable { .. }) => {
                spec.frame.ether_type = self.parse.mac_type2;
            }
            _ => spec.frame.ether_type = self.parse.mac_type1,
        }
        if self.vlan {
            spec.frame = spec.frame.clone().with_vlan(Pcp::from_low_bits(0), VID);
        }
    }
}

/// The drain rate of a receiver with credits. Its thresholds are out of reach, so that it never sends PAUSE.
fn drain(keys: &Keys<'_>) -> Option<SlowSpec> {
    let drain = keys.rate("drain_gbps")?;
    Some(SlowSpec {
        drain,
        xoff_bytes: usize::MAX,
        xon_bytes: usize::MAX,
        capacity_bytes: usize::MAX,
        lossless: PriSet::EMPTY,
        quanta: 1,
    })
}

/// The kind of frame that the table calls `word`.
fn kind_of(word: &str) -> Kind {
    Kind::from_name(word).unwrap_or(Kind::Standard)
}

/// Bytes beside the payload (docs/spec/wire-formats.md §1.1), without tag and ICRC.
const fn header_len(kind: Kind) -> usize {
    match kind {
        Kind::Lite => 12,
        Kind::Ethernet => 14,
        Kind::Gen1 | Kind::Gen2 => 22,
        _ => 50,
    }
}

/// The delivery service of frames, as `pkt_type` names it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Type {
    Reliable,
    Unreliable,
    Raw,
}

impl Type {
    fn of(keys: &Keys<'_>) -> Self {
        match keys.text("pkt_type").as_deref() {
            Some("type2") => Self::Unreliable,
            Some("type3") => Self::Raw,
            _ => Self::Reliable,
        }
    }
}

/// Whether frames of `kind` are sent in LITE mode: once, without ACK.
fn is_lite(keys: &Keys<'_>, kind: Kind) -> bool {
    kind == Kind::Lite || keys.flag("lite_mode")
}

/// The transport of frames of `kind`.
fn transport(keys: &Keys<'_>, kind: Kind) -> Transport {
    let exponent = keys.int("ack_timeout").and_then(|int| u32::try_from(int).ok()).unwrap_or(8);
    // 4.096 us x 2^n, as InfiniBand counts timeouts; n is 8 by default (docs/spec/model.md §4).
    let timeout = Span::from_ns(4_096 << exponent);
    let small = |key| keys.int(key).and_then(|int| u16::try_from(int).ok());
    match Type::of(keys) {
        // First, as `lite_mode` beside another type is refused: any answer will do there.
        _ if is_lite(keys, kind) => Transport::Lite,
        Type::Reliable => Transport::Reliable { timeout },
        Type::Unreliable => Transport::Unreliable {
            timeout,
            outstanding: small("outstanding").unwrap_or(OUTSTANDING),
            credits: keys
                .int("local_credits")
                .and_then(|int| u32::try_from(int).ok())
                .unwrap_or(LOCAL_CREDITS),
        },
        Type::Raw => Transport::Raw,
    }
}

impl ScenarioReader<'_> {
    /// The format of frames. `lite_mode` alone chooses lite; type3 has a format of its own.
    fn format(keys: &Keys<'_>) -> Kind {
        if Type::of(keys) == Type::Raw {
            return Kind::Ethernet;
        }
        let is_set = keys.set("pkt_format").is_some();
        // Beside a format that is set, `lite_mode` keeps that format and drops its ACKs.
        if !is_set && keys.flag("lite_mode") {
            return Kind::Lite;
        }
        kind_of(&keys.text("pkt_format").unwrap_or_default())
    }

    /// Refuses keys that contradict `pkt_type`.
    fn type_of_frames(&mut self, keys: &Keys<'_>, kind: Kind) {
        let ty = Type::of(keys);
        match ty {
            Type::Reliable => {}
            Type::Raw => {
                if keys.set("pkt_format").is_some() {
                    let text =
                        "expected none with pkt_type type3, which is raw Ethernet; leave it out";
                    self.refuse(keys, "pkt_format", text);
                }
            }
            Type::Unreliable => {
                if !matches!(kind, Kind::Gen1 | Kind::Gen2) {
                    let text = "expected pkt_format gen1 or gen2 beside type2: a Standard frame of TYPE2 has a UDP port of its own, which nobody has agreed on, and lite is sent once in any case";
                    self.refuse(keys, "pkt_type", text);
                }
                if keys.set("rnr_timer").is_some() {
                    let text = "expected none with pkt_type type2, of which nothing is sent again; leave it out";
                    self.refuse(keys, "rnr_timer", text);
                }
            }
        }
        for key in ["outstanding", "local_credits"] {
            if ty != Type::Unreliable && keys.set(key).is_some() {
                self.refuse(keys, key, "expected none without pkt_type type2; leave it out");
            }
        }
        if ty != Type::Reliable && keys.flag("icrc") {
            let text = "expected false with pkt_type type2 and type3, which have no ICRC";
            self.refuse(keys, "icrc", text);
        }
    }

    /// The properties of frames that switches must be configured for.
    pub(super) fn frames(&mut self) -> Frames {
        let keys = Keys::table(self.settings, "endpoint");
        let kind = Self::format(&keys);
        let is_bare = kind == Kind::Lite;
        self.type_of_frames(&keys, kind);
        if is_bare && keys.get("lite_mode") == Some(Value::Bool(false)) {
            self.refuse(&keys, "lite_mode", "expected true with pkt_format lite; or leave it out");
        }
        let refusals = [
            (
                "lite_mode",
                Type::of(&keys) != Type::Reliable,
                "expected false with pkt_type type2 and type3, which are no LITE frames",
            ),
            ("vlan_enabled", is_bare, "expected false with pkt_format lite, which has no tag"),
            ("icrc", is_bare, "expected false with pkt_format lite, which has no ICRC"),
            (
                "ecn_capable",
                kind != Kind::Standard,
                "expected false: only pkt_format standard has an ECN field",
            ),
        ];
        for (key, is_wrong, message) in refusals {
            if is_wrong && keys.flag(key) {
                self.refuse(&keys, key, message);
            }
        }
        self.keys_of_answers(&keys, kind);
        let tag = if keys.flag("vlan_enabled") { 4 } else { 0 };
        let icrc = if Self::has_icrc(&keys, kind) { 4 } else { 0 };
        let len_max = header_len(kind) + tag + icrc + keys.count("payload_bytes").unwrap_or(0);
        // Frames of TCP workloads cross the same switches.
        Frames { kind, len_max: len_max.max(self.tcp_len_max()) }
    }

    /// Refuses keys of ACKs and CNPs where there are none.
    fn keys_of_answers(&mut self, keys: &Keys<'_>, kind: Kind) {
        let is_lite = is_lite(keys, kind);
        let (acks, answers) = match kind {
            Kind::Lite => ("pkt_format lite", "pkt_format lite"),
            Kind::Ethernet => ("pkt_type type3", "pkt_type type3"),
            // LITE in other formats has an RC Link header, and CNPs: only keys of ACKs have no effect.
            _ if is_lite => ("lite_mode", ""),
            _ => return,
        };
        for key in OF_ACKS {
            if keys.set(key).is_some() {
                let text = format!("expected none with {acks}, which has no ACK; or leave it out");
                self.refuse(keys, key, text);
            }
        }
        for key in OF_ANSWERS {
            if !answers.is_empty() && keys.set(key).is_some() {
                let text = format!(
                    "expected none with {answers}, which has neither ACK nor CNP; or leave it out"
                );
                self.refuse(keys, key, text);
            }
        }
    }

    /// The delay of endpoints. Refuses `delay` where parts of both directions replace it.
    fn delay(&mut self, keys: &Keys<'_>) -> Latency {
        let is_set = |parts: [&'static str; 3]| parts.iter().any(|key| keys.set(key).is_some());
        if is_set(SENDING) && is_set(RECEIVING) && keys.set("delay").is_some() {
            let text = "expected none beside parts of both directions (t_paxi_tx, t_paxi_rx, ...); leave it out";
            self.refuse(keys, "delay", text);
        }
        host_delay(keys)
    }

    /// The rate limit of a queue pair: a window, and the bytes that may be granted in it.
    fn rate(&mut self, keys: &Keys<'_>) -> Option<(Span, u32)> {
        let windows = ["rate_window", "cc_window_ns"];
        let Some(bytes) = keys.int("length_thr") else {
            for key in windows.into_iter().filter(|key| keys.set(key).is_some()) {
                self.refuse(keys, key, "expected length_thr beside it, which is the limit");
            }
            return None;
        };
        if windows.iter().all(|key| keys.set(key).is_some()) {
            self.refuse(
                keys,
                "cc_window_ns",
                "expected one of rate_window and cc_window_ns; leave one out",
            );
        }
        let shift = keys.int("rate_window").unwrap_or(0);
        // 4.096 us x 2^n, up to 65,536 ns (docs/spec/model.md §4).
        let ns = keys.int("cc_window_ns").unwrap_or(4_096 << shift.min(4));
        Some((Span::from_ns(ns), u32::try_from(bytes).unwrap_or(u32::MAX)))
    }

    fn has_icrc(keys: &Keys<'_>, kind: Kind) -> bool {
        let is_usual = kind != Kind::Lite && Type::of(keys) == Type::Reliable;
        keys.get("icrc").map_or(is_usual, |icrc| icrc == Value::Bool(true))
    }

    /// Virtual channels of requests by host, where `[[host]]` sets one.
    fn request_vcs(&mut self, vcs: u64) -> BTreeMap<String, u8> {
        let mut all = BTreeMap::new();
        for host in Keys::items(self.settings, "host") {
            let Some(vc) = host.int("request_vc") else { continue };
            if vc >= vcs {
                let message = format!("expected 0..={} (num_vc is {vcs}), found {vc}", vcs - 1);
                self.refuse(&host, "request_vc", message);
            }
            let name = host.text("name").unwrap_or_default();
            all.extend(u8::try_from(vc).ok().map(|vc| (name, vc)));
        }
        all
    }

    /// The parameters of DCQCN; `None` where rates are static.
    fn dcqcn(&mut self, keys: &Keys<'_>) -> Option<DcqcnSpec> {
        if keys.text("controller").as_deref() != Some("dcqcn") {
            for key in OF_DCQCN {
                if keys.set(key).is_some() {
                    self.refuse(
                        keys,
                        key,
                        "expected controller = \"dcqcn\" beside it; or leave it out",
                    );
                }
            }
            return None;
        }
        // The table bounds these: nothing is cut off.
        let of = |key| keys.int(key).and_then(|int| u32::try_from(int).ok()).unwrap_or(0);
        // DCQCN starts at this rate and never exceeds it.
        let Some(most) = keys.int("length_thr") else {
            self.refuse(
                keys,
                "controller",
                "expected length_thr beside it, the rate without congestion",
            );
            return None;
        };
        let timer = keys.time("dcqcn_timer").unwrap_or(Span::ZERO);
        if timer < Span::from_us(1) || timer > Span::from_us(256) {
            self.refuse(keys, "dcqcn_timer", "expected 1us to 256us");
        }
        if u64::from(of("dcqcn_least_bytes")) > most {
            let message =
                format!("expected at most length_thr, {most}, found {}", of("dcqcn_least_bytes"));
            self.refuse(keys, "dcqcn_least_bytes", message);
        }
        Some(DcqcnSpec {
            gain: of("dcqcn_gain"),
            shift: of("dcqcn_shift"),
            timer,
            fast_rounds: of("dcqcn_fast_rounds"),
            additive: of("dcqcn_additive_bytes"),
            hyper: of("dcqcn_hyper_bytes"),
            least: of("dcqcn_least_bytes"),
        })
    }

    /// The number of banks. Each bank has a virtual channel of its own: that of requests, and those below it.
    fn banks(&mut self, keys: &Keys<'_>) -> u8 {
        let banks = keys.int("banks").unwrap_or(1);
        // A host with a lower channel of its own has the fewest channels for banks.
        let own = Keys::items(self.settings, "host").filter_map(|host| host.int("request_vc"));
        let lowest = own.chain(keys.int("request_vc")).min().unwrap_or(0);
        if banks > lowest + 1 {
            let message = format!(
                "expected at most {}, as requests are on virtual channel {lowest} and below, found {banks}",
                lowest + 1
            );
            self.refuse(keys, "banks", message);
        }
        if banks == 1 && keys.flag("bank_turns") {
            self.refuse(
                keys,
                "bank_turns",
                "expected banks of 2 or more beside it, which can take turns",
            );
        }
        u8::try_from(banks).unwrap_or(1)
    }

    /// The parameters of credits; `None` where PFC stops endpoints.
    fn credits(&mut self, keys: &Keys<'_>) -> Option<CreditSpec> {
        match keys.text("flow_control_mode").as_deref() {
            Some("cbfc") => {}
            Some("none") => {
                self.refuse(keys, "flow_control_mode", "expected \"pfc\", found \"none\": an endpoint obeys each PAUSE; say pfc.pfc_enabled = false, so that switches send none");
                return None;
            }
            _ => {
                for key in OF_CREDITS {
                    if keys.set(key).is_some() {
                        self.refuse(
                            keys,
                            key,
                            "expected flow_control_mode = \"cbfc\" beside it; or leave it out",
                        );
                    }
                }
                return None;
            }
        }
        if !self.requires(keys, &["credit_limit"]) {
            return None;
        }
        let of = |key| keys.int(key).and_then(|int| u32::try_from(int).ok()).unwrap_or(0);
        Some(CreditSpec {
            limit: of("credit_limit"),
            size: of("credit_size"),
            overhead: of("credit_overhead_bytes"),
            uf_limit: of("uf_limit"),
            dynamic: keys.flag("dyn_uf"),
            frame_len_max: 0, // the endpoint fills it in
        })
    }

    /// Refuses credits beside PFC of switches: credits go from endpoint to endpoint, and a switch does not know them.
    pub(super) fn check_credits(&mut self, topology: &Topology) {
        let keys = Keys::table(self.settings, "endpoint");
        let has_switches = topology.nodes().iter().any(|node| node.kind == NodeKind::Switch);
        let pfc = self.settings.table("pfc", "pfc_enabled").map(|set| &set.value);
        let by_credits = keys.text("flow_control_mode").as_deref() == Some("cbfc");
        // Without switches, as in `direct`, there is no PFC to switch off.
        if by_credits && has_switches && pfc != Some(&Value::Bool(false)) {
            self.refuse(
                &keys,
                "flow_control_mode",
                "expected pfc.pfc_enabled = false beside \"cbfc\": credits go from endpoint to endpoint, and not beside PFC",
            );
        }
    }

    /// The endpoints of all hosts; `None` if the ports of switches are refused.
    pub(super) fn endpoints(&mut self, frames: Frames, plan: &Plan) -> Option<Endpoints> {
        let keys = Keys::table(self.settings, "endpoint");
        let vcs = keys.int("num_vc").unwrap_or(8);
        for key in ["request_vc", "ack_vc"] {
            let vc = keys.int(key).unwrap_or(0);
            if vc >= vcs {
                self.refuse(
                    &keys,
                    key,
                    format!("expected 0..={} (num_vc is {vcs}), found {vc}", vcs - 1),
                );
            }
        }
        // Endpoints classify frames as the switches do, so that both speak of the same priorities.
        let (maps, port) = match plan.port() {
            Ok(port) => port,
            Err(error) => {
                self.problems.extend(error.0);
                return None;
            }
        };
        let small = |key| keys.int(key).and_then(|int| u8::try_from(int).ok()).unwrap_or(0);
        let time = |key| keys.time(key).unwrap_or(Span::ZERO);
        let template = Template {
            vlan: keys.flag("vlan_enabled"),
            ecn: keys
                .get("ecn_capable")
                .map_or(frames.kind == Kind::Standard, |ecn| ecn == Value::Bool(true)),
            icrc: Self::has_icrc(&keys, frames.kind),
            payload: keys.count("payload_bytes").unwrap_or(0),
            request_vc: small("request_vc"),
            ack_vc: small("ack_vc"),
            transport: transport(&keys, frames.kind),
            ack_delay: time("ack_delay"),
            cnp_delay: time("cnp_delay"),
            cnp_merge: Span::from_us(keys.int("cnp_merge_us").unwrap_or(0)),
            rate: self.rate(&keys),
            slots: keys.int("slots").and_then(|int| u16::try_from(int).ok()).unwrap_or(512),
            dcqcn: self.dcqcn(&keys),
            banks: (self.banks(&keys), keys.flag("bank_turns")),
            rnr: keys.int("rnr_timer").and_then(|code| u8::try_from(code).ok()),
            credits: self.credits(&keys),
            slow: drain(&keys),
            request_vcs: self.request_vcs(vcs),
            classes: PriMap::of_port(&maps, &port.trust, port.default_pri),
            parse: port.parse,
        };
        Some(Endpoints {
            kind: frames.kind,
            delay: self.delay(&keys),
            lite: is_lite(&keys, frames.kind),
            overhead: plan.overhead(),
            frame_len_max: frames.len_max.max(64),
            template: Box::new(move |site, spec| {
                template.change(site.name, spec);
                Ok(())
            }),
        })
    }
}
