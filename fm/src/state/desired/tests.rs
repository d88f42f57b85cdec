//! Tests of files of wanted states: the meaning of good ones, and the errors of bad ones.
//!
//! A text gives a [`DesiredState`], or an error that tells the expected value.
//!
//! Units: bytes.
//! Source: docs/fm.md "What is wanted".

use super::*;
use crate::cci::Peer;
use crate::model::text::name_of;

const GOOD: &str = r#"
[fm]
uuid = "f1f1f1f1-f1f1-f1f1-f1f1-f1f1f1f1f1f1"
pid = "ffd"
secondary = { uuid = "f2f2f2f2f2f2f2f2f2f2f2f2f2f2f2f2", pid = "ffc" }
switch_ns = 100
[[switch]]
name = "leaf-0"
uuid = "50505050-5050-5050-0000-000000000001"
[[host]]
name = "h0"
switch = "leaf-0"
port = 3
gae = "unix:/run/h0"
[[bind]]
bridge = "leaf-0/0/1"
to = "port:4"
[[memory]]
name = "pool"
hosts = ["h0"]
ways = 4
size = "4GiB"
granularity = "256"
hpa = "0x0100_0000_0000"
"#;

#[test]
fn a_file_says_what_is_wanted() {
    let desired = DesiredState::parse(GOOD).unwrap();
    assert_eq!(desired.manager(), Manager { uuid: [0xF1; 16], pid: Pid::from_low_bits(0xFFD) });
    assert_eq!((desired.figures().switch_ps, desired.figures().link_ps), (100_000, 0));
    let share = &desired.memory[0];
    assert_eq!((share.size, share.granularity, share.hpa), (4 << 30, 256, 1 << 40));
    assert_eq!(desired.hosts[0].gae, Some(GaePeer::Cci(Peer::Unix("/run/h0".into()))));
    assert_eq!(name_of(&tag("pool").unwrap()), "pool");
    assert_eq!(DesiredState::parse("").unwrap().manager().pid, Pid::from_low_bits(0xFFE));
    let named = DesiredState::parse(&GOOD.replacen("\"h0\"", "\"acc0\"", 1)).unwrap();
    assert_eq!(named.hosts[0].name, "acc0", "more than a PID has");
}

/// Ranges that overlap, or that one FAST entry cannot serve, are refused before any command is sent.
#[test]
fn memory_that_meets_other_memory_is_refused() {
    let more = |table: &str, hpa: u64, rest: &str| {
        let hosts = if table == "gim" { "of = \"s1.0\"\nfrom" } else { "hosts" };
        format!(
            "{GOOD}[[{table}]]\nname = \"more\"\n{hosts} = [\"h0\"]\nsize = \"4KiB\"\nhpa = {hpa}\n{rest}"
        )
    };
    let (at, end) = (1 << 40, (1 << 40) + (4 << 30));
    let four = "ways = 4\ngranularity = 256";
    #[rustfmt::skip] // columns: table, HPA, more lines, part of the error
    let cases = [
        ("memory", at, four, Some("memory \"more\": \"h0\": memory-own-addresses")),
        ("memory", end - 4_096, four, Some("memory \"pool\" is at 0x10000000000 to 0x100ffffffff")),
        ("memory", end, four, None),
        ("memory", end, "ways = 4\ngranularity = 512", Some("segment-one-entry")),
        ("memory", end, "ways = 2\ngranularity = 256", Some("segment-one-entry")),
        ("memory", at + (64 << 30), "ways = 1", None),
        ("memory", 0x4000_0000, "ways = 1", Some("window-no-own-addresses")),
        ("memory", at + (4_096 << 36), "ways = 1", Some("window-depth")),
        ("gim", end, "", Some("GIM \"more\": \"h0\": segment-one-entry")),
        ("gim", at, "prefix = true", Some("memory-own-addresses")),
        ("gim", end, "prefix = true", None),
    ];
    for (table, hpa, rest, want) in cases {
        let error =
            DesiredState::parse(&more(table, hpa, rest)).err().map(|error| error.to_string());
        match (want, &error) {
            (Some(want), Some(error)) => {
                assert!(error.contains(want), "{table} {hpa:#x}: {error}");
            }
            (None, None) => {}
            _ => panic!("{table} {hpa:#x} {rest}: {error:?}"),
        }
    }
    let other = more("memory", at, four)
        .replace("hosts = [\"h0\"]\nsize = \"4KiB\"", "hosts = [\"h1\"]\nsize = \"4KiB\"");
    assert!(DesiredState::parse(&other).is_ok(), "another host");
}

