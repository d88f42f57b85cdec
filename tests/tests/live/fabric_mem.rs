//! Transfers of fabric memory over veth: two hosts as processes, by `weft endpoint ctl H mem`; clients at the same time, and
//! a peer whose process is killed.
//!
//! `weft fabric up --processes` of `pcaps/fabric/fabric-memory.toml` → commands by the hosts' sockets.
//!
//! Units: bytes.
//! Source: docs/fabric-memory.md.

use serde_json::Value;
use weft_tests::fabric_here::file;
use weft_tests::fabric_up::Up;

fn number(answer: &Value, place: &str) -> u64 {
    let found = answer.pointer(place).and_then(Value::as_u64);
    found.unwrap_or_else(|| panic!("no {place} in {answer}"))
}

fn peers(up: &Up, host: &str) -> usize {
    let list = up.well(host, "mem list");
    let peers = list.pointer("/mem/list/peers").and_then(Value::as_array);
    peers.expect("a list").len()
}

/// Clients at the same time write their own parts; each byte is where it belongs. Then the peer's process is killed: what is
/// under way fails, nothing is left in use, and once it is back, memory can be transferred again.
#[test]
fn fabric_memory_as_processes() {
    let name = "fabric_memory_as_processes";
    let Some(mut up) = Up::start_text(name, &file("fabric-memory"), &["--answer-ms", "2000"])
    else {
        return;
    };
    for host in ["h0", "h1"] {
        up.well(host, "mem register 1MiB 16MiB");
    }
    let peer = number(&up.well("h0", "mem connect 0x21000000000"), "/mem/peer");
    std::thread::scope(|scope| {
        for part in 1..=4_u64 {
            let up = &up;
            scope.spawn(move || {
                let at = part << 20;
                up.well("h0", &format!("store {at} 256KiB --seed={part}"));
                let moved = up.well("h0", &format!("mem write {peer} {at}:{at}:256KiB"));
                let status = moved.pointer("/mem/transfer/status").and_then(Value::as_str);
                assert_eq!(status, Some("completed"), "{moved}");
                up.well("h1", &format!("peek {at} 256KiB --seed={part}"));
            });
        }
    });
    let begun = up.well("h0", &format!("mem read {peer} 1MiB:1MiB:16MiB --no-wait"));
    let transfer = number(&begun, "/mem/transfer/transfer");
    let tree = up.functions("h1");
    assert!(tree.len() > 1, "{tree:?}");
    up.kill("h1");
    up.until("the peer is gone", |up| (peers(up, "h0") == 0).then_some(()));
    let (code, end) = up.ask("h0", &format!("mem status {transfer}"));
    let status = end.pointer("/mem/transfer/status").and_then(Value::as_str);
    assert!(code == 1 && status == Some("failed"), "{code} {end}");
    up.until("requests are over", |up| {
        let list = up.well("h0", "mem list");
        let in_use =
            ["streams", "requests"].map(|what| number(&list, &format!("/mem/list/{what}")));
        (in_use == [0, 0]).then_some(())
    });
    let (code, refused) = up.ask("h0", &format!("mem write {peer} 1MiB:1MiB:64"));
    assert!(code == 4 && refused.to_string().contains("is not connected"), "{code} {refused}");
    up.run("h1");
    up.until("h1 is back", |up| (up.ask("h1", "status").0 == 0).then_some(()));
    up.until("it sees what it saw", |up| {
        (up.ask("h1", "enumerate").0 == 0 && up.functions("h1") == tree).then_some(())
    });
    up.until("its window is there", |up| up.map().is_ok().then_some(()));
    up.well("h1", "mem register 1MiB 16MiB");
    let connected = |up: &Up| {
        let (code, answer) = up.ask("h0", "mem connect 0x21000000000 --timeout-ms 2000");
        (code == 0).then(|| number(&answer, "/mem/peer"))
    };
    let peer = up.until("it is connected again", connected);
    up.well("h0", &format!("mem write {peer} 1MiB:2MiB:256KiB"));
    up.well("h1", "peek 2MiB 256KiB --seed=1");
    up.stop();
}
