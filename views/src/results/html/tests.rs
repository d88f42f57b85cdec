//! Tests of the page: it is well-formed and complete, loads nothing else, and has the figures of its JSON.
//!
//! Pages of made-up results are taken apart into elements, and shown by a browser where there is one.

use roxmltree::{Document, ParsingOptions};
use serde_json::Value;
use weft_sim::results::flow::FlowResult;

use super::*;
use crate::results::example;

fn parse(page: &str) -> Document<'_> {
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    Document::parse_with_options(page, options).expect("well-formed")
}

fn json(doc: &Document<'_>) -> Value {
    let script = doc.descendants().find(|node| node.attribute("id") == Some("results")).unwrap();
    serde_json::from_str(script.text().unwrap()).unwrap()
}

/// The text of a figure, in the unit of the JSON: digits without a point.
fn in_json_unit(text: &str, places: usize) -> String {
    let text = text.replace(',', "");
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    if places == 0 {
        return text.clone();
    }
    let digits = format!("{whole}{part:0<places$}");
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() { "0".to_owned() } else { digits.to_owned() }
}

#[test]
fn each_figure_of_a_table_is_that_of_the_json() {
    let page = page(&example::results());
    let doc = parse(&page);
    let json = json(&doc);
    let mut checked = 0;
    for cell in doc.descendants().filter(|node| node.has_attribute("data-json")) {
        let pointer = cell.attribute("data-json").unwrap();
        let places = cell.attribute("data-places").unwrap().parse().unwrap();
        let value = json.pointer(pointer).unwrap_or_else(|| panic!("no {pointer}"));
        let text = cell.text().unwrap();
        assert_eq!(in_json_unit(text, places), value.to_string(), "{pointer}");
        checked += 1;
    }
    assert!(checked > 70, "{checked}");
}

#[test]
fn each_picture_is_there_and_nothing_is_loaded() {
    let page = page(&example::results());
    for link in ["http://", "https://", "src=", "url(", "@import"] {
        assert!(!page.contains(link), "{link}");
    }
    let doc = parse(&page);
    let ids: Vec<_> = doc
        .descendants()
        .filter(|node| node.has_tag_name("figure"))
        .filter_map(|node| node.attribute("id"))
        .collect();
    let want =
        ["fct", "slowdown", "depth", "pause", "throughput", "matrix", "links", "parts", "topology"];
    assert_eq!(ids, want);
    for figure in doc.descendants().filter(|node| node.has_tag_name("figure")) {
        let titles = figure.descendants().filter(|node| node.has_tag_name("title")).count();
        assert!(titles > 1, "{:?}", figure.attribute("id"));
    }
    assert_eq!(doc.descendants().filter(|node| node.has_tag_name("script")).count(), 2);
}

#[test]
fn names_cannot_break_the_page() {
    let page = page(&example::results());
    assert!(!page.contains("<script>alert") && !page.contains("</script>&"));
    let doc = parse(&page);
    assert_eq!(json(&doc)["hosts"][1]["name"], example::HOSTILE);
    let cells = doc.descendants().filter(|node| node.has_tag_name("td"));
    let shown = cells.filter_map(|node| node.text()).any(|text| text == example::HOSTILE);
    assert!(shown, "the name is shown as it is");
}

/// A mark twice as high stands for a figure twice as large, which its title has.
#[test]
fn parts_of_latency_stand_on_each_other() {
    let page = page(&example::results());
    let doc = parse(&page);
    let bar = |words: &str| -> (f64, f64) {
        let mut of = doc.descendants().filter(|node| node.has_tag_name("rect"));
        let title = |node: &roxmltree::Node<'_, '_>| {
            let title = node.children().find(|child| child.has_tag_name("title"));
            title.and_then(|title| title.text()).map(str::to_owned)
        };
        let bar = of
            .rfind(|node| title(node).is_some_and(|title| title.starts_with(words)))
            .unwrap_or_else(|| panic!("no bar says {words:?}"));
        let number = |name| bar.attribute(name).unwrap().parse::<f64>().unwrap();
        (number("y"), number("height"))
    };
    let endpoint = bar("h0: endpoint 0.12 us");
    let wire = bar("h0: wire 0.6 us");
    let serialisation = bar("h0: serialisation 0.05688 us");
    assert!((wire.1 / endpoint.1 - 5.0).abs() < 0.1, "{wire:?} {endpoint:?}");
    assert!((serialisation.0 - (wire.0 + wire.1)).abs() < 0.2, "{serialisation:?} {wire:?}");
}

