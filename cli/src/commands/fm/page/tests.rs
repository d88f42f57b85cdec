//! The page of a fabric: complete, to scale, within its content policy, and with names as text only.
//!
//! Renders an overview as the manager sends it, and checks elements of the page. A browser's view of it is tested in
//! `tests/py/test_live_fabric_page.py`.
//!
//! Source: docs/fm.md "The page of a fabric".

use roxmltree::{Document, Node, ParsingOptions};
use serde_json::{Value, json};
use weft_views::policy::hash;

use super::*;

const SCRIPT_NAME: &str = "<script>alert(1)</script>";
const CDATA_NAME: &str = "\"]]><b>&amp;'";
const IMAGE_NAME: &str = "<img src=x>";
const BASE: u64 = 1 << 40;
const SEGMENT: u64 = 64 << 30;

fn switch(number: u16, ports: &Value, targets: &Value) -> Value {
    let came = (number > 0).then(|| json!({"from": {"switch": 0, "port": 5}, "at": 0}));
    json!({
        "uuid": format!("5a5a5a5a-0000-0000-0000-00000000000{number}"), "serial": 7, "pid": number, "came": came,
        "modes": 1, "rgts": 1, "ports": ports, "targets": targets, "vcss": [], "whole": number == 0,
    })
}

fn port(number: u8, partner: &Value) -> Value {
    let up = partner != "Nobody";
    json!({"number": number, "role": "Usp", "up": up, "width": 16, "speed": 6, "partner": partner})
}

fn target(kind: &str, port: u8, pid: u16) -> Value {
    json!({"id": port, "kind": kind, "instance": 0, "vcs": 0, "port": port, "pid": pid})
}

fn at(switch: u16, port: u8) -> Value {
    json!({"switch": switch, "port": port})
}

fn bridge(switch: u16, vcs: u8, vppb: u8) -> Value {
    json!({"switch": switch, "vcs": vcs, "vppb": vppb})
}

fn gfd(pid: u16, at: &Value) -> Value {
    json!({"uuid": format!("6f6f6f6f-0000-0000-0000-0000000000{pid:02}"), "pid": pid, "at": at, "capacity": 4, "groups": 64})
}

/// Two switches, one of them not read; a link that is up and one that is down; a host, a device and one without link;
/// two GFDs.
fn inventory() -> Value {
    let first = [
        port(0, &json!("Host")),
        port(1, &json!({"Device": 1})),
        port(2, &json!("Nobody")),
        port(4, &json!({"Gfd": 0})),
        port(5, &json!({"Switch": at(1, 0)})),
        port(6, &json!({"Switch": at(1, 1)})),
    ];
    let second = [
        port(0, &json!({"Switch": at(0, 5)})),
        port(1, &json!({"Switch": at(0, 6)})),
        port(3, &json!({"Gfd": 1})),
    ];
    let targets = [target("Host", 0, 16), target("Downstream", 1, 17)];
    let links = [[at(0, 5), at(1, 0)], [at(0, 6), at(1, 1)]];
    json!({
        "manager": {"uuid": "77656674-2066-6162-7269-63206d677200", "pid": 4094},
        "switches": [switch(0, &json!(first), &json!(targets)), switch(1, &json!(second), &json!([]))],
        "gfds": [gfd(3, &at(0, 4)), gfd(4, &at(1, 3))],
        "links": links,
        "down": [links[1]],
    })
}

fn run(hpa: u64, segments: u32, targets: &[u16]) -> Value {
    let ways = targets.len();
    json!({"hpa": hpa, "segments": segments, "gim": false, "ways": ways, "granularity": 4096, "targets": targets})
}

fn share(name: &str, hpa: u64, size: u64, hosts: &[u16]) -> Value {
    let parts = [3, 4].map(|gfd| json!({"gfd": gfd, "group": 5, "decoder": 0, "dpa": 0}));
    json!({"name": name, "hpa": hpa, "size": size, "granularity": 4096, "hosts": hosts, "parts": parts})
}

fn direct(name: &str, [to, from]: [u16; 2], hpa: u64, state: &str) -> Value {
    let who = |pid: u16| json!({"name": CDATA_NAME, "pid": pid});
    let why = (state == "waits").then_some("no <i>secret");
    json!({
        "name": name, "to": who(to), "from": [who(from)], "hpa": hpa, "size": 256 << 20, "state": state, "why": why,
    })
}