#[test]
fn what_means_nothing_is_refused_with_what_was_expected() {
    #[rustfmt::skip] // columns: text in the good file, its replacement, part of the error
    let cases = [
        ("\"ffd\"", "\"fff\"", "expected a PID of 000 to ffe"),
        ("\"ffd\"", "\"+1\"", "expected a PID"),
        ("f1f1f1f1-", "f1f1f1f-", "expected a UUID"),
        ("\"4GiB\"", "\"4gb\"", "expected bytes"),
        ("\"4GiB\"", "\"99999999999TiB\"", "expected bytes"),
        ("\"256\"", "\"1TiB\"", "at most 16 KiB"),
        ("\"0x0100_0000_0000\"", "\"0x\"", "expected an address"),
        ("name = \"h0\"", "name = \"leaf-0\"", "the name of two"),
        ("name = \"h0\"", "name = \"0a\"", "expected a name"),
        ("name = \"h0\"", "name = \"fff\"", "expected a name"),
        ("name = \"h0\"", "name = \"000a\"", "expected a name"),
        ("name = \"h0\"", "name = \"50505050-5050-5050-0000-000000000001\"", "expected a name"),
        ("name = \"h0\"", "name = \"s0.1\"", "expected a name"),
        ("name = \"pool\"", "name = \"a-pool-with-a-long-name\"", "1 to 16 bytes"),
        ("name = \"pool\"", "name = \"d e\"", "expected a name of memory"),
        ("name = \"pool\"", "name = \"</script><b>x\"", "expected a name of memory"),
        ("name = \"pool\"", "name = \"a\\u0007\"", "expected a name of memory"),
        ("\"256\"", "300", "not 300"),
        ("unix:/run/h0", "/run/h0", "expected endpoint:PATH, unix:PATH or tcp:HOST:PORT"),
        ("port = 3", "port = 3\nown_addresses = [\"1GiB\"]", "expected BASE:SIZE"),
        ("port = 3", "port = 3\nown_addresses = [\"0:0\"]", "expected BASE:SIZE"),
        ("port = 3", "port = 3\nown_addresses = [\"0x10000000000:1\"]", "window-no-own-addresses"),
        ("0x0100_0000_0000", "0x4000000000", "window-no-own-addresses"),
        ("ways = 4", "ways = 3", "3 GFDs"),
        ("ways = 4", "", "expected gfds, one for each way"),
        ("\"4GiB\"", "\"4097\"", "size is no multiple of 0x400"),
        ("ways = 4", "way = 4", "wanted state:21:1: memory: unknown key \"way\", did you mean \"ways\"?"),
        ("hosts = [\"h0\"]", "hosts = []", "at least one host in `hosts` of memory \"pool\""),
        ("port = 3", "port = 300", "300"),
        ("[[bind]]", "[[bind", "wanted state:15:"),
    ];
    for (what, by, part) in cases {
        let text = GOOD.replacen(what, by, 1);
        let error = DesiredState::parse(&text).unwrap_err().to_string();
        assert!(error.contains(part), "{by}: {error}");
    }
}

