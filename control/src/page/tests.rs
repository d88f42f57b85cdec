//! The page: joined whole, with a policy that fits it, and nothing of a switch as markup.
//! Sources of the page in, its text out; `tests/py/test_live_page.py` opens it in browsers.
//!
//! Source: docs/page.md.

use weft_views::policy::hash;
use weft_views::results::example;

use super::*;

/// The text between the first `begin` and the `end` after it.
fn between<'a>(text: &'a str, begin: &str, end: &str) -> &'a str {
    let (_, rest) = text.split_once(begin).unwrap();
    rest.split_once(end).unwrap().0
}

#[test]
fn the_policy_fits_what_the_page_has_inside() {
    let Page { html, policy } = live();
    let run = of_run("sim", "weft sim", &[]);
    for (name, html, policy) in [("live", &html, Some(&policy)), ("run", &run, None)] {
        let style = between(html, "<style>", "</style>");
        let script = between(html, "</script>\n<script>", "</script>");
        let meta = between(html, "http-equiv=\"Content-Security-Policy\" content=\"", "\"");
        for policy in [Some(meta), policy.map(String::as_str)].into_iter().flatten() {
            assert!(policy.starts_with("default-src 'none'; "), "{name}: {policy}");
            assert!(policy.contains(&hash(style)) && policy.contains(&hash(script)), "{name}");
            assert!(!policy.contains("unsafe"), "{name}: {policy}");
            assert_eq!(policy.contains("connect-src 'self'"), name == "live", "{policy}");
        }
        // One style, one script, and data; no attribute that runs or styles, which the policy forbids.
        assert_eq!(html.matches("<style").count(), 1, "{name}");
        assert_eq!(html.matches("<script").count(), 2, "{name}");
        let space = "http://www.w3.org/2000/svg"; // a name, which is not loaded
        assert_eq!(html.matches(space).count(), 1, "{name}");
        let rest = html.replace(space, "");
        for part in
            ["http:", "https:", "src=", "url(", "@import", " style=", " onload=", " onclick="]
        {
            assert!(!rest.contains(part), "{name}: {part}");
        }
        assert!(!html.contains("{{"), "{name}: all is joined");
    }
    assert!(policy.contains("frame-ancestors 'none'") && policy.contains("base-uri 'none'"));
    assert!(!policy.contains(['\r', '\n', '"']), "it is a header, and an attribute");
}

/// Only a few functions of browsers turn text into markup, and no script of the page uses one of them.
#[test]
fn scripts_have_no_way_from_text_to_markup() {
    let ways = [
        "innerHTML",
        "outerHTML",
        "insertAdjacent",
        "document.write",
        "eval(",
        "Function(",
        "DOMParser",
        "srcdoc",
        "createContextualFragment",
    ];
    for (at, script) in SCRIPTS.iter().enumerate() {
        for way in ways {
            assert!(!script.contains(way), "script {at}: {way}");
        }
        assert!(!script.contains("</"), "script {at} cannot end its element");
    }
}

#[test]
fn hostile_names_stay_data() {
    let runs = vec![runs::SwitchRun { name: example::HOSTILE.to_owned(), states: Vec::new() }];
    let html = of_run("sim", example::HOSTILE, &runs);
    assert!(!html.contains("<script>alert"));
    let data = between(&html, "id=\"data\">", "</script>");
    let data: serde_json::Value = serde_json::from_str(data).unwrap();
    assert_eq!(data["switches"][0]["name"], example::HOSTILE);
    assert_eq!(data["title"], example::HOSTILE);
}