fn overview() -> Value {
    let fast = json!({
        "base": BASE, "limit": BASE + 4 * SEGMENT, "segment_bytes": SEGMENT, "entries": 4096,
        "runs": [run(BASE, 1, &[3, 4]), run(BASE + 2 * SEGMENT, 2, &[4, 3])],
    });
    let ldst = |pid: u16| match pid {
        16 => json!({"base": 0, "limit": 0, "segment_bytes": SEGMENT, "entries": 16, "runs": []}),
        _ => json!({
            "base": 2 * BASE, "limit": 2 * BASE + 8 * SEGMENT, "segment_bytes": SEGMENT, "entries": 16,
            "runs": [run(2 * BASE + SEGMENT, 1, &[4])],
        }),
    };
    let map = |pid: u16, port: u8, fast: &Value| {
        json!({
            "pid": pid, "at": at(0, port), "host": pid == 16, "vcs": 0, "vppb": u8::from(pid != 16),
            "own": [{"base": 0, "size": 4_u64 << 30}], "fast": fast,
            "ldst": {"read": ldst(pid)},
            "lav": {"read": [4]},
        })
    };
    let link = |index: usize, down: bool, dpids: [u16; 2]| {
        let one = json!({"bps": 1_234_567, "over_ms": 400});
        let load = if down { json!([null, null]) } else { json!([one, null]) };
        let ends = inventory()["links"][index].clone();
        json!({"ends": ends, "down": down, "bandwidth_mbps": 121_008, "dpids": dpids, "group_dpids": [1, 0], "load": load})
    };
    let local = json!({
        "bridge": bridge(0, 0, 1), "state": "bound", "host": at(0, 0), "port": at(0, 1), "ld": null,
        "below": null, "path": [],
    });
    let remote = json!({
        "bridge": bridge(0, 0, 2), "state": "bound", "host": at(0, 0), "port": null, "ld": null,
        "below": bridge(1, 1, 0), "path": [at(0, 5), at(1, 0)],
    });
    let name =
        |switch, port: Option<u8>, name| json!({"switch": switch, "port": port, "name": name});
    json!({
        "inventory": inventory(),
        "names": [
            name(0, None, SCRIPT_NAME), name(1, None, "leaf-1"), name(0, Some(0), CDATA_NAME),
            name(0, Some(1), "xpu0"), name(0, Some(2), "away"), name(0, Some(4), "g0"),
        ],
        "links": [link(0, false, [7, 3]), link(1, true, [0, 0])],
        "bindings": [local, remote],
        "memory": [
            share(IMAGE_NAME, BASE, 256 << 20, &[16, 17]),
            share("quarter", BASE + (768 << 20), 256 << 20, &[16]),
            share("other", BASE + 2 * SEGMENT, 1 << 30, &[16]),
            share("late", BASE + 9 * SEGMENT, 1 << 30, &[16]),
        ],
        "gim": [{
            "name": SCRIPT_NAME, "of": {"name": "h1", "pid": 18}, "from": [{"name": CDATA_NAME, "pid": 16}],
            "prefix": true, "hpa": BASE + 20 * SEGMENT, "size": 1 << 20,
        }],
        "p2p": [
            direct("direct", [4, 17], 2 * BASE + SEGMENT, "given"), direct("wrong", [5, 17], 2 * BASE + SEGMENT, "given"),
            direct(IMAGE_NAME, [4, 16], 3 * BASE, "given"), direct("later", [4, 17], 3 * BASE, "waits"),
        ],
        "maps": [
            map(16, 0, &json!({"read": fast})),
            map(17, 1, &json!({"not_read": "the host's GAE: <b>timeout</b>"})),
        ],
        "gfds": [
            {"pid": 3, "backpressure_percent": {"read": 12}},
            {"pid": 4, "backpressure_percent": {"not_read": "GFD <i>does not answer"}},
        ],
    })
}

fn page_of(overview: Value) -> String {
    page(&serde_json::from_value(overview).unwrap())
}

fn parse(page: &str) -> Document<'_> {
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    Document::parse_with_options(page, options).expect("well-formed")
}