#[test]
fn partitions_of_a_gfd_are_wanted_by_kind_and_size() {
    let with = |partitions: &str, media: &str| {
        let gfd = format!("[[gfd]]\nname = \"g0\"\nuuid = \"{:032x}\"\n{partitions}\n", 7);
        let pool = GOOD.replace("ways = 4", "gfds = [\"g0\"]").replace("4GiB", "512MiB");
        DesiredState::parse(&format!("{gfd}{pool}{media}"))
    };
    let both = "partitions = [\"dram:1GiB\", \"pm:256MiB:64MiB\"]";
    let desired = with(both, "media = \"dram\"").unwrap();
    let partitions = desired.gfds[0].partitions.as_ref().unwrap();
    assert_eq!((partitions[0].media, partitions[0].len), (Media::Dram, 1 << 30));
    assert_eq!((partitions[1].media, partitions[1].block), (Media::Pm, 64 << 20));
    assert_eq!(desired.memory[0].media, Some(Media::Dram));
    assert!(with("", "").unwrap().gfds[0].partitions.is_none());
    assert!(with("", "media = \"pm\"").is_ok(), "what a GFD has is seen in the fabric");
    #[rustfmt::skip] // columns: partitions, media, part of the error
    let cases = [
        ("partitions = []", "", "GFD \"g0\": expected 1 to 4 partitions, found 0"),
        ("partitions = [\"pm:0\"]", "", "expected a multiple of 256MiB"),
        ("partitions = [\"nand:1GiB\"]", "", "expected dram or pm"),
        ("partitions = \"pm:1GiB\"", "", "partitions"),
        (both, "media = \"pm\"", "memory \"pool\": GFD \"g0\" has no partition of pm with 0x20000000 bytes"),
        ("partitions = [\"dram:1GiB\"]", "media = \"pm\"", "no partition of pm"),
        ("partitions = [\"dram:256MiB\"]", "", "no partition with 0x20000000 bytes"),
        (both, "media = \"flash\"", "flash"),
    ];
    for (partitions, media, part) in cases {
        let error = with(partitions, media).unwrap_err().to_string();
        assert!(error.contains(part), "{partitions} {media}: {error}");
    }
}

#[test]
fn logical_devices_are_wanted_by_number() {
    let with = |rest: &str| {
        let one = format!("[[ld]]\ndevice = \"mld0\"\n{rest}\n");
        DesiredState::parse(&format!("{one}[[ld]]\ndevice = \"mld0\"\nld = 1\nbandwidth = 200\n"))
    };
    let desired = with("ld = 0\nmemory = \"512MiB\"\nbandwidth = 56\nlimit = 0").unwrap();
    let first = desired.lds[0].amounts();
    assert_eq!((first.memory, first.bandwidth, first.limit), (Some(512 << 20), Some(56), Some(0)));
    assert_eq!(desired.lds[1].amounts().memory, None);
    #[rustfmt::skip] // columns: lines of the first device, part of the error
    let cases = [
        ("ld = 16\nlimit = 1",          "LD 16 of \"mld0\": a device has logical devices 0 to 15"),
        ("ld = 1\nlimit = 1",           "LD 1 of \"mld0\": it is listed twice"),
        ("ld = 0",                      "expected memory, bandwidth or limit"),
        ("ld = 0\nmemory = \"300MiB\"", "expected a multiple of 256MiB"),
        ("ld = 0\nbandwidth = 57",      "are 257 of 256 together"),
        ("ld = 0\nbandwidth = 256",     "256"),
        ("ld = 0\nlimit = -1",          "-1"),
        ("limit = 1",                   "ld: expected a key \"ld\", found none"),
        ("ld = 0\nqos = 1",             "ld: unknown key \"qos\", expected one of "),
    ];
    for (rest, part) in cases {
        let error = with(rest).unwrap_err().to_string();
        assert!(error.contains(part), "{rest}: {error}");
    }
    let two = "[[ld]]\ndevice = \"a\"\nld = 0\nbandwidth = 200\n";
    let other = two.replace("\"a\"", "\"b\"");
    assert!(DesiredState::parse(&format!("{two}{other}")).is_ok(), "each device has its own");
}

#[test]
fn names_of_gim_and_p2p_are_words_too() {
    let with = |table: &str, name: &str| {
        let place = if table == "gim" { "of" } else { "to" };
        let rest = "from = [\"h1\"]\nsize = \"256MiB\"\nhpa = \"0x20000000000\"";
        DesiredState::parse(&format!("[[{table}]]\nname = \"{name}\"\n{place} = \"x\"\n{rest}\n"))
    };
    for table in ["gim", "p2p"] {
        assert!(with(table, "a1").is_ok(), "memory may be called as a PID");
        for bad in ["", "d e", "</script><b>x", "\\u0007"] {
            let said = with(table, bad).unwrap_err().to_string();
            assert!(said.contains("expected a name of memory"), "{table} {bad:?}: {said}");
        }
    }
}
