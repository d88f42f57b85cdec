//! Pages: one HTML file each, which is also well-formed XML and loads nothing else.
//!
//! A page is [`head`], tables and plots, and [`end`]; each function appends its part to the text.
//!
//! Source: WHATWG HTML; docs/results.md "The page".

use std::fmt::Write as _;

use serde::Serialize;

use super::policy::{meta, policy};
use super::svg::escape;

/// The style that all pages have.
pub const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1c1c1c; --paper: #fff; --rule: #d4d4d4; --soft: #f3f3f3; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e6; --paper: #161616; --rule: #3d3d3d; --soft: #222; }
}
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: .5rem 0 1.5rem; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid var(--rule); padding: .25rem .7rem; text-align: right; }
th:first-child, td:first-child, td.words { text-align: left; }
th { background: var(--soft); }
.scroll { overflow-x: auto; }
@media (max-width: 40rem) {
  td[data-head] { display: flex; justify-content: space-between; gap: 1rem; text-align: right; }
  td[data-head]::before { content: attr(data-head); font-weight: 600; text-align: left; }
  td[data-head]:empty { display: none; }
  table:has(td[data-head]) { display: block; }
  table:has(td[data-head]) :is(tbody, tr) { display: block; }
  table:has(td[data-head]) thead { display: none; }
  tr:has(td[data-head]) { border-bottom: 3px solid var(--rule); }
}
code { overflow-wrap: anywhere; }
.note { border-left: 4px solid #c77700; padding: .2rem .8rem; background: var(--soft); }
svg { width: 100%; height: auto; font: 12px system-ui, sans-serif; fill: var(--ink); }
.grid { stroke: var(--rule); } .end { text-anchor: end; } .middle { text-anchor: middle; }
polyline { fill: none; stroke-width: 2; }
.c0 { fill: #2a78b5; } .c1 { fill: #d9822b; } .c2 { fill: #3a9e5c; } .c3 { fill: #b5476f; }
.c4 { fill: #7a68c7; } .c5 { fill: #8f7a2c; } .c6 { fill: #2f9c9c; } .c7 { fill: #777; }
.h { fill: transparent; } .h:hover { fill: var(--ink); }
.l0 { stroke: #2a78b5; } .l1 { stroke: #d9822b; } .l2 { stroke: #3a9e5c; } .l3 { stroke: #b5476f; }
.l4 { stroke: #7a68c7; } .l5 { stroke: #8f7a2c; } .l6 { stroke: #2f9c9c; } .l7 { stroke: #777; }
";

/// The style of the element with the id `tip`, which [`TIP_SCRIPT`] shows.
pub const TIP_STYLE: &str = "
#tip { position: fixed; pointer-events: none; background: var(--ink); color: var(--paper); padding: .15rem .5rem;
  border-radius: 3px; font-size: 13px; max-width: 28rem; }
";

/// Shows the title of the mark under the pointer at once, not after the browser's delay. It has no character that XML
/// would need escaped.
pub const TIP_SCRIPT: &str = "
var tip = document.getElementById('tip');
document.addEventListener('pointermove', function (event) {
  var of = event.target.closest ? event.target.closest('svg *') : null;
  var title = of ? of.querySelector('title') : null;
  tip.hidden = !title;
  if (title) {
    tip.textContent = title.textContent;
    tip.style.left = Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 4) + 'px';
    tip.style.top = (event.clientY + 14) + 'px';
  }
});
";

/// Appends the beginning of a page, up to its heading; `style` is added to [`STYLE`].
pub fn head(title: &str, style: &str, out: &mut String) {
    begin(title, "", &[STYLE, style].concat(), out);
}

/// Like [`head`], for a page with a policy: it may run `script` only, which [`end`] appends, and makes no requests.
pub fn sealed_head(title: &str, style: &str, script: &str, out: &mut String) {
    let style = [STYLE, style].concat();
    begin(title, &meta(&policy(&style, script)), &style, out);
}

/// Appends the end of a page, with its script.
pub fn end(script: &str, out: &mut String) {
    let _ = write!(out, "<script>{script}</script>\n</body></html>\n");
}

fn begin(title: &str, meta: &str, style: &str, out: &mut String) {
    let title = escape(title);
    let _ = write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>{meta}\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\
         <title>{title}</title><style>{style}</style></head><body>\n<h1>{title}</h1>\n"
    );
}

/// JSON for a `script` element: no character of it ends the element or needs escaping in XML.
#[must_use]
pub fn script_json(value: &impl Serialize) -> String {
    let text = serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned());
    let mut out = String::with_capacity(text.len());
    // In JSON these characters stand in strings only, where an escape means the same. `<` could begin `</script>`;
    // `&`, controls and U+FFFE trouble XML; U+2028 and U+2029 ended lines of older JavaScript.
    for c in text.chars() {
        match c {
            '<'
            | '>'
            | '&'
            | '\u{7f}'..='\u{9f}'
            | '\u{2028}'
            | '\u{2029}'
            | '\u{fffe}'
            | '\u{ffff}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out
}

/// A row of a table of text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Attributes of the row: names without `data-`, and values.
    pub data: Vec<(&'static str, String)>,
    pub cells: Vec<String>,
}

/// Appends a table in which every cell is text.
pub fn table(head: &[&str], rows: &[Vec<String>], out: &mut String) {
    let row = |cells: &Vec<String>| Row { data: Vec::new(), cells: cells.clone() };
    table_of(head, &rows.iter().map(row).collect::<Vec<_>>(), out);
}

/// Like [`table`], with attributes of rows.
pub fn table_of(head: &[&str], rows: &[Row], out: &mut String) {
    out.push_str("<div class=\"scroll\"><table><thead><tr>");
    for cell in head {
        let _ = write!(out, "<th>{}</th>", escape(cell)); // writing into text cannot fail
    }
    out.push_str("</tr></thead><tbody>");
    for Row { data, cells } in rows {
        out.push_str("<tr");
        for (name, value) in data {
            let _ = write!(out, " data-{name}=\"{}\"", escape(value));
        }
        out.push('>');
        for (cell, of) in cells.iter().zip(heads(head)) {
            // By the cell and not by its column: words are aligned left, figures right.
            let words = cell.chars().next().is_some_and(char::is_alphabetic);
            let class = if words { " class=\"words\"" } else { "" };
            let _ = write!(out, "<td{class}{of}>{}</td>", escape(cell));
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div>\n");
}

/// The attribute of each cell that has its head: on narrow screens the style shows it beside the cell.
fn heads(head: &[&str]) -> impl Iterator<Item = String> {
    head.iter().map(|head| format!(" data-head=\"{}\"", escape(head)))
}

/// A cell of a table of figures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// The text shown.
    pub text: String,
    /// JSON pointer (RFC 6901) of the figure, and the power of ten by which its unit is above that of the JSON;
    /// `None` for mere text.
    pub figure: Option<(String, u32)>,
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self { text: text.to_owned(), figure: None }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self { text, figure: None }
    }
}

impl Cell {
    /// A figure with the text shown, its JSON pointer, and the power of ten by which its unit is above that of the
    /// JSON.
    #[must_use]
    pub fn figure(text: String, pointer: String, places: u32) -> Self {
        Self { text, figure: Some((pointer, places)) }
    }
}

/// Appends a table of figures, each with its JSON pointer (`data-json`) and the power of ten of its unit
/// (`data-places`), by which tests compare it with the JSON.
pub fn figures(head: &[&str], rows: &[Vec<Cell>], out: &mut String) {
    out.push_str("<div class=\"scroll\"><table><thead><tr>");
    for cell in head {
        let _ = write!(out, "<th>{}</th>", escape(cell));
    }
    out.push_str("</tr></thead><tbody>");
    for row in rows {
        out.push_str("<tr>");
        for (Cell { text, figure }, of) in row.iter().zip(heads(head)) {
            let text = escape(text);
            let _ = match figure {
                Some((pointer, places)) => write!(
                    out,
                    "<td data-json=\"{}\" data-places=\"{places}\"{of}>{text}</td>",
                    escape(pointer)
                ),
                None => write!(out, "<td class=\"words\"{of}>{text}</td>"),
            };
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div>\n");
}
