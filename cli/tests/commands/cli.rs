//! The binary as a user meets it: standard output, standard error and exit codes of command lines.
//!
//! Source: `weft --help`.

use std::path::Path;

use assert_cmd::Command;
use serde_json::Value;

/// Exit codes of `weft --help`.
const OK: i32 = 0;
const USAGE: i32 = 2;
const SYSTEM: i32 = 3;
const SWITCH: i32 = 4;

struct Ended {
    code: i32,
    out: String,
    err: String,
}

fn weft(args: &[&str]) -> Ended {
    weft_in(Path::new("."), args)
}

fn weft_in(dir: &Path, args: &[&str]) -> Ended {
    let mut command = Command::cargo_bin("weft").unwrap();
    let output = command.current_dir(dir).env("XDG_RUNTIME_DIR", dir).args(args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended {
        code: output.status.code().expect("no signal ends it"),
        out: text(output.stdout),
        err: text(output.stderr),
    }
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn exit_codes_are_those_of_the_help() {
    #[rustfmt::skip] // columns: arguments, code, part of standard error
    let cases: &[(&[&str], i32, &str)] = &[
        (&["--version"], OK, ""),
        (&["config", "defaults"], OK, ""),
        (&["endpoint", "host"], USAGE, "expected one --port, found 0"),
        (&["endpoint", "host", "--port", "nosuchdev0", "--mode", "fast"], USAGE, "mode: expected flit"),
        (&["endpoint", "device", "--port", "pcap:x"], USAGE, "expected tap or af_packet"),
        (&["endpoint", "hbr", "--port", "a"], USAGE, "a link upstream and 1 to 32 downstream"),
        (&["endpoint", "gfd", "--port", "nosuchdev0"], SYSTEM, "open the device"),
        (&["endpoint", "host", "-c", "nosuch.toml"], SYSTEM, "read nosuch.toml"),
        (&["endpoint", "ctl", "./nosuch.sock", "status"], SWITCH, "no endpoint listens at ./nosuch.sock"),
        (&["fly"], USAGE, "unrecognized subcommand 'fly'"),
        (&["config", "check", "--port", "p0=veth0"], OK, ""),
        (&["config", "check"], USAGE, "error: default: port: expected at least one port"),
        (&["config", "check", "--set", "ecn.ecn_enabled=7", "--port", "p0=veth0"], USAGE,
         "error: --set ecn.ecn_enabled=7: ecn.ecn_enabled: expected true or false, found 7"),
        (&["config", "check", "/nonexistent.toml"], SYSTEM, "error: read /nonexistent.toml: No such file"),
        (&["bench", "ports", "--tx", "a", "--rx", "a"], USAGE, "--tx a --rx a: expected two ports"),
        (&["bench", "ports", "--tx", "a"], USAGE, "--rx"),
        (&["bench", "ports", "--tx", "a", "--rx", "b", "--size", "63"], USAGE, "expected 64 to 9220 bytes"),
        (&["bench", "ports", "--tx", "a", "--rx", "b", "--kind", "fly"], USAGE, "--kind fly: expected one of port.kind"),
        (&["bench", "ports", "--tx", "a", "--rx", "b", "--html", "/nonexistent/a.html"], SYSTEM, "write /nonexistent/a.html"),
        (&["bench", "ports", "--tx", "nosuch0", "--rx", "nosuch1"], SYSTEM, "open the ports: port tx: nosuch0"),
        (&["bench", "pipeline", "--macs", "3", "--ports", "4"], USAGE, "3 stations: expected 4 to 32767"),
        (&["bench", "pipeline", "--size", "1522", "--format", "gen1"], USAGE, "gen1 frame of 1518 bytes"),
        (&["model", "islip", "--ports", "65"], USAGE, "65 ports: expected 1 to 64"),
        (&["decode", "/nonexistent.pcap"], SYSTEM, "/nonexistent.pcap"),
        (&["extcap"], USAGE, "expected --extcap-interfaces or --extcap-interface NAME"),
        (&["extcap", "--extcap-dlts"], USAGE, "--extcap-interface <NAME>"),
        (&["extcap", "--extcap-interface", "weft:no:p0", "--capture"], USAGE, "--fifo <FILE>"),
        (&["show", "ports", "--socket", "/nonexistent/mgmt.sock"], SWITCH, "nothing listens at /nonexistent/mgmt.sock"),
        (&["show", "ports", "--interval", "0", "--watch"], USAGE, "expected an interval of 0.05 to 86400 s"),
        (&["gen", "lite", "--vlan", "3", "--out", "/dev/null"], USAGE, "lite frame: cannot have a tag"),
        (&["gen", "gen1", "--out", "/nonexistent/x.pcap"], SYSTEM, "/nonexistent/x.pcap"),
    ];
    for (args, code, part) in cases {
        let ended = weft(args);
        assert_eq!(ended.code, *code, "{args:?}: {}", ended.err);
        assert!(ended.err.contains(part), "{args:?}: {}", ended.err);
        assert!(!ended.err.contains('\x1b'), "{args:?}: colour without a terminal");
        let is_silent = ended.err.is_empty();
        assert_eq!(is_silent, *code == OK, "{args:?}: {}", ended.err);
    }
}

#[test]
fn all_refusals_of_a_file_are_told_a_line_each() {
    let dir = tempfile::tempdir().unwrap();
    let text = "[buffer]\ndt_alfa = 2\n[ecn]\necn_threshold_low = 140\n";
    std::fs::write(dir.path().join("w.toml"), text).unwrap();
    let ended = weft_in(dir.path(), &["config", "check", "w.toml"]);
    let want = "error: w.toml:2:1: buffer: unknown key \"dt_alfa\", did you mean \"dt_alpha\"?\n\
                error: w.toml:4:21: ecn.ecn_threshold_low: expected a whole number 0..=100, found 140\n";
    assert_eq!((ended.code, ended.err.as_str()), (USAGE, want));
}

/// Whatever a file is for, each mistake in it has its place, and all are told at once.
#[test]
fn all_kinds_of_file_are_refused_with_the_places_of_all_mistakes() {
    #[rustfmt::skip] // columns: arguments, text of the file, what is said of it behind its name
    let cases: &[(&[&str], &str, &[&str])] = &[
        (&["fabric", "check", "w.toml"], "[[swich]]\nname = 'a'\n[[host]]\nname = 'h'\nmemory_mb = 1\nsegment = 300\n", &[
            "1:3: unknown section \"swich\", did you mean \"switch\"?",
            "5:1: host: unknown key \"memory_mb\", did you mean \"memory_mib\"?",
            "6:11: host.segment: expected a whole number 0..=255, found 300",
        ]),
        (&["fabric", "up", "--processes", "w.toml"], "strat = 'static'\nabout = 1\n", &[
            "1:1: unknown key \"strat\", did you mean \"start\"?",
            "2:9: about: expected text, found 1",
        ]),
        (&["fabric", "map", "t.toml", "--hosts", "w.toml"], "vxlan_prt = 1\nvni = -1\n[[machine]]\nname = 'm'\nparts = ['s']\n", &[
            "1:1: unknown key \"vxlan_prt\", did you mean \"vxlan_port\"?",
            "2:7: vni: expected a whole number 0..=4294967295, found -1",
            "3:1: machine: expected a key \"address\", found none",
        ]),
        (&["fm", "serve", "--entry", "unix:/nonexistent", "--want", "w.toml"], "[fm]\nswich_ns = 1\n[[memory]]\nname = 'm'\nhosts = ['h', 5]\nsize = '4giB'\nhpa = 0\n", &[
            "2:1: fm: unknown key \"swich_ns\", did you mean \"switch_ns\"?",
            "5:15: memory.hosts: expected text, found 5",
            "6:8: memory.size: expected bytes, such as 4096, 0x1000 or 4KiB, found \"4giB\"",
        ]),
        (&["endpoint", "host", "-c", "w.toml"], "prot = ['veth0']\npriorities = 'four'\nhpa_memory = '1MiB'\n", &[
            "1:1: unknown key \"prot\", did you mean \"port\"?",
            "2:14: priorities: expected a whole number 0..=255, found \"four\"",
            "3:14: hpa_memory: expected a list, found \"1MiB\"",
        ]),
        (&["endpoint", "host", "-c", "w.toml"], "port = ['null:']\npayload_max = 100\n", &[
            "2:15: payload_max: expected a power of two from 128 to 4096, found 100",
        ]),
        (&["sim", "check", "w.toml"], "sed = 1\n[net]\nhosts = 'x'\n", &[
            "1:1: unknown key \"sed\", did you mean \"seed\"?",
            "3:9: net.hosts: ",
        ]),
    ];
    for (args, text, want) in cases {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("w.toml"), text).unwrap();
        std::fs::write(dir.path().join("t.toml"), "[[switch]]\nname = 's'\n").unwrap();
        let ended = weft_in(dir.path(), args);
        assert_eq!(ended.code, USAGE, "{args:?}: {}", ended.err);
        let said: Vec<&str> = ended.err.lines().collect();
        assert_eq!(said.len(), want.len(), "{args:?}: {}", ended.err);
        for (said, want) in said.iter().zip(*want) {
            assert!(said.starts_with(&format!("error: w.toml:{want}")), "{args:?}: {said}");
        }
    }
}

#[test]
fn documentation_is_that_of_the_table() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let page = std::fs::read_to_string(root.join("docs/configuration.md")).unwrap();
    assert!(
        page == weft_config::document::markdown(),
        "docs/configuration.md is out of date: weft config docs > docs/configuration.md"
    );
    // The page has the text of `config defaults` for each key.
    let defaults = json(&weft(&["config", "defaults", "--json"]).out);
    let text = weft(&["config", "defaults"]).out;
    for row in defaults.as_array().unwrap() {
        let of = |key: &str| row[key].as_str().unwrap();
        let key = of("key");
        assert!(page.contains(&format!("| `{key}` | {} |", of("unit"))), "{key} on the page");
        assert!(page.contains(&of("default").replace('|', "\\|")), "default of {key} on the page");
        assert!(["hot", "restart"].contains(&of("apply")), "{key}");
        assert!(
            text.contains(&format!("\n  {key}")) && text.contains(of("range")),
            "{key} in the text"
        );
    }
    assert!(defaults.as_array().unwrap().len() > 100);
}

