//! Accelerators that access memory devices directly, as processes on veth pairs in a namespace.
//!
//! `weft fabric up --processes` of `pcaps/fabric/p2p.toml` and `p2p-ld.toml` → `weft endpoint ctl` and `weft fm` by their sockets.
//!
//! Units: bytes.
//! Source: CXL 3.1 section 7.7.9.

use serde_json::Value;
use weft_tests::fabric_here::file;
use weft_tests::fabric_up::Up;

/// What a refused access counts.
fn refused(up: &Up, who: &str, hpa: u64) {
    for word in ["write", "read"] {
        let (code, answer) = up.ask(who, &format!("dma {word} {hpa} 4KiB --seed=6"));
        let counted = answer.pointer("/transfer/failures/UR").and_then(Value::as_u64);
        assert!(code == 1 && counted > Some(0), "{who} {word}: {answer}");
    }
}

fn states(up: &Up) -> Vec<(String, String)> {
    let answer = up.fm("p2p list");
    let rows = answer.as_array().cloned().unwrap_or_default();
    let text = |row: &Value, key: &str| {
        row.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    rows.iter().map(|row| (text(row, "name"), text(row, "state"))).collect()
}

/// CXL 3.1 section 7.7.9: an accelerator writes into a memory device of its host at another switch, one of another host of
/// the same domain reads it back, byte for byte; one of another domain is refused, and so is whoever loses access.
#[test]
fn memory_devices_over_veth() {
    let Some(mut up) = Up::start_text("memory_devices_over_veth", &file("p2p"), &[]) else {
        return;
    };
    let (mem0, mem1) = (0x100_0000_0000_u64, 0x110_0000_0000_u64);
    let given = |name: &str| (name.to_owned(), "given".to_owned());
    assert_eq!(states(&up), [given("shared"), given("theirs")]);
    up.well("acc0", &format!("dma write {mem0} 256KiB --seed=5"));
    up.well("mem0", "peek 0 256KiB --seed=5");
    let read = up.well("acc1", &format!("dma read {mem0} 256KiB --seed=5"));
    assert_eq!(read.pointer("/transfer/read").and_then(Value::as_u64), Some(256 << 10), "{read}");
    up.well("acc0", &format!("dma write {mem1} 64KiB --seed=7 --check"));
    up.well("mem1", "peek 0 64KiB --seed=7");
    // Its host loads and stores the same memory by CXL.mem, and no other host does.
    up.well("h0", &format!("read {mem0} 4KiB --seed=5 --via cxl-mem"));
    up.well("h0", &format!("write {} 4KiB --seed=8 --via cxl-mem", mem0 + (1 << 20)));
    up.well("mem0", "peek 1MiB 4KiB --seed=8");
    assert_eq!(up.ask("h2", &format!("read {mem0} 64 --seed=5 --via cxl-mem")).0, 1);
    refused(&up, "acc2", mem0);
    refused(&up, "acc1", mem1);
    let (code, why) =
        up.ask_fm(&format!("p2p add x --from acc2 --to mem0 --size 256MiB --hpa {mem0}"));
    assert!(code != 0 && why.to_string().contains("p2p-same-domain"), "{why}");
    up.fm("revoke shared acc1");
    refused(&up, "acc1", mem0);
    up.well("acc0", &format!("dma read {mem0} 256KiB --seed=5"));
    // A host whose process ends leaves its domain: what its memory device gave is withdrawn, what others have stays.
    up.fm("p2p remove shared");
    refused(&up, "acc0", mem0);
    let before = up.functions("h1").len();
    up.kill("h1");
    up.until("the manager has withdrawn it", |up| {
        let waits = ("theirs".to_owned(), "waits".to_owned());
        (states(up) == [waits]).then_some(())
    });
    refused(&up, "acc0", mem1);
    // It comes back, tells its domain again, and all is as before.
    up.run("h1");
    up.until("host 1 finds its devices again", |up| {
        let done = up.ask("h1", "enumerate").0 == 0;
        (done && up.functions("h1").len() == before).then_some(())
    });
    assert_eq!(up.map(), Ok(()));
    assert!(states(&up).contains(&given("theirs")), "{:?}", states(&up));
    up.well("acc0", &format!("dma write {mem1} 64KiB --seed=9 --check"));
    up.well("mem1", "peek 0 64KiB --seed=9");
    up.stop();
}

/// CXL 3.1 sections 2.5 and 7.7.9: accelerators reach the logical device that each was given, and no other one; the same after the
/// device was killed and started again, once its hosts have found it.
#[test]
fn logical_devices_over_veth() {
    let Some(mut up) = Up::start_text("logical_devices_over_veth", &file("p2p-ld"), &[]) else {
        return;
    };
    let [zero, one, two] = [0x100_0000_0000_u64, 0x110_0000_0000, 0x120_0000_0000];
    let all = [("acc0", zero, 0), ("acc2", one, 1), ("acc1", two, 2), ("acc3", two, 2)];
    let reach = |up: &Up, first: u64| {
        for (seed, (who, hpa, ld)) in (first..).zip(all) {
            up.well(who, &format!("dma write {hpa} 256KiB --seed={seed} --check"));
            up.well("mld0", &format!("peek 0 256KiB --seed={seed} --ld {ld} --bar 0"));
            let other = (ld + 1) % 3;
            let foreign = format!("peek 0 4KiB --seed={seed} --ld {other} --bar 0");
            assert_eq!(up.ask("mld0", &foreign).0, 1, "{who}: LD {other} has nothing of it");
        }
    };
    reach(&up, 1);
    refused(&up, "acc0", one);
    refused(&up, "acc3", zero);
    up.well("h1", &format!("write {} 4KiB --seed=8 --via cxl-mem", two + (1 << 20)));
    up.well("mld0", "peek 1MiB 4KiB --seed=8 --ld 2 --bar 0");
    let before = ["h0", "h1"].map(|host| up.functions(host).len());
    up.kill("mld0");
    up.until("the manager misses the device", |up| {
        let inventory = up.fm("topology");
        let ports = inventory.pointer("/switches/0/ports").and_then(Value::as_array);
        ports.expect("ports").iter().all(|port| port["lds"] == 0).then_some(())
    });
    up.run_again("mld0");
    for (host, before) in ["h0", "h1"].into_iter().zip(before) {
        up.until("the host finds its logical devices again", |up| {
            let done = up.ask(host, "enumerate").0 == 0;
            (done && up.functions(host).len() == before).then_some(())
        });
    }
    up.until("its memory is placed again, and what was given mapped", |up| {
        (up.map() == Ok(()) && up.ask("acc0", &format!("dma read {zero} 64")).0 == 0).then_some(())
    });
    reach(&up, 20);
    up.stop();
}
