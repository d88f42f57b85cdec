//! Results in the columns of other simulators.
//!
//! [`hpcc_fct`] writes [`Results`] as `fct.txt` of HPCC. Times are nanoseconds, rounded down; sizes are bytes of
//! payload.
//!
//! Source: HPCC's simulator, `fct.txt`: `sip dip sport dport bytes start fct standalone_fct`.

use std::fmt::Write;

use weft_sim::results::Results;

/// A line for each delivered flow, in the order of their numbers. Addresses are those of nodes of HPCC, 0x0b000001 +
/// 256 x number; the two ports are the upper and the lower half of the number of the flow.
#[must_use]
pub fn hpcc_fct(results: &Results) -> Vec<u8> {
    let mut text = String::new(); // writing to it cannot fail
    for flow in &results.flows {
        let (Some(start), Some(fct)) = (flow.start_ps, flow.fct_ps) else { continue };
        let addr = |host: u32| 0x0b00_0001_u32.wrapping_add(host << 8);
        // Numbers of flows have 32 bits: as two ports of 16 bits each flow keeps a line of its own.
        let (high, low) = (flow.id >> 16, flow.id & 0xFFFF);
        let (from, to, bytes) = (addr(flow.from), addr(flow.to), flow.bytes);
        let [start, fct, alone] = [start, fct, flow.ideal_fct_ps].map(|ps| ps / 1_000);
        let _ = writeln!(text, "{from:08x} {to:08x} {high} {low} {bytes} {start} {fct} {alone}");
    }
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_sim::results::flow::FlowResult;

    #[test]
    fn flows_that_came_have_a_line() {
        let came = FlowResult {
            id: 65_537,
            from: 1,
            to: 2,
            bytes: 10,
            start_ps: Some(2_000),
            fct_ps: Some(1_234_567),
            ideal_fct_ps: 1_000_000,
            ..FlowResult::default()
        };
        let lost = FlowResult { start_ps: Some(1), ..FlowResult::default() };
        let results = Results { flows: vec![lost, came], ..Results::default() };
        let text = String::from_utf8(hpcc_fct(&results)).unwrap();
        assert_eq!(text, "0b000101 0b000201 1 1 10 2 1234 1000\n");
    }
}