#[test]
fn the_page_of_drops_is_that_of_the_reasons() {
    use weft::commands::drops;
    use weft_control::report::{StatsSnapshot, prometheus};
    use weft_dataplane::stats::DropReason;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let page = std::fs::read_to_string(root.join("docs/drops.md")).unwrap();
    assert!(page == drops::page(), "docs/drops.md is out of date: weft drops > docs/drops.md");
    assert_eq!(weft(&["drops"]).out, page);
    // Every metric that the page names exists.
    let metrics = prometheus::render(&StatsSnapshot::default());
    for named in page.split('`').skip(1).step_by(2).filter(|code| code.starts_with("weft_")) {
        let family = named.split('{').next().unwrap();
        assert!(metrics.contains(&format!("# TYPE {family} counter")), "{family}");
    }
    let defaults = weft(&["config", "defaults"]).out;
    for reason in DropReason::ALL {
        let (name, texts) = (reason.name(), [reason.meaning(), reason.remedy()]);
        let told = weft(&["drops", name]).out;
        assert!(told.starts_with(name) && texts.iter().all(|text| told.contains(text)), "{told}");
        for text in texts {
            assert!(text.ends_with('.') && !text.contains("  ") && !text.contains('\n'), "{name}");
            for code in text.split('`').skip(1).step_by(2) {
                let word = code.split([' ', '=']).next().unwrap().trim_matches(['[', ']']);
                let key = word.rsplit('.').next().unwrap();
                let is_set = word.contains('_') || word.contains('.');
                let is_told = key == "pause_tx" || defaults.contains(key);
                assert!(!is_set || is_told, "{name}: {code}");
            }
        }
    }
}