fn by_id<'a>(doc: &'a Document<'_>, id: &str) -> Node<'a, 'a> {
    let mut all = doc.descendants().filter(|node| node.attribute("id") == Some(id));
    let found = all.next().unwrap_or_else(|| panic!("nothing is {id}"));
    assert!(all.next().is_none(), "{id} twice");
    found
}

fn text(node: Node<'_, '_>) -> String {
    node.descendants().filter(Node::is_text).filter_map(|node| node.text()).collect()
}

/// Rows with an attribute `data-NAME`: its value, and the cells.
fn rows(doc: &Document<'_>, name: &str) -> Vec<(String, Vec<String>)> {
    let name = format!("data-{name}");
    let rows = doc.descendants().filter(|node| node.has_tag_name("tr"));
    rows.filter_map(|row| {
        let cells = row.children().filter(|node| node.has_tag_name("td")).map(text).collect();
        Some((row.attribute(name.as_str())?.to_owned(), cells))
    })
    .collect()
}

#[test]
fn names_are_text_wherever_they_stand() {
    let page = page_of(overview());
    for part in ["<script>alert", "<img", "<b>", "<i>", "]]>"] {
        assert!(!page.contains(part), "{part}");
    }
    let doc = parse(&page);
    let count = |name: &str| doc.descendants().filter(|node| node.has_tag_name(name)).count();
    assert_eq!((count("script"), count("style")), (1, 1), "those of the page");
    assert!(text(by_id(&doc, "s0")).contains(SCRIPT_NAME), "a title has the whole name");
    assert!(text(by_id(&doc, "s0.0")).contains(CDATA_NAME));
    let shares = rows(&doc, "memory");
    assert_eq!((shares[0].0.as_str(), shares[0].1[0].as_str()), (IMAGE_NAME, IMAGE_NAME));
    let gim = rows(&doc, "gim");
    assert_eq!(gim[0].1[0], SCRIPT_NAME);
    assert!(gim[0].1[4].starts_with(CDATA_NAME), "{gim:?}");
    let p2p = rows(&doc, "p2p");
    assert_eq!(p2p[2].1[..3], [IMAGE_NAME, "0x30000000000", "256 MiB"]);
    assert_eq!(
        p2p[2].1[3..],
        [format!("{CDATA_NAME} (004)"), format!("{CDATA_NAME} (010)"), "given".to_owned()]
    );
    assert_eq!(p2p[3].1[5], "waits: no <i>secret");
    let ends = rows(&doc, "end");
    assert!(ends.iter().any(|(at, cells)| at == "s1.3" && cells[7] == "GFD <i>does not answer"));
    assert!(text(doc.root()).contains("the host's GAE: <b>timeout</b>"));
    let script = doc.descendants().find(|node| node.has_tag_name("script")).unwrap();
    assert_eq!(text(script), [SCRIPT, TIP_SCRIPT].concat(), "no name is in it");
}

#[test]
fn the_policy_allows_the_pages_own_style_and_script_alone() {
    let page = page_of(overview());
    let doc = parse(&page);
    let meta = doc
        .descendants()
        .find(|node| node.attribute("http-equiv") == Some("Content-Security-Policy"));
    let policy = meta.unwrap().attribute("content").unwrap();
    let inside = |name: &str| text(doc.descendants().find(|node| node.has_tag_name(name)).unwrap());
    let want = format!(
        "default-src 'none'; script-src {}; style-src {}; base-uri 'none'; form-action 'none'",
        hash(&inside("script")),
        hash(&inside("style"))
    );
    assert_eq!(policy, want);
    let space = "http://www.w3.org/2000/svg"; // a name, which is not loaded
    assert_eq!(page.matches(space).count(), 1);
    let rest = page.replace(space, "");
    for part in ["http:", "https:", "src=\"", "url(", "@import", " style=", " href="] {
        assert!(!rest.contains(part), "{part}");
    }
    for node in doc.descendants() {
        let handler = node.attributes().find(|attribute| attribute.name().starts_with("on"));
        assert!(handler.is_none(), "{handler:?}");
    }
}

