//! Layouts of the figures, and refused files.

use std::collections::BTreeSet;

use super::super::topology::Topology;
use super::*;

fn layout(text: &str) -> Result<Layout, LayoutError> {
    Layout::new(&Topology::parse(text).unwrap())
}

fn refused(text: &str) -> String {
    layout(text).unwrap_err().to_string()
}

#[test]
fn every_file_of_a_figure_can_be_laid_out() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../pcaps/fabric");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let topology = Topology::parse(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let layout = Layout::new(&topology);
        assert!(layout.is_ok(), "{}: {layout:?}", path.display());
        assert!(!topology.about.is_empty(), "{}", path.display());
        count += 1;
    }
    assert!(count >= 8, "{count}");
}

/// Virtual switches of host 0 in figure 7-45: a device at its own switch, and two switches below.
#[test]
fn devices_further_out_are_behind_one_link_a_switch() {
    let text = include_str!("../../../../pcaps/fabric/fig-7-45.toml");
    let layout = layout(text).unwrap();
    let [s0, s1, s2, s3] = &layout.switches[..] else { panic!() };
    assert_eq!(s0.vcses.len(), 1);
    let [
        VppbBinding::Port(ep0),
        VppbBinding::Below { switch: 1, vcs: 0 },
        VppbBinding::Below { switch: 3, vcs: 0 },
    ] = s0.vcses[0].vppbs[..]
    else {
        panic!("{:?}", s0.vcses)
    };
    assert_eq!(s0.ports[usize::from(ep0)].far.part, Part::Device(0));
    assert_eq!((s1.vcses[0].usp, s1.vcses[0].host, s1.vcses[0].vppbs.len()), (None, 0, 1));
    assert_eq!((s2.vcses[0].usp, s2.vcses[0].host), (None, 1));
    assert_eq!((s3.vcses[0].host, s3.vcses[1].host), (0, 1));
    assert!(s3.vcses[0].usp.is_none() && s3.vcses[1].usp.is_some());
    // The ends of each wire name each other.
    for &[one, two] in &layout.wires {
        for (near, far) in [(one, two), (two, one)] {
            if let Part::Switch(at) = near.part {
                assert_eq!(layout.switches[at].ports[usize::from(near.port)].far, far);
            }
        }
    }
    assert_eq!(layout.wires.len(), 5 + 2 + 5);
}

#[test]
fn gfds_of_a_count_go_round_their_switches() {
    let layout = layout(include_str!("../../../../pcaps/fabric/fig-7-26.toml")).unwrap();
    let names: Vec<_> = layout.gfds.iter().map(|gfd| gfd.name.as_str()).collect();
    assert_eq!(names, ["g0", "g1", "g2", "g3"]);
    assert_eq!(layout.gfds(&["g".to_owned()]), Some(vec![0, 1, 2, 3]));
    assert_eq!(layout.gfds(&["g1".to_owned(), "g0".to_owned()]), Some(vec![1, 0]));
    assert_eq!(layout.gfds(&["s0".to_owned()]), None);
    let uuids: BTreeSet<_> = layout.gfds.iter().map(|gfd| uuid(gfd.serial)).collect();
    assert_eq!(uuids.len(), 4);
}

#[test]
fn connections_that_no_rule_allows_are_refused_by_the_name_of_the_rule() {
    let gfd = r#"switch = [{ name = "s" }]
        hbr = [{ name = "p", at = "s" }]
        gfd = [{ name = "g", at = "p" }]"#;
    assert!(refused(gfd).contains("gfd-to-pbr-dsp"), "{}", refused(gfd));
    let host = r#"switch = [{ name = "s" }]
        hbr = [{ name = "p", at = "s" }]
        host = [{ name = "h", at = "p" }]"#;
    assert!(refused(host).contains("hbr-dsp"), "{}", refused(host));
    let below = r#"host = [{ name = "h" }]
        gfd = [{ name = "g", at = "h" }]"#;
    assert!(refused(below).contains("gfd-to-pbr-dsp"), "{}", refused(below));
    let itself = r#"switch = [{ name = "s" }]
        link = [{ ends = ["s", "s"] }]"#;
    assert!(refused(itself).contains("fport-to-fport"), "{}", refused(itself));
    let two = r#"host = [{ name = "h" }]
        device = [{ name = "a", at = "h" }, { name = "b", at = "h" }]"#;
    assert!(refused(two).contains("ports"), "{}", refused(two));
}