#[test]
fn config_show_says_where_values_come_from() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("w.toml"), "[crossbar]\niterations = 3\n").unwrap();
    let args = [
        "config",
        "show",
        "-c",
        "w.toml",
        "--port",
        "a=veth0",
        "--set",
        "fdb.ageing_s=5",
        "--json",
    ];
    let shown = json(&weft_in(dir.path(), &args).out);
    let from = |section: &str, key: &str| {
        let rows = shown["parameters"].as_array().unwrap();
        let row = rows.iter().find(|row| row["section"] == section && row["key"] == key).unwrap();
        (row["value"].clone(), row["from"].as_str().unwrap().to_owned())
    };
    assert_eq!(from("crossbar", "iterations"), (3.into(), "w.toml:2:1".into()));
    assert_eq!(from("fdb", "ageing_s"), (5.into(), "--set fdb.ageing_s=5".into()));
    assert_eq!(from("port", "device"), ("veth0".into(), "--port a=veth0".into()));
    assert_eq!(from("crossbar", "speedup"), (2.into(), "default".into()));
    assert_eq!(from("buffer", "cell_bytes"), (2_048.into(), "derived".into()));
    // The text is TOML that can be read back, except for origins and unset keys.
    let args = ["config", "show", "-c", "w.toml", "--port", "a=veth0"];
    let text = weft_in(dir.path(), &args).out;
    std::fs::write(dir.path().join("again.toml"), &text).unwrap();
    let again = weft_in(dir.path(), &["config", "check", "again.toml"]);
    assert_eq!(again.code, OK, "{}", again.err);
}

