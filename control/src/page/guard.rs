//! Refuses requests that another site's page makes a browser of this machine send.
//!
//! [`Guard::check`] takes the headers of a request and returns the reason for a refusal.
//!
//! Source: RFC 9110 §7.2 (Host); W3C Fetch Metadata Request Headers; RFC 6454 §7 (Origin); docs/page.md "Who may look".

use std::net::{IpAddr, SocketAddr};

/// The rules for one server.
#[derive(Clone, Copy, Debug)]
pub struct Guard {
    /// Whether the server listens on loopback, so that only names of loopback lead to it.
    is_loopback: bool,
}

/// The host of `Host: HOST[:PORT]`, without the brackets of an IPv6 address.
fn host_of(text: &str) -> &str {
    let text = text.trim();
    if let Some((host, _)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return host;
    }
    text.rsplit_once(':').map_or(text, |(host, _)| host)
}

fn is_loopback_name(host: &str) -> bool {
    // A final dot names the same host.
    let host = host.strip_suffix('.').unwrap_or(host);
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|addr| addr.is_loopback())
}

impl Guard {
    #[must_use]
    pub const fn new(addr: SocketAddr) -> Self {
        Self { is_loopback: addr.ip().is_loopback() }
    }

    /// Reason to refuse a request with these headers. `from_elsewhere` tells whether a link on another page may lead
    /// here.
    ///
    /// In DNS rebinding, an attacker's page is loaded under a name that later leads to loopback. The name is still in
    /// `Host`, so such a page reads nothing. A request by a page from elsewhere says so in `Sec-Fetch-Site` or
    /// `Origin`: it could not read the answer, but would take a viewer's place.
    #[must_use]
    pub fn check(
        self,
        headers: &[httparse::Header<'_>],
        from_elsewhere: bool,
    ) -> Option<&'static str> {
        let all = |name: &'static str| {
            let named = headers.iter().filter(move |header| header.name.eq_ignore_ascii_case(name));
            named.map(|header| std::str::from_utf8(header.value).unwrap_or("?"))
        };
        // All `Host` headers must pass: a second one must not hide behind the first.
        if self.is_loopback && !all("host").all(|host| is_loopback_name(host_of(host))) {
            return Some(
                "Host: expected localhost or an address of loopback, as the server listens there alone\n",
            );
        }
        if from_elsewhere {
            return None;
        }
        let host = all("host").next().unwrap_or_default();
        let is_own = |origin: &str| {
            let rest = origin.split_once("://").map(|(_, rest)| rest);
            rest.is_some_and(|rest| rest.eq_ignore_ascii_case(host))
        };
        let is_direct = |site: &str| matches!(site, "same-origin" | "none");
        if !all("sec-fetch-site").all(is_direct) || !all("origin").all(is_own) {
            return Some("a page from elsewhere may not ask\n");
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_loopback_are_told_from_others() {
        #[rustfmt::skip] // columns: Host, whether a server on loopback takes it
        let cases = [
            ("localhost", true), ("LOCALHOST:9464", true), ("localhost.:1", true), ("127.0.0.1", true),
            ("127.8.8.8:80", true), ("[::1]:9464", true), ("[::1]", true), ("192.0.2.1:9464", false),
            ("rebind.example:9464", false), ("localhost.rebind.example", false), ("127.0.0.1.nip.example", false),
            ("", false), ("[::2]", false), ("\u{e9}", false),
        ];
        for (host, want) in cases {
            let headers = [httparse::Header { name: "hOST", value: host.as_bytes() }];
            for (addr, is_refused) in
                [("127.0.0.1:1", !want), ("[::1]:1", !want), ("0.0.0.0:1", false)]
            {
                let guard = Guard::new(addr.parse().unwrap());
                assert_eq!(guard.check(&headers, true).is_some(), is_refused, "{host:?} at {addr}");
            }
        }
        let guard = Guard::new("127.0.0.1:1".parse().unwrap());
        assert_eq!(
            guard.check(&[], false),
            None,
            "HTTP/1.0 has none, and no browser leaves it out"
        );
        let two = ["localhost", "rebind.example"];
        let two = two.map(|host| httparse::Header { name: "Host", value: host.as_bytes() });
        assert!(guard.check(&two, true).is_some());
    }

    #[test]
    fn pages_from_elsewhere_are_refused_what_only_the_page_asks() {
        let guard = Guard::new("127.0.0.1:9464".parse().unwrap());
        #[rustfmt::skip] // columns: header, value, whether it is refused
        let cases = [
            ("Sec-Fetch-Site", "same-origin", false), ("Sec-Fetch-Site", "none", false),
            ("Sec-Fetch-Site", "cross-site", true), ("Sec-Fetch-Site", "same-site", true),
            ("Origin", "http://127.0.0.1:9464", false), ("Origin", "http://127.0.0.1:80", true),
            ("Origin", "null", true), ("Origin", "https://rebind.example", true),
        ];
        for (name, value, want) in cases {
            let host = httparse::Header { name: "Host", value: b"127.0.0.1:9464" };
            let headers = [host, httparse::Header { name, value: value.as_bytes() }];
            assert_eq!(guard.check(&headers, false).is_some(), want, "{name}: {value}");
            assert_eq!(guard.check(&headers, true), None, "{name}: {value}: a link");
        }
    }
}
