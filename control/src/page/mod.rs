//! The page of a switch: one HTML file with its style and script, live or with the data of a run.
//!
//! [`live`] is for the metrics server; [`of_run`] for `weft replay --page` and `weft sim run --page`. The sources are
//! beside this file: page.html, page.css, and scripts that are joined in the order of `SCRIPTS`.
//!
//! Source: WHATWG HTML; W3C Content Security Policy Level 3; docs/page.md.

pub mod events;
pub mod feed;
pub mod guard;
pub mod runs;

use serde::Serialize;
use weft_views::page::{STYLE, TIP_SCRIPT, TIP_STYLE, script_json};
use weft_views::policy::{meta, policy};
use weft_views::svg::escape;

const HTML: &str = include_str!("page.html");
const CSS: &str = include_str!("page.css");
/// Scripts of the page; each uses those before it.
const SCRIPTS: [&str; 6] = [
    include_str!("dom.js"),
    include_str!("traffic.js"),
    include_str!("queues.js"),
    include_str!("pfc.js"),
    include_str!("parts.js"),
    include_str!("main.js"),
];

/// Data that the script finds in the page.
#[derive(Serialize)]
struct About<'a, T> {
    /// `live`, `replay` or `sim`.
    kind: &'a str,
    title: &'a str,
    /// One entry for each switch of a run; empty on a live page.
    switches: &'a [T],
}

/// A page, and the policy for its header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    pub html: String,
    /// Value of `Content-Security-Policy`.
    pub policy: String,
}

fn style() -> String {
    [STYLE, TIP_STYLE, CSS].concat()
}

fn script() -> String {
    // One function around all scripts: their names do not become the window's.
    let mut script = "\"use strict\";\n(function () {\n".to_owned();
    script.extend(SCRIPTS);
    script.push_str("})();\n");
    script.push_str(TIP_SCRIPT);
    script
}

fn joined(title: &str, policy: &str, style: &str, script: &str, data: &str) -> String {
    let mut out = String::new();
    for (at, part) in HTML.split("{{").enumerate() {
        let (name, rest) = part.split_once("}}").unwrap_or(("", part));
        match name {
            "title" => out.push_str(&escape(title)),
            "policy" => out.push_str(&meta(policy)),
            "style" => out.push_str(style),
            "script" => out.push_str(script),
            "data" => out.push_str(data),
            _ => debug_assert_eq!(at, 0, "a name of page.html"),
        }
        out.push_str(rest);
    }
    out
}

/// The page that fetches its states from the server that it came from.
#[must_use]
pub fn live() -> Page {
    let (style, script) = (style(), script());
    let about: About<'_, ()> = About { kind: "live", title: "weft", switches: &[] };
    // The header has the same policy. `frame-ancestors` is ignored in a `meta` element, so it stands in the header
    // only.
    let inside = policy(&style, &script) + "; connect-src 'self'";
    let policy = format!("{inside}; frame-ancestors 'none'");
    let html = joined("weft", &inside, &style, &script, &script_json(&about));
    Page { html, policy }
}

/// A page with the states of a run inside, which connects to nothing.
#[must_use]
pub fn of_run(kind: &str, title: &str, switches: &[runs::SwitchRun]) -> String {
    let (style, script) = (style(), script());
    let policy = policy(&style, &script);
    let data = script_json(&About { kind, title, switches });
    joined(title, &policy, &style, &script, &data)
}

#[cfg(test)]
mod tests;
