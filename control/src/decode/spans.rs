//! Maps the bytes of a frame to fields: its [`FieldSpan`]s, from the first byte to the last.
//! Source: docs/spec/wire-formats.md §1 and §2.

use weft_parsers::{Gen2Order, ParseConfig, afh, bth, ethernet, rh, vlan};

use super::{Decoded, decode, order_of};

/// A field of a frame, and the bytes that it takes; for messages about single bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldSpan {
    pub start: usize,
    /// Byte after the last.
    pub end: usize,
    pub name: &'static str,
}

struct Spans {
    fields: Vec<FieldSpan>,
    at: usize,
    len: usize,
}

impl Spans {
    /// Gives the next `len` bytes to `name`, as far as the frame has them.
    fn take(&mut self, len: usize, name: &'static str) {
        let end = (self.at + len).min(self.len);
        if self.at < end {
            self.fields.push(FieldSpan { start: self.at, end, name });
        }
        self.at = end;
    }
}

/// The fields of `frame`, in order, from its first byte to its last.
#[must_use]
pub fn field_spans(frame: &[u8], config: &ParseConfig) -> Vec<FieldSpan> {
    let decoded = decode(frame, config);
    let mut spans = Spans { fields: Vec::new(), at: 0, len: frame.len() };
    match decoded.format {
        Some("gen2" | "lite") => {
            // Key words and Traffic Class change places with the byte order.
            let is_slap = order_of(frame, config) == Gen2Order::Slap;
            let (first, second) =
                if is_slap { ("key_words", "afh.tc") } else { ("afh.tc", "key_words") };
            let (hi, lo) = match decoded.format {
                Some("gen2") => ("afh.payload_hi", "afh.payload_lo"),
                _ => ("afh.zero", "afh.xpu_id"),
            };
            for (len, name) in [(1, first), (3, hi), (2, "dst"), (1, second), (3, lo), (2, "src")] {
                spans.take(len, name);
            }
        }
        Some("gen1") => {
            for (len, name) in [(6, "dst"), (1, "afh.tc"), (5, "src")] {
                spans.take(len, name);
            }
        }
        _ => {
            spans.take(6, "dst");
            spans.take(6, "src");
        }
    }
    if decoded.vlan.is_some() {
        spans.take(2, "vlan.tpid");
        spans.take(vlan::TAG_LEN - 2, "vlan.tci");
    }
    if decoded.ether_type.is_some() || decoded.format.is_none() {
        spans.take(2, "ether_type");
    }
    for &(len, name) in layers(&decoded) {
        spans.take(len, name);
    }
    if let Some(ip) = &decoded.ip {
        let options = if ip.version == 4 { ip_options(frame, &decoded) } else { 0 };
        spans.take(options, "ip.options");
    }
    let transport: &[(usize, &str)] =
        &[(2, "udp.sport"), (2, "udp.dport"), (2, "udp.len"), (2, "udp.checksum")];
    for &(len, name) in transport.iter().filter(|_| decoded.udp.is_some()) {
        spans.take(len, name);
    }
    let link: &[(usize, &str)] = &[
        (1, "rh.opcode"),
        (2, "rh.timestamp"),
        (1, "rh.p_key"),
        (3, "rh.len, rh.psn, rh.dest_qp"),
        (1, "rh.dest_qp"),
    ];
    for &(len, name) in link.iter().filter(|_| decoded.rh.is_some()) {
        spans.take(len, name);
    }
    if decoded.bth.is_some() {
        spans.take(bth::LEN, "bth");
    }
    let padding = decoded.padding_len.unwrap_or(0);
    // Everything between the known fields and the padding.
    spans.take(frame.len().saturating_sub(spans.at).saturating_sub(padding), "payload");
    spans.take(padding, "padding");
    spans.fields
}

/// Fields of the layer behind the EtherType.
fn layers(decoded: &Decoded) -> &'static [(usize, &'static str)] {
    match (&decoded.ip, &decoded.mac_control) {
        (Some(ip), _) if ip.version == 4 => &[
            (1, "ip.version"),
            (1, "ip.tos"),
            (2, "ip.total_len"),
            (2, "ip.id"),
            (2, "ip.fragment"),
            (1, "ip.ttl"),
            (1, "ip.proto"),
            (2, "ip.checksum"),
            (4, "ip.src"),
            (4, "ip.dst"),
        ],
        (Some(_), _) => &[
            (4, "ip.version, ip.traffic_class, ip.flow_label"),
            (2, "ip.payload_len"),
            (1, "ip.next_header"),
            (1, "ip.hop_limit"),
            (16, "ip.src"),
            (16, "ip.dst"),
        ],
        (None, Some(control)) if control.classes.is_some() => {
            &[(2, "mac_control.opcode"), (2, "pfc.enable"), (16, "pfc.quanta")]
        }
        (None, Some(control)) if control.quanta.is_some() => {
            &[(2, "mac_control.opcode"), (2, "pause.quanta")]
        }
        (None, Some(_)) => &[(2, "mac_control.opcode")],
        (None, None) => &[],
    }
}

/// Bytes of IPv4 options.
fn ip_options(frame: &[u8], decoded: &Decoded) -> usize {
    let at = ethernet::LEN + if decoded.vlan.is_some() { vlan::TAG_LEN } else { 0 };
    // IHL counts words of four bytes.
    let header_len = frame.get(at).map_or(0, |byte| usize::from(byte & 0xF) * 4);
    header_len.saturating_sub(weft_parsers::ipv4::LEN)
}

const _: () =
    assert!(afh::LEN == 12 && rh::LEN == 8, "the widths of `field_spans` add up to these");
