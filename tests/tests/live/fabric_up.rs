//! Whole fabrics as processes: a switch each, hosts, devices and GFDs, their manager, on veth pairs in a namespace.
//!
//! `weft fabric up --processes` of a figure → `weft endpoint ctl` and `weft fm` by their sockets.
//!
//! Units: bytes.
//! Source: CXL 3.1 sections 7.7.2.4, 7.7.6.1.

use serde_json::Value;
use weft_tests::fabric_here::file;
use weft_tests::fabric_up::Up;

/// Each host sees exactly its hierarchy of the figure, by config reads over the wire; writes and reads of a host and of
/// a device reach the other, and no second host.
#[test]
fn figure_7_45_as_processes() {
    let Some(up) = Up::start("figure_7_45_as_processes", "7-45") else { return };
    hierarchies(&up);
    up.stop();
}

/// CXL 3.1 section 7.7.12.1: the same, of switches that have their PIDs, routes and bindings from their files. Nothing has
/// commanded them, and nothing can; the manager beside them knows what there is, and proves its routes.
#[test]
fn a_static_fabric_as_processes() {
    let name = "a_static_fabric_as_processes";
    let Some(mut up) = Up::start_text(name, &file("static"), &[]) else { return };
    hierarchies(&up);
    let status = up.fm("status");
    assert_eq!(status.pointer("/calls").and_then(Value::as_u64), Some(0), "{status}");
    let (code, routes) = up.ask_fm("routes --prove");
    assert!(code == 0 && routes.to_string().contains("none of them backwards"), "{routes}");
    let (code, refused) = up.ask_fm("unbind entry/0/1");
    assert!(code != 0 && refused.to_string().contains("static"), "{refused}");
    // A switch that is killed and started again is as before, without anybody.
    let before = up.functions("h0");
    let sees = |up: &Up, wanted: bool| ((up.functions("h0") == before) == wanted).then_some(());
    up.kill("sw1");
    up.until("host 0 misses what is behind the switch", |up| sees(up, false));
    up.run("sw1");
    up.until("host 0 sees all again", |up| sees(up, true));
    up.stop();
}

/// A fabric that is killed takes its processes with it; the next one removes its pairs, and is as the first.
#[test]
fn a_fabric_that_is_killed_leaves_nothing() {
    let text = "switch = [{ name = \"sw\" }]\nhost = [{ name = \"h\", at = \"sw\", bind = [\"dev\"] }]\n\
        device = [{ name = \"dev\", at = \"sw\" }]\n";
    let started = Up::start_text("a_fabric_that_is_killed_leaves_nothing", text, &[]);
    let Some(mut up) = started else { return };
    let before = up.functions("h");
    up.kill_all_and_start();
    assert_eq!(up.functions("h"), before);
    let second = up.net().run(
        "sw",
        weft_tests::netns::weft().to_str().unwrap(),
        &format!(
            "fabric up --processes --once {0}/topology.toml --dir {0}/second",
            up.folder().display()
        ),
    );
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(!second.status.success() && said.contains("a running fabric"), "{said}");
    assert_eq!(up.functions("h"), before, "the second one has left it alone");
    up.stop();
}

/// What each host of figure 7-45 sees, and what it and its devices reach.
fn hierarchies(up: &Up) {
    let own = |list: &[(&str, &str)]| -> Vec<(String, String)> {
        list.iter().map(|(bdf, id)| ((*bdf).to_owned(), (*id).to_owned())).collect()
    };
    let (root, bridge, gae) = ("1e98:0100", "1e98:5747", "1e98:5746");
    let first = [
        ("00:00.0", root),
        ("01:00.0", bridge),
        ("02:00.0", bridge),
        ("03:00.0", "1e98:0d00"),
        ("02:01.0", bridge),
        ("06:00.0", bridge),
        ("07:00.0", bridge),
        ("08:00.0", "1e98:0d01"),
        ("06:00.1", gae),
        ("02:02.0", bridge),
        ("0b:00.0", bridge),
        ("0c:00.0", bridge),
        ("0d:00.0", "1e98:0d04"),
        ("0b:00.1", gae),
        ("01:00.1", gae),
    ];
    let second = [
        ("00:00.0", root),
        ("01:00.0", bridge),
        ("02:00.0", bridge),
        ("03:00.0", "1e98:0d03"),
        ("02:01.0", bridge),
        ("06:00.0", bridge),
        ("07:00.0", bridge),
        ("08:00.0", "1e98:0d02"),
        ("06:00.1", gae),
        ("01:00.1", gae),
    ];
    assert_eq!(up.functions("h0"), own(&first));
    assert_eq!(up.functions("h1"), own(&second));
    // Both hosts have a device at this address; what host 0 writes is in its own only.
    let bar = 0x40_0020_0000_u64;
    up.well("h0", &format!("write {bar} 64KiB --seed=6 --check"));
    up.well("ep1", "peek 0 64KiB --seed=6 --bar 0");
    assert_eq!(up.ask("ep2", "peek 0 64KiB --seed=6 --bar 0").0, 1);
    // The device writes into the memory of its host and reads it back; the other host has nothing of it.
    up.well("ep1", "dma write 0x200000 64KiB --seed=8 --check --via plain");
    up.well("h0", "peek 0x200000 64KiB --seed=8");
    assert_eq!(up.ask("h1", "peek 0x200000 64KiB --seed=8").0, 1);
}