#[test]
fn what_cannot_be_is_refused_and_named() {
    let cases = [
        (r#"switch = [{ name = "s" }, { name = "s" }]"#, r#""s" is defined twice"#),
        (r#"device = [{ name = "d", at = "x" }]"#, r#"d: there is no switch or host "x""#),
        (
            r#"switch = [{ name = "s" }, { name = "t" }]
            link = [{ ends = ["s", "t"], count = 0 }]"#,
            "links between two switches",
        ),
        (
            r#"switch = [{ name = "s" }]
            host = [{ name = "a", at = "s", bind = ["d"] }, { name = "b", at = "s", bind = ["d"] }]
            device = [{ name = "d", at = "s" }]"#,
            "d: a and b both bind it",
        ),
        (
            r#"switch = [{ name = "s" }]
            host = [{ name = "a", at = "s", bind = ["d"] }]
            hbr = [{ name = "p", at = "s" }]
            device = [{ name = "d", at = "p" }]"#,
            "a: d cannot be bound: it is at p",
        ),
        (
            r#"switch = [{ name = "s" }]
            host = [{ name = "a", at = "s" }]
            gfd = [{ name = "g", at = "s", count = 3 }]
            memory = [{ name = "m", hosts = ["a"], gfds = ["g"], len = 1, hpa = 0 }]"#,
            "memory m: 3 GFDs: an interleave set has 1, 2, 4, 8, ... or 256",
        ),
        (
            r#"switch = [{ name = "s" }]
            gfd = [{ name = "g", at = "s", count = 64 }]"#,
            "s: ports: expected at most 63, found 64",
        ),
        (
            r#"switch = [{ name = "s" }, { name = "t" }]
            link = [{ ends = ["s", "t"] }]
            host = [{ name = "a", at = "s", bind = [] }]
            device = [{ name = "x", at = "t" }]
            gfd = [{ name = "g", at = "s" }]
            memory = [{ name = "m", devices = ["x"], gfds = ["g"], len = 1, hpa = 0 }]"#,
            "memory m: x is not bound to a host",
        ),
    ];
    for (text, want) in cases {
        let said = refused(text);
        assert!(said.contains(want), "{said}");
    }
    let unknown = Topology::parse("[[host]]\nname = \"h\"\ncolour = 1").unwrap_err().to_string();
    assert!(unknown.contains("colour") && unknown.starts_with("topology:3:1: "), "{unknown}");
}

/// Parts that are connected to no switch or in a circle, and lists and texts that are too long.
#[test]
fn what_hangs_on_nothing_is_refused() {
    let cases = [
        ("", "a fabric: [[switch]]: expected 1 or more, found 0"),
        (r#"host = [{ name = "h" }]"#, "[[switch]]: expected 1 or more"),
        (r#"hbr = [{ name = "p", at = "p" }]"#, "hbr p: it is below itself"),
        (
            r#"switch = [{ name = "s" }]
            hbr = [{ name = "o", at = "s" }, { name = "p", at = "q" }, { name = "q", at = "p" }]"#,
            "hbr p: it is below itself",
        ),
        (
            r#"switch = [{ name = "s" }]
            host = [{ name = "a", at = "s", domain = "" }]"#,
            "a: bytes of its domain: expected 1 to 16, none of them 0, found 0",
        ),
        (
            r#"switch = [{ name = "s" }]
            host = [{ name = "a", at = "s", domain = "12345678901234567" }]"#,
            "a: bytes of its domain: expected 1 to 16, none of them 0, found 17",
        ),
    ];
    for (text, want) in cases {
        let said = refused(text);
        assert!(said.contains(want), "{said}");
    }
    for ends in [r#""a""#, r#""a", "b", "c""#, ""] {
        let text = format!("link = [{{ ends = [{ends}] }}]");
        let said = Topology::parse(&text).unwrap_err().to_string();
        assert!(said.contains("expected the names of two switches"), "{said}");
    }
}

/// A part's files and sockets are in `DIR/NAME`: its name must not lead to another folder, and not to the manager's.
#[test]
fn names_that_are_none_of_a_folder_are_refused() {
    let long = "h".repeat(33);
    let file = |kind: &str, name: &str| {
        let (switch, at) = if kind == "switch" { (name, "") } else { ("sw", ", at = \"sw\"") };
        let part = format!("{kind} = [{{ name = {name:?}{at} }}]");
        let host = format!("host = [{{ name = \"at\", at = {switch:?} }}]\n");
        let switch = format!("switch = [{{ name = {switch:?} }}]\n");
        switch + if kind == "switch" { &host } else { &part }
    };
    for kind in ["switch", "host", "device", "hbr", "gfd"] {
        for name in [
            "../../x",
            "/abs/path",
            "..",
            ".",
            ".hidden",
            "-c",
            "fm",
            "",
            "a/b",
            "a\nb",
            "a b",
            "é",
            &long,
        ] {
            let said = refused(&file(kind, name));
            assert!(said.starts_with(&format!("{kind} {name:?}: expected a name")), "{said}");
        }
        for name in ["x", "a.b-c_D9", &long[1..]] {
            assert!(layout(&file(kind, name)).is_ok(), "{kind} {name}");
        }
    }
    let counted = r#"switch = [{ name = "sw" }]
        gfd = [{ name = "../g", at = "sw", count = 2 }]"#;
    assert!(
        refused(counted).starts_with(r#"gfd "../g0": expected a name"#),
        "{}",
        refused(counted)
    );
}

/// Two domains with an accelerator each, a memory device, an HBR switch with a device, a device at a host's root port,
/// a device bound from another switch, an unbound device, and a GFD with memory.
const DOMAINS: &str = r#"
switch = [{ name = "sw0" }, { name = "sw1" }]
link = [{ ends = ["sw0", "sw1"] }]
host = [
    { name = "h0", at = "sw0", bind = ["acc0", "mem0", "far0", "plain0"] },
    { name = "h1", at = "sw1", bind = ["acc1"] },
    { name = "alone" },
]
device = [
    { name = "acc0", at = "sw0", kind = "accelerator" },
    { name = "mem0", at = "sw0" },
    { name = "far0", at = "sw1", kind = "nic" },
    { name = "acc1", at = "sw1", kind = "accelerator" },
    { name = "below0", at = "plain0", kind = "accelerator" },
    { name = "own", at = "alone", kind = "accelerator" },
    { name = "free", at = "sw1", kind = "accelerator" },
]
hbr = [{ name = "plain0", at = "sw0" }]
gfd = [{ name = "g", at = "sw0" }]
[[memory]]
name = "pool"
hosts = ["h0"]
gfds = ["g"]
len = 0x10000000
hpa = 0x10000000000
"#;

/// CXL 3.1 section 7.7.3.3, and the consequences of 7.7.2.6 and 7.7.3.1.
#[test]
fn gim_that_no_rule_allows_is_refused_by_its_name() {
    #[rustfmt::skip] // columns: the table, part of the refusal
    let cases = [
        ("of = \"h1\"\nfrom = [\"mem0\"]",              "gim h1: mem0: gim-uio-only"),
        ("of = \"mem0\"",                               "gim mem0: mem0: gim-takes-prefix"),
        ("of = \"g\"",                                  "gim g: g: gim-edge-only"),
        ("of = \"plain0\"",                             "gim plain0: plain0: gim-edge-only"),
        ("of = \"below0\"",                             "gim below0: below0: gim-edge-only"),
        ("of = \"own\"",                                "gim own: own: gim-edge-only"),
        ("of = \"alone\"",                              "gim alone: alone: gim-edge-only"),
        ("of = \"h1\"\nfrom = [\"below0\"]",            "gim h1: below0: gim-edge-only"),
        ("of = \"h1\"\nfrom = [\"g\"]",                 "gim h1: g: gim-edge-only"),
        ("of = \"h0\"\nfrom = [\"far0\"]",              "gim h0: far0: gim-other-domain"),
        ("of = \"free\"",                               "gim free: free: gim-by-gae"),
        ("of = \"h0\"\nfrom = [\"acc0\"]",              "gim h0: acc0: gim-other-domain"),
        ("of = \"acc0\"\nfrom = [\"h0\"]",              "gim acc0: h0: gim-other-domain"),
        ("of = \"h0\"\nfrom = [\"h0\"]",                "gim h0: h0: gim-other-domain"),
        ("of = \"h1\"\nhpa = 0x10000000000",            "gim h1: h1: gim-own-segment"),
        ("of = \"h1\"\nhpa = 0x1000",                   "gim h1: h1: gim-own-segment"),
        ("of = \"h1\"\nhpa = 0x2FFFFFFFFFF",            "gim h1: h1: gim-own-segment"),
        ("of = \"h1\"\nlen = 0x1000001",                "gim h1: h1: gim-within-memory"),
        ("of = \"acc1\"\nlen = 0",                      "gim acc1: acc1: gim-within-memory"),
        ("of = \"h1\"\nfrom = []",                      "who reaches it"),
        ("of = \"h1\"\nfrom = [\"h0\", \"h0\"]",        "defined twice"),
        ("of = \"h1\"\nname = \"pool\"",                "\"gim pool\" is defined twice"),
        ("of = \"h1\"\nfrom = [\"h9\"]",                "no host or device \"h9\""),
    ];
    for (table, part) in cases {
        let why = refused(&format!("{DOMAINS}[[gim]]\n{table}\n"));
        assert!(why.contains(part), "{table}: {why}");
    }
}

/// Each owner of memory has a segment behind G-FAM (figure 7-37), and by default all others that may access it do.
#[test]
fn gim_lies_behind_g_fam_in_segments_of_its_own() {
    let more = "[[gim]]\nof = \"h1\"\n[[gim]]\nname = \"again\"\nof = \"h1\"\nfrom = [\"acc0\"]\nby = \"prefix\"\n\
                [[gim]]\nof = \"acc1\"\nlen = 4096\n";
    let layout = layout(&format!("{DOMAINS}{more}")).unwrap();
    let (tera, segment) = (1 << 40, 64 << 30);
    let places: Vec<_> = layout.gim.iter().map(|gim| (gim.hpa, gim.len)).collect();
    let whole = 16 << 20;
    let first = tera + segment;
    assert_eq!(places, [(first, whole), (first, whole), (first + segment, 4_096)]);
    assert_eq!(layout.gim[0].from, [Part::Host(0), Part::Device(0), Part::Device(2)]);
    assert_eq!(layout.device_gim(3), Some("0x12000000000:4096".to_owned()));
    let edge = |below, vppb, part| Edge { below, vppb, part: Some(part), ld: None };
    let edges = vec![
        edge(None, 0, Part::Host(0)),
        edge(None, 1, Part::Device(0)),
        edge(None, 2, Part::Device(1)),
        edge(None, 3, Part::Hbr(0)),
        edge(Some(4), 1, Part::Device(2)),
    ];
    assert_eq!((layout.edges(0), layout.edges(2)), (edges, vec![]));
}

/// Two hosts have memory at the first address, interleaved over two GFDs in 4 KiB, and one of them has more.
#[test]
fn memory_that_meets_other_memory_is_refused_by_the_name_of_the_rule() {
    let file = |more: &str| {
        format!(
            "switch = [{{ name = \"s\" }}]\nhost = [{{ name = \"h0\", at = \"s\" }}, {{ name = \"h1\", at = \"s\" }}]\n\
             gfd = [{{ name = \"g\", at = \"s\", count = 2, capacity_mib = 512 }}]\n\
             [[memory]]\nname = \"pool\"\nhosts = [\"h0\"]\ngfds = [\"g\"]\nlen = 0x10000000\nhpa = 0x10000000000\n\
             [[memory]]\nname = \"more\"\n{more}\n"
        )
    };
    let at = "gfds = [\"g\"]\nlen = 0x10000000\nhpa = 0x10000000000";
    let behind = "len = 0x10000000\nhpa = 0x10010000000";
    #[rustfmt::skip] // columns: the second memory, part of the refusal
    let cases = [
        (format!("hosts = [\"h0\"]\n{at}"), Some("memory more: h0: memory-own-addresses")),
        (format!("hosts = [\"h1\"]\n{at}"), None),
        (format!("hosts = [\"h0\"]\ngfds = [\"g\"]\n{behind}"), None),
        (format!("hosts = [\"h0\"]\ngfds = [\"g\"]\ngranularity = 256\n{behind}"), Some("segment-one-entry")),
        (format!("hosts = [\"h0\"]\ngfds = [\"g0\"]\n{behind}"), Some("memory pool is at 0x10000000000 to 0x1000fffffff, by 2 ways of 4096 bytes; this would be by one GFD")),
        (format!("hosts = [\"h0\"]\ngfds = [\"g1\", \"g0\"]\n{behind}"), Some("segment-one-entry")),
        ("hosts = [\"h0\"]\ngfds = [\"g\"]\nlen = 0x10000000\nhpa = 0x4000000000".to_owned(), Some("window-no-own-addresses")),
        ("hosts = [\"h0\"]\ngfds = [\"g\"]\nlen = 0x10000000\nhpa = 0x1010000000000".to_owned(), Some("window-no-own-addresses")),
        ("hosts = [\"h0\"]\ngfds = [\"g\"]\nlen = 0x1800\nhpa = 0x11000000000".to_owned(), Some("memory more: the size is no multiple of 0x2000")),
        ("hosts = [\"h0\"]\ngfds = [\"g0\", \"g0\"]\nlen = 0x2000\nhpa = 0x11000000000".to_owned(), Some("memory more: g0")),
    ];
    for (more, want) in cases {
        match want {
            Some(want) => {
                let said = refused(&file(&more));
                assert!(said.contains(want), "{more}: {said}");
            }
            None => assert!(layout(&file(&more)).is_ok(), "{more}"),
        }
    }
}

/// The manager would refuse shares beyond the memory or decoders of their GFDs only after everything has started.
#[test]
fn memory_that_gfds_cannot_give_is_refused() {
    let file = |memory: &str| {
        format!(
            "switch = [{{ name = \"s\" }}]\nhost = [{{ name = \"h0\", at = \"s\" }}, {{ name = \"h1\", at = \"s\" }}]\n\
             gfd = [{{ name = \"g\", at = \"s\", count = 2 }}]\n{memory}"
        )
    };
    let share = |number: usize, who: &str, gfds: &str, len: &str| {
        format!(
            "[[memory]]\nname = \"m{number}\"\nhosts = [{who}]\ngfds = [{gfds}]\nlen = {len}\nhpa = \"{:#x}\"\n",
            (16 + number as u64) * (64 << 30)
        )
    };
    let one = |who, gfds, len| file(&share(0, who, gfds, len));
    let (h0, both, first) = ("\"h0\"", "\"g\"", "\"g0\"");
    assert!(layout(&one(h0, both, "\"512MiB\"")).is_ok());
    let said = refused(&one(h0, both, "\"1TiB\""));
    assert!(said.contains("memory m0: g0 has no partition with 0x8000000000 bytes"), "{said}");
    let two = share(0, h0, first, "\"128MiB\"") + &share(1, "\"h1\"", both, "\"512MiB\"");
    let said = refused(&file(&two));
    assert!(said.contains("memory m1: g0 has 0x10000000 bytes"), "{said}");
    let said = refused(&one("", both, "\"32MiB\""));
    assert!(said.contains("memory m0: hosts and devices that have it: expected 1"), "{said}");
    let eight: String = (0..8).map(|at| share(at, h0, both, "33554432")).collect();
    assert!(layout(&file(&eight)).is_ok());
    let said = refused(&file(&(eight.clone() + &share(8, h0, first, "\"16MiB\""))));
    assert!(said.contains("memory m8: h0 has 8 shares on g0 already"), "{said}");
    assert!(layout(&file(&(eight + &share(8, "\"h1\"", first, "\"16MiB\"")))).is_ok());
}

#[test]
fn sizes_and_addresses_are_numbers_or_text_with_units() {
    let file = |memory: &str| {
        format!(
            "[[memory]]\nname = \"m\"\ngfds = []\n{memory}\n[[gim]]\nof = \"h\"\nlen = \"1MiB\"\n\
             [[p2p]]\nfrom = []\nto = \"d\"\nhpa = \"1TiB\"\n"
        )
    };
    let text = file("len = \"32MiB\"\nhpa = \"0x100_0000_0000\"\ngranularity = \"4KiB\"");
    let read = Topology::parse(&text).unwrap();
    assert_eq!(read, Topology::parse(&file("len = 33554432\nhpa = 0x10000000000")).unwrap());
    assert_eq!((read.memory[0].len, read.memory[0].hpa), (32 << 20, 1 << 40));
    assert_eq!((read.gim[0].len, read.gim[0].hpa), (Some(1 << 20), None));
    assert_eq!((read.p2p[0].len, read.p2p[0].hpa), (None, Some(1 << 40)));
    for bad in ["-1", "\"32 miles\"", "\"\"", "1.5", "[]", "\"17000000TiB\""] {
        assert!(Topology::parse(&file(&format!("len = {bad}\nhpa = 0"))).is_err(), "{bad}");
        assert!(Topology::parse(&file(&format!("len = 1\nhpa = {bad}"))).is_err(), "{bad}");
    }
    assert!(Topology::parse(&file("len = 1\nhpa = 0\ngranularity = \"4GiB\"")).is_err());
    let none = Topology::parse(&file("len = 1")).unwrap_err().to_string();
    assert!(none.contains("hpa"), "{none}");
}

/// The file is refused for a switch without ports, as `weft run` would refuse it later.
#[test]
fn a_switch_without_ports_is_refused() {
    let host = "host = [{ name = \"h\", at = \"s\" }]";
    assert!(layout(&format!("switch = [{{ name = \"s\" }}]\n{host}")).is_ok());
    let said = refused(&format!("switch = [{{ name = \"s\" }}, {{ name = \"bare\" }}]\n{host}"));
    assert!(said.starts_with("bare: ports: expected 1 or more (give it a host"), "{said}");
    assert!(refused("switch = [{ name = \"alone\" }]").starts_with("alone: ports"));
}

/// Lightweight Notification needs non-flit mode on all links up to the next PBR switch, so these links have no UIO.
#[test]
fn lightweight_notification_makes_links_non_flit_up_to_the_next_switch() {
    let text = "[[switch]]\nname = \"sw\"\n[[host]]\nname = \"h\"\nat = \"sw\"\nln_lines = 8\n\
                [[host]]\nname = \"plain\"\nat = \"sw\"\n[[hbr]]\nname = \"hbr\"\nat = \"sw\"\n\
                [[device]]\nname = \"d\"\nat = \"hbr\"\nlnr = 4\n\
                [[device]]\nname = \"e\"\nat = \"hbr\"\n[[device]]\nname = \"f\"\nat = \"sw\"\n";
    let laid = layout(text).unwrap();
    let flit = |part| laid.is_flit(part);
    assert_eq!([0, 1].map(|at| flit(Part::Host(at))), [false, true]);
    assert_eq!([0, 1, 2].map(|at| flit(Part::Device(at))), [false, false, true]);
    assert!(!flit(Part::Hbr(0)));
    let said = refused(&format!("{text}[[gim]]\nof = \"h\"\n"));
    assert!(said.starts_with("h: its links are in non-flit mode"), "{said}");
}

const P2P: &str = include_str!("../../../../pcaps/fabric/p2p.toml");

/// Memory devices have consecutive addresses, and each has its bridge in the hierarchy of its host.
#[test]
fn memory_devices_that_are_accessed_directly_have_their_places() {
    let layout = layout(P2P).unwrap();
    let [shared, theirs] = &layout.p2p[..] else { panic!("{:?}", layout.p2p) };
    assert_eq!((shared.hpa, shared.len), (1 << 40, 256 << 20));
    assert_eq!(theirs.hpa, (1 << 40) + (64 << 30));
    assert_eq!(layout.device_hdm(3), Some((1 << 40, 256 << 20)));
    assert_eq!(layout.device_hdm(0), None, "an accelerator shows nothing");
    let place = |device| layout.place(Part::Device(device)).unwrap();
    let at = |host, below, vppb| p2p::Place { host, below, vppb };
    assert_eq!((place(0), place(3)), (at(0, None, 1), at(0, Some(2), 1)));
    assert_eq!((place(1), place(4)), (at(1, Some(2), 1), at(1, None, 1)));
    assert_eq!(layout.place(Part::Host(0)), Some(at(0, None, 0)));
}

/// The memory of devices lies beyond all addresses of FAST, with the limit included.
#[test]
fn memory_devices_lie_behind_all_that_fast_finds() {
    let more = "[[gfd]]\nname = \"g0\"\nat = \"sw0\"\n[[memory]]\nname = \"pool\"\ndevices = [\"acc0\"]\n\
                gfds = [\"g0\"]\nlen = 0x10000000\nhpa = 0x10000000000\n";
    let shared = &layout(&format!("{P2P}{more}")).unwrap().p2p[0];
    assert_eq!(shared.hpa, (1 << 40) + 2 * (64 << 30));
}

#[test]
fn direct_access_that_cannot_be_is_refused_by_its_rule() {
    let shared = "from = [\"acc0\", \"acc1\", \"h0\"]\nto = \"mem0\"\n";
    let theirs = "from = [\"acc0\"]\nto = \"mem1\"\n";
    let pool = "[[gfd]]\nname = \"g0\"\nat = \"sw0\"\n[[memory]]\nname = \"pool\"\ndevices = [\"acc0\"]\n\
                gfds = [\"g0\"]\nlen = 0x10000000\nhpa = 0x10000000000\n[[p2p]]\n";
    let cases = [
        (shared, "from = [\"acc0\"]\nto = \"acc1\"\n", "p2p shared: acc1: p2p-memory-device"),
        (shared, "from = [\"acc0\"]\nto = \"h1\"\n", "p2p shared: h1: p2p-memory-device"),
        (shared, "from = [\"mem1\"]\nto = \"mem0\"\n", "p2p shared: mem1: p2p-requester"),
        (shared, "from = [\"h1\"]\nto = \"mem0\"\n", "p2p shared: h1: p2p-requester"),
        (shared, "from = [\"acc2\"]\nto = \"mem0\"\n", "p2p shared: acc2: p2p-same-domain"),
        (shared, "from = []\nto = \"mem0\"\n", "who accesses it: expected 1 or more"),
        (shared, "from = [\"acc0\", \"acc0\"]\nto = \"mem0\"\n", "p2p shared: acc0"),
        (shared, "from = [\"nobody\"]\nto = \"mem0\"\n", "there is no accelerator or NIC"),
        (shared, "from = [\"acc0\"]\nto = \"mem0\"\nhpa = 0x1000\n", "p2p-fabric-addresses"),
        (shared, "from = [\"acc0\"]\nto = \"mem0\"\nlen = 0\n", "p2p-fabric-addresses"),
        (shared, "from = [\"acc0\"]\nto = \"mem0\"\nlen = 0x1000000\n", "p2p-fabric-addresses"),
        (shared, "from = [\"acc0\"]\nto = \"mem0\"\nhpa = 0x10008000000\n", "p2p-fabric-addresses"),
        (theirs, "from = [\"acc0\"]\nto = \"mem0\"\nhpa = 0x40000000000\n", "p2p-one-address"),
        (theirs, "from = [\"acc0\"]\nto = \"mem1\"\nhpa = 0x10000000000\n", "memory-own-addresses"),
        (theirs, "from = [\"acc0\"]\nto = \"mem1\"\nhpa = 0x10040000000\n", "segment-one-entry"),
        (
            "[[p2p]]\nname = \"shared\"",
            &format!("{pool}name = \"shared\"\nhpa = 0x11000000000"),
            "p2p-outside-window",
        ),
        (
            "[[p2p]]\nname = \"shared\"",
            &format!("{pool}name = \"pool\""),
            "\"p2p pool\" is defined twice",
        ),
        ("name = \"theirs\"", "name = \"shared\"", "\"p2p shared\" is defined twice"),
        ("segment = 2", "segment = 1", "p2p shared: acc1: p2p-own-pcie-segment"),
        ("bind = [\"acc1\", \"mem1\"]", "bind = [\"acc1\"]", "p2p theirs: mem1: p2p-bound"),
        ("domain = \"one\"\nsegment = 2", "segment = 2", "p2p shared: acc1: p2p-same-domain"),
        ("about", "start = \"static\"\nabout", "no G-FAM, no GIM, no P2P"),
        ("domain = \"other\"", "domain = \"other\"\nln_lines = 4", ""),
        ("kind = \"memory\"", "kind = \"memory\"\nlnr = 2", "mem0: its links are in non-flit mode"),
    ];
    for (what, by, part) in cases {
        assert!(P2P.contains(what), "{what}");
        let found = layout(&P2P.replacen(what, by, 1));
        match part {
            "" => assert!(found.is_ok(), "{by}: {found:?}"),
            part => {
                let why = found.unwrap_err().to_string();
                assert!(why.contains(part), "{by}: {why}");
            }
        }
    }
}

/// A logical device has addresses and a bridge in the hierarchy of its host; impossible ones are refused.
#[test]
fn logical_devices_that_are_accessed_directly_have_their_places() {
    let text = include_str!("../../../../pcaps/fabric/p2p-ld.toml");
    let laid = layout(text).unwrap();
    let mld = Part::Device(4);
    let targets: Vec<_> = laid.p2p.iter().map(|it| (it.target(), it.hpa >> 36)).collect();
    assert_eq!(targets, [((mld, Some(0)), 16), ((mld, Some(1)), 17), ((mld, Some(2)), 18)]);
    let place = |ld| laid.place_of(mld, Some(ld));
    let at = |host, below, vppb| Some(p2p::Place { host, below, vppb });
    assert_eq!(
        [0, 1, 2, 3].map(place),
        [at(0, Some(3), 2), at(0, Some(3), 3), at(1, None, 2), None]
    );
    assert_eq!(laid.place(mld), None, "nobody has it whole");
    assert_eq!(laid.device_hdm(4), None);
    let bases = ["0=0x10000000000", "1=0x11000000000", "2=0x12000000000"];
    assert_eq!(laid.device_lds(4), bases);
    let one = "from = [\"acc2\"]\nto = \"mld0.1\"";
    #[rustfmt::skip] // columns: replacement of `one`, part of the refusal
    let cases = [
        ("from = [\"acc0\"]\nto = \"mld0.1\"", "p2p one: acc0: p2p-one-ld"),
        ("from = [\"h1\"]\nto = \"mld0.1\"",   "p2p one: h1: p2p-requester"),
        ("from = [\"acc2\"]\nto = \"mld0.3\"", "p2p one: mld0.3: p2p-bound"),
        ("from = [\"acc2\"]\nto = \"mld0.4\"", "its logical devices are 0 to 3"),
        ("from = [\"acc2\"]\nto = \"mld0\"",   "name a logical device, such as mld0.0"),
        ("from = [\"acc2\"]\nto = \"acc0.1\"", "acc0.1: it has no logical devices"),
        ("from = [\"acc2\"]\nto = \"mld0.1\"\nlen = 0x50000000", "p2p-within-device"),
        ("from = [\"acc2\"]\nto = \"mld0.0\"\nhpa = 0x20000000000", "p2p-one-address"),
    ];
    for (by, part) in cases {
        assert!(text.contains(one));
        let why = refused(&text.replacen(one, by, 1));
        assert!(why.contains(part), "{by}: {why}");
    }
}

/// A memory device below an HBR switch is reached through the port of that switch, which leads to only one such device.
#[test]
fn memory_devices_below_an_hbr_switch_are_behind_its_port() {
    let below = P2P.replacen("\"acc0\", \"mem0\"", "\"acc0\", \"low\"", 1).replacen(
        "name = \"mem0\"\nat = \"sw1\"",
        "name = \"mem0\"\nat = \"low\"",
        1,
    ) + "[[hbr]]\nname = \"low\"\nat = \"sw1\"\n";
    let laid = layout(&below).unwrap();
    let shared = &laid.p2p[0];
    assert_eq!((shared.to, shared.edge), (Part::Device(3), Part::Hbr(0)));
    assert_eq!(laid.edge_of(Part::Device(4)), Part::Device(4));
    assert_eq!(laid.device_hdm(3), Some((shared.hpa, 256 << 20)));
    let device = |kind| format!("[[device]]\nname = \"more\"\nat = \"low\"\nkind = \"{kind}\"\n");
    let two = "[[p2p]]\nname = \"two\"\nfrom = [\"acc0\"]\nto = \"more\"\n";
    let why = refused(&format!("{below}{}{two}", device("memory")));
    assert!(why.contains("p2p two: more: p2p-one-below-hbr"), "{why}");
    let two = two.replace("acc0", "more").replace("to = \"more\"", "to = \"mem0\"");
    let why = refused(&format!("{below}{}{two}", device("accelerator")));
    assert!(why.contains("p2p two: more: p2p-bound"), "it needs none: {why}");
}

/// CXL 3.1 section 2.5: each host has an LD of a memory device at a PBR switch. A wrong file is refused with the
/// reason.
#[test]
fn logical_devices_that_cannot_be_are_refused() {
    let file = |bind: &str, device: &str| {
        format!(
            "switch = [{{ name = \"s\" }}]\nhbr = [{{ name = \"p\", at = \"s\" }}]\n\
             host = [{{ name = \"a\", at = \"s\", bind = [{bind}] }}, {{ name = \"b\", at = \"s\", bind = [\"m.1\"] }}]\n\
             device = [{{ name = \"m\", at = \"s\", {device} }}]\n"
        )
    };
    #[rustfmt::skip] // columns: bindings of host a, keys of the device, part of the refusal
    let cases = [
        ("\"m.1\"", "lds = 2",                            "m.1: a and b both bind it"),
        ("\"m.2\"", "lds = 2",                            "its logical devices are 0 to 1"),
        ("\"m\"",   "lds = 2",                            "name a logical device, such as m.0"),
        ("\"m.0\"", "lds = 17",                           "expected 1 to 16"),
        ("\"m.0\"", "lds = 0",                            "expected 1 to 16"),
        ("\"m.0\"", "lds = 2, kind = \"nic\"",            "lds is for kind"),
        ("\"m.0\"", "lds = 2, lnr = 3",                   "lnr: logical devices"),
        ("\"m.0\"", "lds = 2, capacity_mib = 300",        "a multiple of 256"),
        ("",        "capacity_mib = 100",                 "multiple of 256"),
        ("",        "bar_mib = 3",                        "bar_mib: expected a power of two"),
        ("",        "bar_mib = 32768",                    "bar_mib: expected a power of two"),
        ("\"m.0\"", "lds = 2, bar_mib = 4",               "bar_mib: BAR 0 of logical devices"),
        ("\"m.0\"", "lds = 2, cache_lines = 4",           "cache_lines: logical devices have no CacheID"),
        ("",        "cache_lines = 1048577",              "cache_lines: expected 0 to 1048576"),
        ("",        "latency_ns = 0",                     "latency_ns: expected 1 to 1000000"),
        ("",        "bandwidth_mbps = 100000001",         "bandwidth_mbps: expected 1 to 100000000"),
        ("",        "kind = \"nic\", latency_ns = 5",     "latency_ns and bandwidth_mbps are for kind"),
        ("",        "dynamic_mib = 256",                  "dynamic_mib is of logical devices"),
        ("\"m.0\"", "lds = 2, dynamic_mib = 300",         "dynamic_mib: expected a multiple of 256"),
        ("\"m.0\"", "lds = 2, dynamic_mib = 768",         "at most capacity_mib"),
        ("",        "ld_limit = [0]",                     "of logical devices: give lds"),
        ("",        "ld_mib = [256]",                     "of logical devices: give lds"),
        ("\"m.0\"", "lds = 2, ld_mib = [256]",            "ld_mib: expected one for each of 2 logical devices, found 1"),
        ("\"m.0\"", "lds = 2, ld_bandwidth = [1, 2, 3]",  "ld_bandwidth: expected one for each"),
        ("\"m.0\"", "lds = 2, ld_limit = []",             "ld_limit: expected one for each"),
        ("\"m.0\"", "lds = 2, ld_mib = [256, 300]",       "ld_mib: expected multiples of 256"),
        ("\"m.0\"", "lds = 2, ld_mib = [256, 512]",       "768 MiB together, and the device has 512 MiB"),
        ("\"m.0\"", "lds = 2, dynamic_mib = 256, ld_mib = [256, 256]", "the device has 256 MiB besides dynamic"),
        ("\"m.0\"", "lds = 2, ld_mib = [4294967040, 4294967040]", "raise capacity_mib"),
        ("\"m.0\"", "lds = 2, capacity_mib = 256",        "256 MiB besides dynamic capacity are no 256 for each of 2 logical devices"),
        ("\"m.0\"", "lds = 2, dynamic_mib = 256",         "or give ld_mib"),
        ("\"m.0\"", "lds = 2, ld_bandwidth = [128, 129]", "257 of 256 together"),
        ("\"m.0\"", "kind = \"memory\"",                  "it has no logical devices"),
        ("\"x.0\"", "lds = 2",                            "there is no device \"x.0\""),
    ];
    for (bind, device, part) in cases {
        let said = refused(&file(bind, device));
        assert!(said.contains(part), "{bind}, {device}: {said}");
    }
    let below = file("", "lds = 2").replace("at = \"s\", lds", "at = \"p\", lds");
    assert!(refused(&below).contains("must be a PBR switch"));
    let fixed = format!("start = \"static\"\n{}", file("", "lds = 2"));
    assert!(refused(&fixed).contains("no logical devices"));
    let fits = layout(&file("\"m.0\"", "lds = 2, capacity_mib = 1024")).unwrap();
    assert_eq!(fits.switches[0].vcses[0].vppbs, [VppbBinding::Ld(2, 0)]);
    let all = "lds = 2, capacity_mib = 1024, dynamic_mib = 256, ld_mib = [0, 768], ld_bandwidth = [255, 1], ld_limit = [255, 0]";
    assert!(layout(&file("\"m.0\"", all)).is_ok(), "exactly all that there is");
}

/// Partitions fit into their GFD, and memory into a partition of its kind. By default the capacity is the sum of the
/// partitions.
#[test]
fn partitions_fit_their_device_and_memory_its_partition() {
    let file = |gfd: &str, memory: &str| {
        format!(
            "switch = [{{ name = \"s\" }}]\nhost = [{{ name = \"h\", at = \"s\" }}]\n\
             gfd = [{{ name = \"g\", at = \"s\", {gfd} }}]\n\
             memory = [{{ name = \"m\", hosts = [\"h\"], gfds = [\"g\"], hpa = 0x10000000000, {memory} }}]"
        )
    };
    let (both, len) = (r#"partitions = ["dram:512MiB", "pm:256MiB"]"#, "len = 0x10000000");
    let fits = layout(&file(both, &format!("{len}, media = \"pm\""))).unwrap();
    assert_eq!(fits.gfds[0].capacity_mib, 768);
    let more = layout(&file(&format!("capacity_mib = 1024, {both}"), len)).unwrap();
    assert_eq!(more.gfds[0].capacity_mib, 1_024);
    assert_eq!(layout(&file("", len)).unwrap().gfds[0].capacity_mib, 256);
    let pm = |len: &str| format!("{len}, media = \"pm\"");
    let (huge, small) = (pm("len = 0x20000000"), format!("capacity_mib = 512, {both}"));
    #[rustfmt::skip] // columns: keys of the GFD, keys of the memory, part of the refusal
    let cases = [
        ("partitions = []",                      len,      "g: partitions: expected 1 to 4 partitions, found 0"),
        (r#"partitions = ["pm:256MiB", "pm:256MiB", "pm:256MiB", "pm:256MiB", "pm:256MiB"]"#, len, "1 to 4 partitions, found 5"),
        (r#"partitions = ["pm:4194304GiB"]"#,    len,      "they have 4 PiB or more"),
        (small.as_str(),                         len,      "they have 768 MiB, and capacity_mib is 512"),
        (both,                                   &huge,    "memory m: g has no partition of pm with 0x20000000 bytes"),
        (both,                                   "len = 0x30000000", "memory m: g has no partition with 0x30000000 bytes"),
        (r#"partitions = ["dram:512MiB"]"#,      &pm(len), "g has no partition of pm"),
        ("",                                     &pm(len), "g has no partition of pm"),
    ];
    for (gfd, memory, part) in cases {
        let text = file(gfd, memory);
        match Topology::parse(&text) {
            Err(error) => assert!(error.to_string().contains(part), "{text}: {error}"),
            Ok(topology) => {
                let error = Layout::new(&topology).unwrap_err().to_string();
                assert!(error.contains(part), "{text}: {error}");
            }
        }
    }
    // Two shares of 256 MiB exceed the partition of persistent memory, but one fits beside another one in DRAM.
    let two = |of: &str| {
        let one = file(both, &format!("{len}, media = \"pm\""));
        let more = format!("{len}, hpa = 0x10010000000, {of}");
        let next = format!(", {{ name = \"n\", hosts = [\"h\"], gfds = [\"g\"], {more} }}]");
        format!("{}{next}", one.strip_suffix(']').unwrap())
    };
    assert_eq!(
        refused(&two("media = \"pm\"")),
        "memory n: g has 0x10000000 bytes of pm, and this and the memory before it take 0x20000000 of them"
    );
    assert!(layout(&two("media = \"dram\"")).is_ok() && layout(&two("granularity = 256")).is_ok());
    for bad in [
        r#"partitions = ["flash:256MiB"]"#,
        r#"partitions = ["pm:0"]"#,
        r#"partitions = ["pm:100MiB"]"#,
    ] {
        let error = Topology::parse(&file(bad, len)).unwrap_err().to_string();
        assert!(error.contains("partition \""), "{bad}: {error}");
    }
}

/// A key of a file has an effect or is refused.
#[test]
fn what_would_have_no_effect_is_refused() {
    let base = "switch = [{ name = \"sw\" }]\ngfd = [{ name = \"g\", at = \"sw\" }]\n";
    let device = |keys: &str| format!(r#"device = [{{ name = "d", at = "sw", {keys} }}]"#);
    let lone = r#"device = [{ name = "d", at = "h" }]"#;
    let host = |keys: &str| format!(r#"host = [{{ name = "h", at = "sw"{keys} }}]"#);
    let memory = |keys: &str| {
        let head = host("");
        format!(
            "{head}\nmemory = [{{ name = \"m\", hosts = [\"h\"], gfds = [\"g\"], hpa = \"0x10000000000\", {keys} }}]"
        )
    };
    let lds = |keys: &str| {
        format!(r#"device = [{{ name = "d", at = "sw", lds = 4, capacity_mib = 2048, {keys} }}]"#)
    };
    #[rustfmt::skip] // columns: rest of a file with a switch and a GFD of 256 MiB, part of the refusal; empty for none
    let cases = [
        (r#"host = [{ name = "h" }]"#.to_owned(), "host h: nothing is connected"),
        (format!("host = [{{ name = \"h\" }}]\n{lone}"), ""),
        (format!("host = [{{ name = \"h\", spare_vppbs = 1 }}]\n{lone}"), "host h: spare_vppbs"),
        (format!("host = [{{ name = \"h\", domain = \"x\" }}]\n{lone}"), "host h: domain"),
        (format!("host = [{{ name = \"h\", segment = 1 }}]\n{lone}"), "host h: segment"),
        (format!("host = [{{ name = \"h\", link_per_device = true }}]\n{lone}"), "host h: link_per_device"),
        (host(", spare_vppbs = 1, domain = \"x\", segment = 1"), ""),
        (host(", ln_lines = 1"), ""),
        (host(", ln_lines = 1048576"), ""),
        (host(", ln_lines = 0"), "h: ln_lines: expected 1 to 1048576"),
        (host(", ln_lines = 1048577"), "h: ln_lines: expected 1 to 1048576"),
        (host(", enable_use_fabric_mem = true"), "host h: enable_use_fabric_mem"),
        (device("enable_use_fabric_mem = true, kind = \"nic\""), "device d: enable_use_fabric_mem has no effect"),
        (device("enable_use_fabric_mem = true"), "d: enable_use_fabric_mem: a memory device begins no transfers"),
        (memory("len = \"16MiB\""), ""),
        (memory("len = \"1MiB\""), "memory m: the size is no multiple of 0x1000000"),
        (memory("len = \"24MiB\""), "0x1000000 or 0x2000000 would do"),
        (memory("len = \"16MiB\", granularity = 256"), ""),
        (memory("len = \"16MiB\", granularity = \"16KiB\""), ""),
        (memory("len = \"16MiB\", granularity = 300"), "memory m: an interleave granule is a power of two"),
        (memory("len = \"16MiB\", granularity = \"32KiB\""), "memory m: an interleave granule is a power of two"),
        (lds("dynamic_mib = 1024"), ""),
        (lds("dynamic_mib = 2048"), "d: capacity_mib: 0 MiB besides dynamic capacity"),
        (lds("dynamic_mib = 2048, ld_mib = [0, 0, 0, 0]"), ""),
    ];
    for (beside, want) in cases {
        let said = Topology::parse(&format!("{base}{beside}")).unwrap();
        let said = Layout::new(&said).err().map_or_else(String::new, |error| error.to_string());
        assert!(said.contains(want) && said.is_empty() == want.is_empty(), "{beside}: {said}");
    }
}

/// Coherence settings have bounds, and are refused for a GFD that is not coherent.
#[test]
fn settings_of_coherence_are_checked() {
    #[rustfmt::skip] // columns: keys of a GFD, part of the refusal; empty for none
    let cases = [
        ("coherent = true, filter_lines = 1, snoop_ms = 60000", ""),
        ("snoop_ms = 100", "c: snoop_ms: expected coherent = true, found 100"),
        ("filter_lines = 8", "c: filter_lines: expected coherent = true, found 8"),
        ("coherent = true, snoop_ms = 0", "c: snoop_ms: expected 1 to 60000, found 0"),
        ("coherent = true, snoop_ms = 60001", "c: snoop_ms: expected 1 to 60000, found 60001"),
        ("coherent = true, filter_lines = 0", "c: filter_lines: expected 1 to 1048576, found 0"),
    ];
    for (keys, want) in cases {
        let file = format!(
            "switch = [{{ name = \"sw\" }}]\ngfd = [{{ name = \"c\", at = \"sw\", {keys} }}]"
        );
        let said = Layout::new(&Topology::parse(&file).unwrap());
        let said = said.err().map_or_else(String::new, |error| error.to_string());
        assert!(said.contains(want) && said.is_empty() == want.is_empty(), "{keys}: {said}");
    }
}

/// These names appear in texts and on pages, and in the manager's desired state.
#[test]
fn names_of_memory_gim_and_p2p_are_words() {
    let file = |table: &str, name: &str| {
        let rest = match table {
            "memory" => r#"hosts = ["h"], gfds = ["g"], len = "16MiB", hpa = "0x10000000000""#,
            "gim" => r#"of = "h""#,
            _ => r#"from = ["a"], to = "d""#,
        };
        format!(
            "switch = [{{ name = \"sw\" }}]\ngfd = [{{ name = \"g\", at = \"sw\" }}]\n\
             host = [{{ name = \"h\", at = \"sw\", bind = [\"d\", \"a\"] }}, {{ name = \"i\", at = \"sw\" }}]\n\
             device = [{{ name = \"d\", at = \"sw\" }}, {{ name = \"a\", at = \"sw\", kind = \"accelerator\" }}]\n\
             {table} = [{{ name = \"{name}\", {rest} }}]\n"
        )
    };
    for table in ["memory", "gim", "p2p"] {
        let good = Topology::parse(&file(table, "a1")).unwrap();
        assert_eq!(Layout::new(&good).err(), None, "{table}");
        for bad in ["d e", "</script><b>x", "a\\u0007", ""] {
            let said = refused(&file(table, bad));
            assert!(
                said.starts_with(table) && said.contains("expected a name of letters"),
                "{said}"
            );
        }
    }
}