#[test]
fn a_run_of_which_nothing_came_is_a_page_too_and_a_large_one_is_cut() {
    let page_of_none = page(&Results::default());
    let doc = parse(&page_of_none);
    assert_eq!(doc.descendants().filter(|node| node.has_tag_name("svg")).count(), 0);
    let mut results = example::results();
    results.flows = (0..5_000)
        .map(|id| FlowResult { id, fct_ps: Some(7), ..results.flows[0].clone() })
        .collect();
    results.finish();
    let page = page(&results);
    let doc = parse(&page);
    assert_eq!(json(&doc)["flows"].as_array().unwrap().len(), JSON_ROWS);
    assert!(page.contains("50 of 5,000 flows"));
    assert!(page.len() < 2_000_000, "{}", page.len());
}

/// Script for the page: writes the findings of a browser as JSON into an element of its own.
const CHECK: &str = "
window.addEventListener('load', function () {
  var json = JSON.parse(document.getElementById('results').textContent), wrong = [], checked = 0;
  document.querySelectorAll('[data-json]').forEach(function (cell) {
    var value = json;
    cell.dataset.json.split('/').slice(1).forEach(function (key) { value = value[key]; });
    var shown = Number(cell.textContent.split(',').join('')) * Math.pow(10, Number(cell.dataset.places));
    checked += 1;
    if (!(Math.abs(shown - value) <= Math.abs(value) * 1e-12)) { wrong.push(cell.dataset.json); }
  });
  var empty = [], pictures = [];
  document.querySelectorAll('figure').forEach(function (figure) {
    var box = figure.querySelector('svg').getBoundingClientRect();
    var marks = figure.querySelectorAll('rect, circle, path, polyline').length;
    pictures.push(figure.id);
    if (!(box.width > 300) || !(box.height > 100) || !(marks > 1)) { empty.push(figure.id); }
  });
  var mark = document.querySelector('figure circle'), tip = document.getElementById('tip');
  mark.dispatchEvent(new PointerEvent('pointermove', { bubbles: true, clientX: 5, clientY: 5 }));
  var told = !tip.hidden ? tip.textContent === mark.querySelector('title').textContent : false;
  var names = Array.from(document.querySelectorAll('td')).map(function (cell) { return cell.textContent; });
  var verdict = document.createElement('pre');
  verdict.id = 'verdict';
  verdict.textContent = JSON.stringify({ checked: checked, wrong: wrong, empty: empty, pictures: pictures,
    told: told, named: names.includes(json.hosts[1].name), requests: performance.getEntriesByType('resource').length,
    errors: window.errors });
  document.body.appendChild(verdict);
});
";

/// In a browser there is no error, each picture is drawn, the figures are those of the JSON, and words show at the
/// pointer.
#[test]
fn a_browser_shows_the_page_without_an_error() {
    use std::process::Command;
    let listen = "<head><script>window.errors = []; window.onerror = function (text) \
                  { window.errors.push(text); };</script>";
    let page = page(&example::results());
    let page = page.replacen("<head>", listen, 1);
    let page = page.replacen("</body>", &format!("<script>{CHECK}</script></body>"), 1);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("page.html");
    std::fs::write(&file, page).unwrap();
    let profile = folder.path().join("profile");
    let flags =
        ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom"];
    let ran = Command::new("chromium")
        .args(flags)
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("file://{}", file.display()))
        .output();
    let Ok(ran) = ran else {
        eprintln!(
            "SKIPPED a_browser_shows_the_page_without_an_error: chromium is not installed (tools/setup.sh test)"
        );
        return;
    };
    let (dom, said) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    let console: Vec<_> = said.lines().filter(|line| line.contains(":CONSOLE")).collect();
    assert!(console.is_empty(), "{console:?}");
    let verdict =
        dom.split_once("<pre id=\"verdict\">").and_then(|(_, rest)| rest.split_once("</pre>"));
    let (verdict, _) = verdict.unwrap_or_else(|| panic!("no verdict\n{said}\n{dom}"));
    let verdict: Value = serde_json::from_str(verdict).unwrap();
    let pictures =
        ["fct", "slowdown", "depth", "pause", "throughput", "matrix", "links", "parts", "topology"];
    assert_eq!(verdict["pictures"], serde_json::json!(pictures));
    for list in ["wrong", "empty", "errors"] {
        assert_eq!(verdict[list], serde_json::json!([]), "{list}");
    }
    assert!(verdict["checked"].as_u64().unwrap() > 70, "{verdict}");
    assert_eq!((&verdict["told"], &verdict["named"]), (&Value::Bool(true), &Value::Bool(true)));
    assert_eq!(verdict["requests"], 0, "nothing is loaded");
}