/// 1 MiB over four GFDs and two switches, written by one host and read by the other, byte for byte.
#[test]
fn memory_of_four_gfds_over_veth() {
    let Some(up) = Up::start("memory_of_four_gfds_over_veth", "7-26") else { return };
    up.well("h0", "write 0x10000000000 1MiB --seed=3");
    let read = up.well("h1", "read 0x10000000000 1MiB --seed=3");
    assert_eq!(read.pointer("/transfer/read").and_then(Value::as_u64), Some(1 << 20), "{read}");
    for gfd in ["g0", "g1", "g2", "g3"] {
        let status = up.well(gfd, "status");
        let writes = status.pointer("/status/counts/gfd/writes").and_then(Value::as_u64);
        assert_eq!(
            writes,
            Some(1_024),
            "{gfd} has its granules of 4 KiB by requests of 256: {status}"
        );
    }
    // The operator is told of what a device refuses, at whichever switch it is: who, where, and by which rule.
    for (gfd, hpa) in [("g0", "0x10800000000"), ("g1", "0x10800001000")] {
        assert_eq!(up.ask("h1", &format!("read {hpa} 64")).0, 1, "behind what it was given");
        let (device, access) = (format!("{gfd} (PID "), format!(" at {hpa}: no decoder"));
        up.until("the event", |up| {
            let events = up.fm("events").to_string();
            let told = events.split('"').any(|line| {
                line.contains(&device)
                    && line.contains("refused h1 (PID ")
                    && line.contains(&access)
            });
            told.then_some(())
        });
    }
    up.stop();
}

/// CXL 3.1 section 7.7.3.3: an accelerator of host 0 writes and reads memory of host 1, byte for byte; a host that may
/// not is refused, and has written nothing.
#[test]
fn gim_of_a_host_over_veth() {
    let Some(up) = Up::start("gim_of_a_host_over_veth", "7-40") else { return };
    let gim = 0x100_0000_0000_u64;
    up.well("acc0", &format!("dma write {gim} 256KiB --seed=5"));
    up.well("h1", "peek 0x100000 256KiB --seed=5");
    let read = up.well("acc0", &format!("dma read {gim} 256KiB --seed=5"));
    assert_eq!(read.pointer("/transfer/read").and_then(Value::as_u64), Some(256 << 10), "{read}");
    up.well("h0", &format!("read {gim} 256KiB --seed=5"));
    for word in ["write", "read"] {
        let (code, answer) = up.ask("h2", &format!("{word} {gim} 4KiB --seed=6"));
        let refused = answer.pointer("/transfer/failures/UR").and_then(Value::as_u64);
        assert!(code == 1 && refused > Some(0), "{word}: {answer}");
    }
    up.well("h1", "peek 0x100000 256KiB --seed=5");
    up.stop();
}

