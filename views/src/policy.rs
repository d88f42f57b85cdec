//! Content security policy of weft's pages: a browser runs the page's script, uses its style, and does nothing else.
//!
//! [`policy`] names style and script by their hashes. They have to stand in the page byte for byte as they were
//! hashed.
//!
//! Source: W3C Content Security Policy Level 3; FIPS 180-4 (SHA-256); RFC 4648 (base 64).

use data_encoding::BASE64;
use ring::digest::{SHA256, digest};

/// The hash of an inline element, as a policy names it.
#[must_use]
pub fn hash(text: &str) -> String {
    format!("'sha256-{}'", BASE64.encode(digest(&SHA256, text.as_bytes()).as_ref()))
}

/// The policy that allows this script and this style, and no requests at all.
#[must_use]
pub fn policy(style: &str, script: &str) -> String {
    format!(
        // `default-src` covers neither the base address nor the targets of forms: these need directives of their own.
        "default-src 'none'; script-src {}; style-src {}; base-uri 'none'; form-action 'none'",
        hash(script),
        hash(style)
    )
}

/// The policy as an element of the page's head. It is not escaped, as it has no double quote.
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
