//! Lines of requests, good, bad and mutated, against a switch that is only numbers.

use weft_base::rng::Rng;
use weft_rpc::LINE_LEN_MAX;

use super::testing::Recorder;
use super::*;

fn ask(line: &str) -> Value {
    let answer = handle_line(line.as_bytes(), &Recorder::default());
    assert_eq!(answer.last(), Some(&b'\n'));
    serde_json::from_slice(&answer).unwrap()
}

#[test]
fn requests_are_met_or_refused() {
    #[rustfmt::skip] // columns: line, key of the answer, part of its text
    let cases = [
        (r#"{"cmd":"show","what":"conservation"}"#, "ok", r#""conservation":{"#),
        (r#"{"cmd":"show","what":"fdb"}"#, "ok", "id:0005"),
        (r#"{"cmd":"show","what":"nothing"}"#, "error", "unknown variant"),
        (r#"{"cmd":"show"}"#, "error", "missing field `what`"),
        (r#"{"cmd":"fdb_add","addr":"id:0005","port":"p0"}"#, "ok", "done"),
        (r#"{"cmd":"fdb_add","addr":"id:0005","port":"p9"}"#, "error", "no port p9"),
        (r#"{"cmd":"fdb_add","addr":"nonsense","port":"p0"}"#, "error", "expected an address"),
        (r#"{"cmd":"fdb_add","addr":"id:0005","port":"p0","vid":4095}"#, "error", "expected a VLAN 1..=4094, found 4095"),
        (r#"{"cmd":"fdb_del","addr":"02:00:00:00:00:01","vid":7}"#, "ok", "done"),
        (r#"{"cmd":"reload"}"#, "ok", "epoch"),
        (r#"{"cmd":"mirror","port":"p0","to":{"file":"/x.pcapng"}}"#, "ok", "done"),
        (r#"{"cmd":"mirror","port":"p0","to":null}"#, "ok", "done"),
        (r#"{"cmd":"port_tx","port":"p0","on":false}"#, "ok", "done"),
        (r#"{"cmd":"conform_params","packet_size":64}"#, "ok", "packet_size"),
        (r#"{"cmd":"conform_params","packet_size":0}"#, "error", "expected 14 to 9728 bytes, found 0"),
        (r#"{"cmd":"trace","count":3}"#, "ok", "tracing"),
        (r#"{"cmd":"trace","bytes":true}"#, "ok", "tracing"),
        (r#"{"cmd":"trace","bytes":1}"#, "error", "invalid type"),
        (r#"{"cmd":"trace","bytes":true,"colour":1}"#, "error", "unknown field `colour`"),
        (r#"{"cmd":"trace","filter":"x"}"#, "error", "no filter x"),
        (r#"{"cmd":"show","what":"fabric"}"#, "ok", r#"{"fabric":null}"#),
        (r#"{"cmd":"pbr_edge","port":"p0","hpa":"0x10000000000"}"#, "ok", "p0"),
        (r#"{"cmd":"pbr_edge","port":"p0","hpa":"far"}"#, "error", "expected an address"),
        (r#"{"cmd":"pbr_route","dpid":4095}"#, "ok", "4095"),
        (r#"{"cmd":"pbr_route","dpid":4096}"#, "error", "expected a PID 0..=4095, found 4096"),
        (r#"{"cmd":"reload","colour":1}"#, "error", "unknown field `colour`"),
        (r#"{"cmd":"fly"}"#, "error", "unknown variant `fly`"),
        ("[]", "error", "bad_request"),
        ("not json", "error", "bad_request"),
        ("", "error", "bad_request"),
    ];
    for (line, key, part) in cases {
        let answer = ask(line);
        let text = answer.get(key).unwrap_or_else(|| panic!("{line}: {answer}")).to_string();
        assert!(text.contains(part), "{line}: {text}");
    }
}

#[test]
fn deep_and_long_lines_are_refused() {
    let deep = "[".repeat(LINE_LEN_MAX);
    let long = format!("{{\"cmd\":\"{}\"}}", "x".repeat(LINE_LEN_MAX));
    for line in [deep, long] {
        assert!(ask(&line).get("error").is_some());
    }
}

/// 20,000 seeded mutations of good requests: each is answered with one line of JSON.
#[test]
fn mutated_lines_are_always_answered() {
    let seed = 0x36A0;
    let mut rng = Rng::new(seed);
    let good = [
        r#"{"cmd":"show","what":"ports","restart_watermarks":true}"#,
        r#"{"cmd":"fdb_add","addr":"02:00:00:00:00:01","port":"p0","vid":7}"#,
        r#"{"cmd":"mirror","port":"p0","to":{"port":"p1"}}"#,
        r#"{"cmd":"port_tx","port":"p0","on":true}"#,
        r#"{"cmd":"trace","filter":"silent","count":18446744073709551615,"bytes":true}"#,
        r#"{"cmd":"trace","count":1,"bytes":true}"#,
    ];
    let backend = Recorder::default();
    let (mut met, mut refused) = (0, 0);
    for round in 0..20_000 {
        let mut line =
            good[usize::try_from(rng.below(good.len() as u64)).unwrap()].as_bytes().to_vec();
        for _ in 0..rng.below(4) {
            let at = usize::try_from(rng.below(line.len() as u64)).unwrap();
            match rng.below(3) {
                0 => line[at] = u8::try_from(rng.below(256)).unwrap(),
                1 => drop(line.remove(at)),
                _ => line.insert(at, b"\"{}[]:,0\\"[usize::try_from(rng.below(9)).unwrap()]),
            }
        }
        let answer = handle_line(&line, &backend);
        let value: Value = serde_json::from_slice(&answer)
            .unwrap_or_else(|error| panic!("seed {seed:#x} round {round}: {error}"));
        assert_eq!(value.as_object().unwrap().len(), 1, "seed {seed:#x} round {round}");
        let is_met = value.get("ok").is_some();
        (met, refused) = if is_met { (met + 1, refused) } else { (met, refused + 1) };
    }
    assert!(met > 1_000 && refused > 1_000, "{met} met, {refused} refused");
}
