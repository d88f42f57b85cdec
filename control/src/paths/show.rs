//! A path for people and programs.
//!
//! [`Path`] → [`ShownPath`]: each stage as JSON and as text, and the frame. The management socket carries it in this
//! form. Times are picoseconds since the start; in text, seconds with nine decimals.
//! Source: docs/spec/pipeline.md §13.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use weft_dataplane::time::Instant;
use weft_dataplane::trace::Event;

use super::Path;

const NS_PER_S: u64 = 1_000_000_000;

/// Fields of events that are port numbers, and the fields for the ports' names.
const NAMED: [(&str, &str); 3] =
    [("port", "port_name"), ("input", "input_name"), ("output", "output_name")];

/// All decisions about a frame.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownPath {
    pub frame: u64,
    /// Time of receipt, in picoseconds since the start.
    pub t_ps: u64,
    /// Number of the port that received it.
    pub port: u8,
    /// Its length in bytes.
    pub len: u16,
    /// The frame as it was received; empty unless it was asked for.
    #[serde(with = "super::hex", default, skip_serializing_if = "Vec::is_empty")]
    pub bytes: Vec<u8>,
    pub stages: Vec<Stage>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage {
    /// The decision with all numbers that it depended on, and its time.
    pub event: Value,
    /// The same as a line of text.
    pub text: String,
}

impl Stage {
    /// Time of the decision, in picoseconds.
    #[must_use]
    pub fn at_ps(&self) -> Option<u64> {
        self.event.get("t_ps")?.as_u64()
    }
}

impl ShownPath {
    /// Shows `path` through a switch whose ports have these names.
    #[must_use]
    pub fn new(path: Path, ports: &[String]) -> Self {
        let name =
            |port: u8| ports.get(usize::from(port)).cloned().unwrap_or_else(|| port.to_string());
        let start = path.events.first().map_or(Instant::ZERO, |&(at, _)| at);
        let stages = path.events.iter().map(|(at, event)| {
            let ns = at.since(start).as_ns();
            let (s, sub) = (at.as_ns() / NS_PER_S, at.as_ns() % NS_PER_S);
            let stage = stage(event, &name);
            let text = format!("{s}.{sub:09} frame {:<6} +{ns:>9} ns  {stage}", path.frame);
            Stage { event: event_json(*at, event, ports), text }
        });
        let stages = stages.collect();
        let (port, len) = match path.events.first() {
            Some((_, Event::Rx { port, len, .. })) => (*port, *len),
            _ => (0, 0),
        };
        Self { frame: path.frame, t_ps: start.as_ps(), port, len, bytes: path.bytes, stages }
    }
}

/// An event as JSON: its fields, its time, and the name for each port number.
#[must_use]
pub fn event_json(now: Instant, event: &Event, ports: &[String]) -> Value {
    let mut value = serde_json::to_value(event).unwrap_or_else(|_| json!({}));
    if let Some(fields) = value.as_object_mut() {
        for (key, named) in NAMED {
            let number = fields.get(key).and_then(Value::as_u64);
            let name = number.and_then(|number| ports.get(usize::try_from(number).ok()?));
            if let Some(name) = name {
                fields.insert(named.to_owned(), name.as_str().into());
            }
        }
        if let Some(outputs) = fields.get("outputs").and_then(Value::as_u64) {
            // A bit set of 64 ports: a shift by 64 would overflow.
            let is_in = |(at, _): &(usize, &String)| *at < 64 && outputs >> at & 1 != 0;
            let names: Vec<&str> =
                ports.iter().enumerate().filter(is_in).map(|(_, name)| name.as_str()).collect();
            fields.insert("output_names".to_owned(), names.into());
        }
        fields.insert("t_ps".to_owned(), now.as_ps().into());
    }
    value
}

fn ports_of(outputs: u64, name: &dyn Fn(u8) -> String) -> String {
    let all: Vec<String> = (0..64).filter(|p| outputs >> p & 1 != 0).map(name).collect();
    all.join(" ")
}

/// One stage as text, with the numbers that it depended on.
fn stage(event: &Event, name: &dyn Fn(u8) -> String) -> String {
    match *event {
        Event::Rx { port, len, .. } => format!("rx        {} {len} bytes", name(port)),
        Event::Classify { format, pri, by, vid, .. } => {
            let vlan = if vid > 0 { format!(", tagged VLAN {vid}") } else { String::new() };
            format!("classify  {format}, priority {pri} by {by}{vlan}")
        }
        Event::Forward { by, outputs, .. } => {
            format!("forward   by {by} to {}", ports_of(outputs, name))
        }
        Event::Admit { output, pri, verdict, cells, used, limit, shared_used, .. } => format!(
            "admit     {verdict}: priority {pri} to {}, {cells} cells on {used} used of limit \
             {limit}; shared used {shared_used}",
            name(output)
        ),
        Event::Drop { port, reason, .. } => {
            format!("drop      {reason}, counted at {}", name(port))
        }
        Event::Consume { port, opcode, .. } => {
            format!("consume   MAC control opcode {opcode:#06x} at {}", name(port))
        }
        Event::Deq { port, pri, depth, low, high, max_percent, ect, marked, .. } => {
            let mark = match (ect, marked) {
                (_, true) => "ECN marked",
                (true, false) => "ECN capable, not marked",
                (false, false) => "not ECN capable",
            };
            let name = name(port);
            format!(
                "dequeue   {name} priority {pri}: depth {depth} bytes (marks {low} to {high}, up to {max_percent} %), {mark}"
            )
        }
        Event::Tx { port, len, .. } => format!("tx        {} {len} bytes", name(port)),
        // Events that no path has (links, pauses) are only seen in JSON.
        ref other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_survives_the_socket() {
        let rx = Event::Rx { frame: 7, port: 1, len: 3, digest: 0 };
        let forward = Event::Forward { frame: 7, by: "flood", outputs: 0b1001 };
        let events = vec![(Instant::from_ns(5), rx), (Instant::from_ns(6), forward)];
        let ports: Vec<String> = (0..3).map(|port| format!("p{port}")).collect();
        for bytes in [vec![], vec![0, 0xAB, 0x0F]] {
            let path = Path { frame: 7, events: events.clone(), bytes, ..Path::default() };
            let shown = ShownPath::new(path.clone(), &ports);
            assert_eq!((shown.t_ps, shown.port, shown.len), (5_000, 1, 3));
            let [first, second] = &shown.stages[..] else { panic!("{shown:?}") };
            assert!(first.text.ends_with("rx        p1 3 bytes"), "{first:?}");
            let text = "0.000000006 frame 7      +        1 ns  forward   by flood to p0 3";
            assert_eq!(second.text, text);
            assert_eq!(first.event["port_name"], "p1");
            assert_eq!(second.event["output_names"], json!(["p0"]), "there is no port 3");
            assert_eq!(
                (&second.event["t_ps"], &second.event["by"]),
                (&6_000.into(), &"flood".into())
            );
            let text = serde_json::to_string(&shown).unwrap();
            assert_eq!(text.contains("\"bytes\":\"00ab0f\""), !path.bytes.is_empty(), "{text}");
            assert_eq!(serde_json::from_str::<ShownPath>(&text).unwrap(), shown);
        }
    }
}
