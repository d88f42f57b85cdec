//! Text inside markup: a name that another program has chosen cannot act as markup.
//!
//! [`escape`] makes text of an element or of a quoted attribute, in HTML, SVG and XML.
//!
//! Source: WHATWG HTML 13.3; XML 1.0 sections 2.2, 2.4.

/// Makes `text` safe inside an element or a quoted attribute.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // XML 1.0 admits neither of these, not even as a reference (section 2.2)
            '\u{FFFE}' | '\u{FFFF}' => out.push('\u{FFFD}'),
            c if c.is_control() && c != '\n' => out.push('\u{FFFD}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_leave_its_element() {
        #[rustfmt::skip] // columns: text, in markup
        let cases = [
            ("<a href=\"x\">'&\u{1}", "&lt;a href=&quot;x&quot;&gt;&#39;&amp;\u{FFFD}"),
            ("\"]]>", "&quot;]]&gt;"),
            ("</script><!--", "&lt;/script&gt;&lt;!--"),
            ("a\n\u{FFFE}\u{FFFF}\u{85}", "a\n\u{FFFD}\u{FFFD}\u{FFFD}"),
            ("gr\u{F6}\u{DF}e", "gr\u{F6}\u{DF}e"),
        ];
        for (text, want) in cases {
            assert_eq!(escape(text), want);
        }
    }
}
