//! What a browser may do with a page of ours: run its script, use its style, and nothing else.
//!
//! Shape: the text of the style and of the script -> `Content-Security-Policy`.
//! Units: none.
//! Source: W3C Content Security Policy Level 3; FIPS 180-4 (SHA-256); RFC 4648 (base 64).

use ring::digest::{SHA256, digest};

/// The hash of an inline element, as a policy names it.
pub(crate) fn hash(text: &str) -> String {
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

/// What the browser may do: run this script and use this style. It loads nothing, and asks nobody.
#[must_use]
pub fn policy(style: &str, script: &str) -> String {
    format!(
        "default-src 'none'; script-src {}; style-src {}; base-uri 'none'; form-action 'none'",
        hash(script),
        hash(style)
    )
}

/// The policy as an element of the page's head; it has hashes and words, and no quote.
#[must_use]
pub fn meta(policy: &str) -> String {
    format!("<meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\"/>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_standards() {
        // FIPS 180-4's "abc", in base 64.
        assert_eq!(hash("abc"), "'sha256-ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0='");
        assert_eq!(hash(""), "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='");
    }
}