#[test]
fn everything_of_a_fabric_is_on_its_page() {
    let page = page_of(overview());
    let doc = parse(&page);
    #[rustfmt::skip] // columns: id, class, part of its text
    let drawn = [
        ("s0",         "switch",        "PID 000"),
        ("s1",         "switch silent", "leaf-1 PID 001, not read"),
        ("s0.0",       "host",          "0: host "),
        ("s0.1",       "device",        "1: device xpu0 of type 1 011"),
        ("s0.2",       "absent down",   "2: away, no link"),
        ("s0.4",       "gfd",           "4: GFD g0 003, 1024 MiB"),
        ("s1.3",       "gfd",           "3: GFD 004, 1024 MiB"),
        ("s0.5-s1.0",  "link",          ".5 - leaf-1.0: 7 DPIDs from "),
        ("s0.6-s1.1",  "link down",     ".6 - leaf-1.1, down"),
    ];
    for (id, class, part) in drawn {
        let node = by_id(&doc, id);
        assert_eq!(node.attribute("class"), Some(class), "{id}");
        assert!(text(node).contains(part), "{id}: {}", text(node));
    }
    let loads: Vec<String> = doc
        .descendants()
        .filter(|node| node.attribute("class") == Some("load"))
        .map(text)
        .collect();
    assert_eq!(loads, ["7/3"], "none at a link that is down");
    let first = |name: &str| rows(&doc, name).into_iter().map(|(id, _)| id).collect::<Vec<_>>();
    assert_eq!(first("switch"), ["s0", "s1"]);
    assert_eq!(first("end"), ["s0.0", "s0.1", "s0.2", "s0.4", "s1.3"]);
    let links = rows(&doc, "link");
    assert_eq!(
        links[0].1[2..],
        ["up", "121,008", "1.2 Mbit/s over 400 ms", "", "7", "3", "1", "0"]
    );
    assert_eq!((links[1].0.as_str(), links[1].1[2].as_str()), ("s0.6-s1.1", "down"));
    let bindings = rows(&doc, "bridge");
    assert_eq!(bindings[0].0, "s0/0/1");
    assert_eq!(bindings[0].1[1], "xpu0 port 1");
    assert_eq!(bindings[1].1[1], "vUSP leaf-1/1/0");
    let marks: Vec<String> = rows(&doc, "marks").into_iter().map(|(marks, _)| marks).collect();
    assert!(marks.contains(&"s0 s0.0 s0.1".to_owned()), "{marks:?}");
    assert!(marks.contains(&"s0 s0.0 s0.5-s1.0 s1".to_owned()), "{marks:?}");
    for id in marks.iter().flat_map(|marks| marks.split(' ')) {
        by_id(&doc, id);
    }
    let ends = rows(&doc, "end");
    let gfd = &ends.iter().find(|(at, _)| at == "s0.4").unwrap().1;
    assert_eq!(gfd[1..], ["GFD", "g0", "", "up", "1 GiB", "64", "12 %"]);
}

/// Where a box is and how wide it is; bars begin at 20 and are 720 wide.
fn span_of(node: Node<'_, '_>) -> (f64, f64) {
    let number = |name| node.attribute(name).unwrap().parse::<f64>().unwrap();
    (number("x"), number("width"))
}

fn boxes<'a>(group: Node<'a, 'a>) -> Vec<Node<'a, 'a>> {
    let drawn = |node: &Node<'_, '_>| {
        node.has_tag_name("rect") && node.attribute("class").is_some_and(|c| c.starts_with('c'))
    };
    group.descendants().filter(drawn).collect()
}