#[test]
fn made_frames_are_decoded_as_they_were_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let made = weft_in(
        dir.path(),
        &[
            "gen", "standard", "gen1", "gen2", "ethernet", "--pri", "0,3", "--vlan", "100",
            "--count", "3", "--size", "120-200", "--seed", "9", "--json", "--out", "x.pcapng",
        ],
    );
    assert_eq!(made.code, OK, "{}", made.err);
    let streams = json(&made.out);
    assert_eq!(streams.as_array().unwrap().len(), 8);
    let read = weft_in(dir.path(), &["decode", "--json", "x.pcapng"]);
    let rows: Vec<Value> = read.out.lines().map(json).collect();
    assert_eq!(rows.len(), 24);
    let mut bytes = 0;
    for (i, row) in rows.iter().enumerate() {
        let stream = &streams[i % 8];
        let format =
            if stream["format"] == "ethernet" { "other".into() } else { stream["format"].clone() };
        assert_eq!(row["format"], format, "{row}");
        assert_eq!(row["vlan"]["vid"], 100, "{row}");
        assert_eq!(row["vlan"]["pcp"], if stream["pri"] == 0 { 0 } else { 5 }, "{row}");
        assert!(
            (120..=200).contains(&row["len"].as_u64().unwrap()) && row.get("error").is_none(),
            "{row}"
        );
        if let Some(ip) = row.get("ip") {
            assert_eq!(ip["is_checksum_ok"], true, "{row}");
        }
        bytes += row["len"].as_u64().unwrap();
    }
    let told: u64 = streams.as_array().unwrap().iter().map(|s| s["bytes"].as_u64().unwrap()).sum();
    assert_eq!(bytes, told);
    // The same command makes the same bytes.
    let first = std::fs::read(dir.path().join("x.pcapng")).unwrap();
    weft_in(
        dir.path(),
        &[
            "gen", "standard", "gen1", "gen2", "ethernet", "--pri", "0,3", "--vlan", "100",
            "--count", "3", "--size", "120-200", "--seed", "9", "--out", "x.pcapng",
        ],
    );
    assert!(first == std::fs::read(dir.path().join("x.pcapng")).unwrap());
}

#[test]
fn made_fields_are_read_back() {
    let dir = tempfile::tempdir().unwrap();
    #[rustfmt::skip] // columns: arguments of gen, of decode, wanted line without its number and stamp
    let cases: &[(&[&str], &[&str], &str)] = &[
        (&["pfc", "--class", "1:65535", "--class", "3:0"], &[],
         "mac_control 02:00:00:00:00:01 > 01:80:c2:00:00:01 len 60 pfc class 1: 65535 class 3: 0 payload 44"),
        (&["pause", "--quanta", "0x10", "--src-mac", "02:aa:00:00:00:01"], &[],
         "mac_control 02:aa:00:00:00:01 > 01:80:c2:00:00:01 len 60 pause quanta 16 payload 44"),
        (&["lite", "--vc", "2", "--xpu", "0x2a", "--size", "80"], &["--afh", "lite"],
         "lite id:0001 > id:0002 len 80 tc 0x40 vc 2 flow 0 key_words 0x82 xpu 0x2a payload 68"),
        (&["gen2", "--gen2-order", "as_documented", "--opcode", "ack", "--psn", "171", "--qp", "69", "--syndrome", "0x1f",
           "--tc", "0x24", "--payload-bits", "0,0", "--size", "60", "--plain", "--src", "2", "--dst", "1"],
         &["--gen2-order", "as_documented"],
         "gen2 id:0002 > id:0001 len 60 tc 0x24 vc 1 flow 1 key_words 0x82 rh ack psn 171 qp 69 syndrome 0x1f payload 38"),
        (&["standard", "--dscp", "46", "--ecn", "ce", "--sport", "7", "--size", "100"], &[],
         "standard 02:00:00:00:00:01 > 02:00:00:00:00:02 len 100 10.0.0.1:7 > 10.0.0.2:4791 dscp 46 ecn ce rh send psn 0 qp 0 payload 50"),
    ];
    for (made, read, want) in cases {
        let made: Vec<&str> =
            ["gen", "--out", "y.pcap"].iter().chain(made.iter()).copied().collect();
        let ended = weft_in(dir.path(), &made);
        assert_eq!(ended.code, OK, "{made:?}: {}", ended.err);
        let read: Vec<&str> = ["decode", "y.pcap"].iter().chain(read.iter()).copied().collect();
        let ended = weft_in(dir.path(), &read);
        assert_eq!(ended.out, format!("1 0.000000000 {want}\n"), "{made:?}: {}", ended.err);
    }
}

