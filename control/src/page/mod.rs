//! The page of a switch: one HTML file with its style and its script, live or with the data of a run inside.
//!
//! Shape: [`live`] for the metrics server; [`of_run`] for `weft replay --page` and `weft sim run --page`. The sources are
//! beside this file: page.html, page.css, and scripts that are joined in the order of `SCRIPTS`.
//! Units: none.
//! Source: WHATWG HTML; W3C Content Security Policy Level 3; docs/page.md.

pub mod events;
pub mod feed;
pub mod guard;
pub mod runs;

use std::fmt::Write as _;

use ring::digest::{SHA256, digest};
use serde::Serialize;

use crate::views::page::{STYLE, TIP_SCRIPT, TIP_STYLE, script_json};
use crate::views::svg::escape;

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

/// What a page is made from.
#[derive(Serialize)]
struct About<'a, T> {
    /// `live`, `replay` or `sim`.
    kind: &'a str,
    /// What is shown.
    title: &'a str,
    /// By switch.
    switches: &'a [T],
}

/// A page with the policy that the browser is to keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// HTML.
    pub html: String,
    /// `Content-Security-Policy`.
    pub policy: String,
}

fn style() -> String {
    [STYLE, TIP_STYLE, CSS].concat()
}

fn script() -> String {
    let mut script = "\"use strict\";\n(function () {\n".to_owned();
    script.extend(SCRIPTS);
    script.push_str("})();\n");
    script.push_str(TIP_SCRIPT);
    script
}

/// The hash of an inline element, as a policy names it.
fn hash(text: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::from("'sha256-");
    for three in digest(&SHA256, text.as_bytes()).as_ref().chunks(3) {
        let [a, b, c] = [0, 1, 2].map(|at| three.get(at).copied().unwrap_or(0));
        let bits = u32::from_be_bytes([0, a, b, c]);
        for place in 0..4 {
            let at = bits >> (18 - 6 * place) & 63;
            let digit = DIGITS.get(at as usize).copied().unwrap_or(b'=');
            out.push(char::from(if place > three.len() { b'=' } else { digit }));
        }
    }
    out.push('\'');
    out
}

/// What the browser may do: run this script, use this style, and ask who sent the page if `asks`.
fn policy(style: &str, script: &str, asks: bool) -> String {
    let mut policy = format!(
        "default-src 'none'; script-src {}; style-src {}; base-uri 'none'; form-action 'none'",
        hash(script),
        hash(style)
    );
    if asks {
        policy.push_str("; connect-src 'self'; frame-ancestors 'none'");
    }
    policy
}

fn joined(title: &str, policy: &str, style: &str, script: &str, data: &str) -> String {
    let mut out = String::new();
    for (at, part) in HTML.split("{{").enumerate() {
        let (name, rest) = part.split_once("}}").unwrap_or(("", part));
        match name {
            "title" => out.push_str(&escape(title)),
            "policy" => {
                let meta = "<meta http-equiv=\"Content-Security-Policy\" content=";
                let _ = write!(out, "{meta}\"{policy}\">"); // hashes and words: no quote
            }
            "style" => out.push_str(style),
            "script" => out.push_str(script),
            "data" => out.push_str(data),
            _ => debug_assert_eq!(at, 0, "a name of page.html"),
        }
        out.push_str(rest);
    }
    out
}

/// The page that asks the server which it came from.
#[must_use]
pub fn live() -> Page {
    let (style, script) = (style(), script());
    let about: About<'_, ()> = About { kind: "live", title: "weft", switches: &[] };
    let policy = policy(&style, &script, true);
    // The header says it already; `frame-ancestors` is for headers alone.
    let meta = self::policy(&style, &script, false) + "; connect-src 'self'";
    let html = joined("weft", &meta, &style, &script, &script_json(&about));
    Page { html, policy }
}

/// A page with the states of a run inside, which asks nobody.
#[must_use]
pub fn of_run(kind: &str, title: &str, switches: &[runs::SwitchRun]) -> String {
    let (style, script) = (style(), script());
    let policy = policy(&style, &script, false);
    let data = script_json(&About { kind, title, switches });
    joined(title, &policy, &style, &script, &data)
}

#[cfg(test)]
mod tests;