/// CXL 3.1 section 2.5: two hosts have a logical device each, of one device, one of them across the fabric; what one writes, the other's
/// has not. The device is killed and started again: both hosts find theirs again, and its memory is zeros.
#[test]
fn a_device_with_logical_devices_as_processes() {
    let name = "a_device_with_logical_devices_as_processes";
    let text = format!("{}ld_bandwidth = [0, 64, 0, 32]\nld_limit = [0, 0, 64, 0]\n", file("mld"));
    let Some(mut up) = Up::start_text(name, &text, &[]) else { return };
    let rows = up.fm("ld");
    let shown: Vec<bool> =
        rows.as_array().expect("rows").iter().map(|row| !row["bridge"].is_null()).collect();
    assert_eq!(shown, [true, false, true, false], "{rows}");
    let bars =
        ["h0", "h1"].map(|host| up.until("it sees its logical device", |up| bar_of_ld(up, host)));
    for (host, bar, ld, other) in [("h0", bars[0], 0, 2), ("h1", bars[1], 2, 0)] {
        up.well(host, &format!("write {bar} 64KiB --seed={} --check", ld + 30));
        up.well("mld0", &format!("peek 0 64KiB --seed={} --ld {ld} --bar 0", ld + 30));
        let foreign = format!("peek 0 64KiB --seed={} --ld {other} --bar 0", ld + 30);
        assert_eq!(up.ask("mld0", &foreign).0, 1, "{host}: LD {other} has nothing of it");
    }
    let (code, refused) = up.ask("mld0", "peek 0 64 --bar 0");
    assert!(code != 0 && refused.to_string().contains("name one by ld"), "{refused}");
    // Memory is dealt out by command; what a host uses stays.
    up.fm("ld allocate mld0 3 0");
    up.fm("ld allocate mld0 1 512MiB");
    up.fm("ld limit mld0 2 128");
    let (code, refused) = up.ask_fm("ld allocate mld0 0 0");
    assert!(code != 0 && refused.to_string().contains("unbind it first"), "{refused}");
    up.well("h1", &format!("write {} 256KiB --seed=9 --check", bars[1]));
    // Dynamic capacity, behind the first GiB: the host reaches what was added, at once, and the other does not.
    let dynamic = bars.map(|bar| bar + (1 << 30));
    up.fm("ld capacity add mld0 2 4MiB --tag db");
    up.well("h1", &format!("write {} 64KiB --seed=4 --check", dynamic[1]));
    assert_eq!(up.ask("h0", &format!("read {} 64", dynamic[0])).0, 1, "it was not added to LD 0");
    let (code, refused) = up.ask_fm("ld capacity release mld0 2 --tag db");
    assert!(code != 0 && refused.to_string().contains("give --force"), "{refused}");
    up.fm("ld capacity release mld0 2 --tag db --force");
    assert_eq!(up.ask("h1", &format!("read {} 64", dynamic[1])).0, 1, "it was released");
    up.fm("ld capacity block mld0 1MiB"); // smaller than a device has them that was started anew
    up.fm("ld capacity add mld0 0 1MiB --tag pair");
    up.fm("ld capacity share mld0 3 pair");
    // At once, so that the manager may not have looked while the device was away.
    up.kill("mld0");
    up.run_again("mld0");
    up.until("its logical devices have again what they had", |up| {
        let (code, rows) = up.ask_fm("ld");
        let of = |ld: usize, key: &str| rows.get(ld)?.get(key)?.as_u64();
        let has = [of(1, "memory"), of(3, "memory"), of(2, "limit"), of(1, "bandwidth")];
        (code == 0 && has == [Some(512 << 20), Some(0), Some(128), Some(64)]).then_some(())
    });
    up.until("dynamic capacity is added again", |up| {
        let (code, rows) = up.ask_fm("ld capacity list");
        let of = |place: &str| rows.pointer(place).and_then(Value::as_u64);
        let has = ["/0/extents/0/ld", "/0/extents/0/len", "/0/free", "/0/extents/1/ld"].map(of);
        (code == 0 && has == [Some(0), Some(1 << 20), Some(511 << 20), Some(3)]).then_some(())
    });
    for (host, ld) in [("h0", 0), ("h1", 2)] {
        let bar = up.until("the host finds its logical device again", |up| {
            (up.ask(host, "enumerate").0 == 0).then_some(())?;
            bar_of_ld(up, host).filter(|bar| up.ask(host, &format!("read {bar} 64")).0 == 0)
        });
        up.well(host, &format!("write {bar} 64KiB --seed={} --check", ld + 50));
        up.well("mld0", &format!("peek 0 64KiB --seed={} --ld {ld} --bar 0", ld + 50));
    }
    up.stop();
}

/// Where a host sees the memory of its logical device.
fn bar_of_ld(up: &Up, host: &str) -> Option<u64> {
    fn find(tree: &Value) -> Option<u64> {
        match tree {
            Value::Array(all) => all.iter().find_map(find),
            Value::Object(map) => {
                let is_it = map.get("device").and_then(Value::as_u64) == Some(0x0D00);
                let address = tree.pointer("/bars/0/address").and_then(Value::as_u64);
                address.filter(|_| is_it).or_else(|| map.values().find_map(find))
            }
            _ => None,
        }
    }
    find(&up.well(host, "tree"))
}