/// The first of the four segments is a quarter of the window; in its strip, whose scale is 1 GiB, memory is where it is.
#[test]
fn maps_are_to_scale() {
    let page = page_of(overview());
    let doc = parse(&page);
    let windows = doc.descendants().filter(|node| node.attribute("class") == Some("window"));
    let windows: Vec<_> = windows.collect();
    let [window, ldst] = windows[..] else { panic!("{windows:?}") };
    assert_eq!(ldst.attribute("data-base"), Some("0x20000000000"), "of the device");
    assert_eq!(boxes(ldst).into_iter().map(span_of).collect::<Vec<_>>(), [(110.0, 90.0)]);
    assert!(text(ldst).contains("LDST Limit 0x28000000000"), "{}", text(ldst));
    assert_eq!(window.attribute("data-base"), Some("0x10000000000"));
    assert_eq!(window.attribute("data-limit"), Some("0x14000000000"));
    let spans: Vec<_> = boxes(window).into_iter().map(span_of).collect();
    assert_eq!(spans, [(20.0, 180.0), (380.0, 360.0)]);
    let strips: Vec<_> =
        doc.descendants().filter(|node| node.attribute("class") == Some("strip")).collect();
    let bases: Vec<_> = strips.iter().filter_map(|strip| strip.attribute("data-base")).collect();
    let host =
        ["0x10000000000", "0x12000000000", "0x19000000000", "0x24000000000", "0x30000000000"];
    assert_eq!(bases[..5], host, "runs of FAST, memory that FAST has not, GIM by prefix, P2P");
    let device = ["0x10000000000", "0x21000000000", "0x21000000000"];
    assert_eq!(bases[5..], device, "the device: what waits is not there");
    let first = boxes(strips[0]);
    let spans: Vec<_> = first.iter().take(2).map(|node| span_of(*node)).collect();
    assert_eq!(spans, [(20.0, 180.0), (560.0, 180.0)]);
    let ways: Vec<_> = first.iter().skip(2).map(|node| node.attribute("data-pid")).collect();
    assert_eq!(ways, [Some("003"), Some("004")]);
    #[rustfmt::skip] // columns: strip, part of its text
    let said = [
        (0, "1 segment of 64 GiB, 2 ways of 4 KiB"), (0, "bar: the first 1 GiB of 64 GiB"),
        (1, "other was granted with other targets"), (2, "FAST has no entry for it"),
        (3, "PID in the request"), (4, "LDST has no entry for it"), (6, "by LDST"), (7, "LDST leads to another target"),
    ];
    assert!(!text(strips[6]).contains("LDST leads"), "{}", text(strips[6]));
    for (at, part) in said {
        assert!(text(strips[at]).contains(part), "{part}: {}", text(strips[at]));
    }
    let granted: Vec<String> = rows(&doc, "granted").into_iter().map(|(name, _)| name).collect();
    let host = [IMAGE_NAME, "quarter", "other", "late", SCRIPT_NAME, IMAGE_NAME];
    assert_eq!(granted[..6], host);
    assert_eq!(granted[6..], [IMAGE_NAME, "direct", "wrong"]);
    let capacity = rows(&doc, "capacity");
    assert_eq!(capacity[0].1, ["g0 (003)", "5", IMAGE_NAME, "0", "0x0", "128 MiB"]);
    let all = text(doc.root());
    for part in [
        "FabricBase to FabricLimit 0x10000000000 to 0x14000000000, in segments of 64 GiB; 4096 entries, 3 of them",
        "LDST: off.",
        "LDST: window 0x20000000000 to 0x28000000000, in segments of 64 GiB; 16 entries, 1 of them",
        "LAV: PID 004.",
        "FAST: not read: the host's GAE",
        "0x0 to 0xffffffff",
    ] {
        assert!(all.contains(part), "{part}");
    }
}

#[test]
fn nothing_and_the_most_there_can_be_are_pages_too() {
    let mut none = overview();
    for part in ["names", "links", "bindings", "memory", "gim", "p2p", "maps", "gfds"] {
        none[part] = json!([]);
    }
    for part in ["switches", "gfds", "links", "down"] {
        none["inventory"][part] = json!([]);
    }
    let page = page_of(none);
    assert_eq!(parse(&page).descendants().filter(|node| node.has_tag_name("tr")).count(), 0);

    let mut most = overview();
    let table = &mut most["maps"][0]["fast"]["read"];
    (table["base"], table["limit"]) = (json!(1), json!(u64::MAX));
    table["segment_bytes"] = json!(u64::MAX);
    table["runs"][0]["segments"] = json!(u32::MAX);
    table["runs"][1]["targets"] = json!([]);
    table["runs"][1]["hpa"] = json!(u64::MAX);
    most["memory"][0]["hpa"] = json!(u64::MAX);
    most["memory"][1]["size"] = json!(u64::MAX);
    most["memory"][2]["parts"] = json!([]);
    most["memory"][3]["size"] = json!(0);
    most["inventory"]["gfds"][0]["capacity"] = json!(u64::MAX);
    most["bindings"][1]["path"] = json!([at(9, 9)]);
    most["inventory"]["switches"][1]["came"]["from"]["switch"] = json!(77);
    let page = page_of(most);
    parse(&page);
    assert!(!page.contains("width=\"0.0\""), "a box is a pixel wide at least");
}