/// `[traffic]` gives the defaults and limits of `weft gen`. Columns: settings, further arguments, those of `decode`,
/// and part of the line or refusal.
type HostCase<'a> = (&'a [&'a str], &'a [&'a str], &'a [&'a str], Result<&'a str, &'a str>);

#[test]
fn hosts_are_what_the_configuration_says() {
    let dir = tempfile::tempdir().unwrap();
    let plain = "standard 02:00:00:00:00:01 > 02:00:00:00:00:02 len 256";
    #[rustfmt::skip] // columns: settings, more arguments, those of decode, part of the line or of the refusal
    let cases: &[HostCase<'_>] = &[
        (&[], &[], &[], Ok(plain)),
        (&[], &[], &[], Ok("ecn ect0")),
        (&["pkt_format=gen1"], &[], &[], Ok("gen1 ")),
        (&["lite_mode=true"], &[], &["--afh", "lite"], Ok("lite ")),
        (&["lite_mode=true", "pkt_format=gen1"], &[], &[], Err("expected true with pkt_format lite")),
        (&["ecn_capable=false"], &[], &[], Ok("ecn not-ect")),
        (&["vlan_enabled=true"], &[], &[], Ok("vlan 1 pcp 0")),
        (&["vlan_enabled=true"], &["--vc", "5"], &[], Ok("vlan 1 pcp 5")),
        (&["vlan_enabled=true", "vc_pcp_mapping=[7,6,5,4,3,2,1,0]"], &["--vc", "5"], &[], Ok("vlan 1 pcp 2")),
        (&["pkt_format=gen1"], &["--vc", "5"], &[], Ok("vc 5")),
        (&["num_vc=2"], &["--vc", "2", "--vlan", "1"], &[], Err("--vc: expected 0..=1 (traffic.num_vc), found 2")),
        (&[], &["--vc", "1"], &[], Err("a standard frame without one has no place for it: add --vlan")),
        (&[], &["pfc", "--vc", "1"], &[], Err("--vc: expected a format with a Traffic Class")),
        (&[], &["--vc", "1", "--pcp", "2", "--vlan", "1"], &[], Err("cannot be used with")),
        (&["max_frame_size=200"], &[], &[], Err("--size: expected at most traffic.max_frame_size, 200 bytes, found 256")),
        (&["num_vc=8"], &["--size", "1398", "--icrc"], &[], Ok("len 1398")),
        (&["num_vc=8"], &["--size", "1398"], &[], Err("expected")),
        (&["num_vc=8"], &["--size", "1399", "--icrc"], &[], Err("expected at most traffic.max_frame_size, 1398")),
        (&["flow_control_mode=cbfc"], &[], &[], Err("take \"none\"")),
    ];
    for (set, more, read, want) in cases {
        let set: Vec<String> = set.iter().map(|set| format!("traffic.{set}")).collect();
        let set = set.iter().flat_map(|set| ["--set", set.as_str()]);
        let args: Vec<&str> =
            ["gen", "--out", "z.pcap"].into_iter().chain(more.iter().copied()).chain(set).collect();
        let made = weft_in(dir.path(), &args);
        match want {
            Err(part) => {
                assert_eq!(made.code, USAGE, "{args:?}: {}", made.err);
                assert!(made.err.contains(part), "{args:?}: {}", made.err);
            }
            Ok(part) => {
                assert_eq!(made.code, OK, "{args:?}: {}", made.err);
                let decode: Vec<&str> =
                    ["decode", "z.pcap"].iter().chain(read.iter()).copied().collect();
                let line = weft_in(dir.path(), &decode).out;
                assert!(line.contains(part), "{args:?}: {line}");
            }
        }
    }
}

#[test]
fn models_print_json_that_programs_can_read() {
    let args = [
        "model",
        "islip",
        "--ports",
        "8",
        "--iterations",
        "2",
        "--load",
        "0.5",
        "--slots",
        "20000",
        "--json",
    ];
    let report = json(&weft(&args).out);
    assert_eq!(report["model"], "islip");
    assert_eq!(report["measured_slots"], 18_000);
    let throughput = report["throughput"].as_f64().unwrap();
    assert!((0.48..0.52).contains(&throughput), "{report}");
    assert_eq!(weft(&args).out, weft(&args).out, "the seed decides");
}

#[test]
fn shells_and_manuals_know_every_command() {
    let man = weft(&["man"]).out;
    for name in ["config", "show", "fdb", "reload", "mirror", "decode", "gen", "model", "run"] {
        assert!(man.contains(&format!("weft\\-{name}")), "{name} in the manual");
        for shell in ["bash", "zsh", "fish"] {
            let script = weft(&["completions", shell]).out;
            assert!(script.contains(name), "{name} in completions for {shell}");
        }
    }
    assert!(!man.contains("weft\\-config\\-docs"), "what is hidden stays hidden");
}

#[test]
fn a_reader_that_goes_is_no_error() {
    let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin("weft"))
        .args(["config", "defaults"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

/// Counts and structure of a short run; how fast it was is not judged.
#[test]
fn bench_pipeline_counts_what_went_through() {
    let flags = ["--rounds", "2", "--round-ms", "50", "--ports", "4", "--macs", "40", "--json"];
    for format in ["ethernet", "standard", "gen1", "gen2", "lite"] {
        let args = [&["bench", "pipeline", "--format", format], &flags[..]].concat();
        let ended = weft(&args);
        assert_eq!(ended.code, OK, "{format}: {}", ended.err);
        let told = json(&ended.out);
        let number = |at: &str| told.pointer(at).and_then(Value::as_u64);
        assert_eq!(number("/frame_bytes_with_fcs"), Some(64), "{format}");
        assert!(number("/received") > Some(0), "{format}: {told}");
        for figure in ["frames_per_s", "ns_per_frame_x1000"] {
            let at = |part| number(&format!("/{figure}/{part}")).unwrap();
            assert!(at("least") <= at("median") && at("median") <= at("most"), "{format}: {told}");
        }
        assert_eq!(told.get("rounds").and_then(Value::as_array).map(Vec::len), Some(2), "{format}");
    }
}

/// `--json` of commands that ask no switch.
#[test]
fn commands_print_their_results_as_json() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let ask = |args: &[&str]| {
        let ended = weft_in(dir, args);
        assert_eq!(ended.code, OK, "{args:?}: {}", ended.err);
        json(&ended.out)
    };
    let check = ["config", "check", "--port", "p0=veth0", "--set", "switch.num_priorities=4"];
    let valid = ask(&[&check[..], &["--json"]].concat());
    assert_eq!((&valid["ports"], &valid["priorities"]), (&1.into(), &4.into()), "{valid}");
    assert!(valid["warnings"].is_array(), "{valid}");
    let (all, one) = (ask(&["drops", "--json"]), ask(&["drops", "--json", "dt"]));
    assert!(all.as_array().unwrap().contains(&one), "{one}");
    assert!(one["remedy"].is_string() && one["counted_at"].is_string(), "{one}");
    let made = ask(&["tls", "init", "certs", "--json"]);
    for file in made.as_array().unwrap() {
        assert!(dir.join(file["path"].as_str().unwrap()).is_file(), "{file}");
    }
    let text = ask(&["sim", "new", "incast", "--json"])["text"].clone();
    assert!(text.as_str().unwrap().contains("kind = \"incast\""), "{text}");
    let new = ask(&["sim", "new", "flows", "--json", "--out", "s.toml"]);
    assert_eq!(new["files"], serde_json::json!(["s.toml", "s.csv"]));
    let checked = ask(&["sim", "check", "s.toml", "--json"]);
    assert_eq!((&checked["file"], &checked["as_expected"]), (&"s.toml".into(), &true.into()));
    let sweep = ["sim", "sweep", "s.toml", "--seeds", "1,2", "--out", "sweep", "--json"];
    let rows = ask(&sweep);
    assert_eq!(rows.as_array().unwrap().len(), 2, "{rows}");
    assert_eq!((&rows[1]["seed"], &rows[1]["ending"]), (&2.into(), &"done".into()), "{rows}");
    let figure = concat!(env!("CARGO_MANIFEST_DIR"), "/../pcaps/fabric/fig-7-45.toml");
    let parts = ask(&["fabric", "check", figure, "--json"]);
    assert!(parts["links"].as_u64() > Some(0), "{parts}");
    assert!(parts["switches"][0]["ports_to"].is_array(), "{parts}");
}
