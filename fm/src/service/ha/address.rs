//! Address of the etcd that several managers share.
//!
//! Source: docs/fm.md "Several managers".

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Longest prefix of keys, bytes.
const PREFIX_MAX: usize = 256;
/// Largest number of members of etcd.
const MEMBERS_MAX: usize = 16;

/// The members of an etcd, and the prefix of the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    members: Vec<String>,
    prefix: String,
}

/// The text is no [`Address`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected etcd://HOST:PORT[,HOST:PORT...]/PREFIX, found {0}")]
pub struct AddressError(String);

impl Address {
    /// `HOST:PORT` of each member.
    #[must_use]
    pub fn members(&self) -> &[String] {
        &self.members
    }

    /// The key of a name, below the prefix.
    #[must_use]
    pub fn key(&self, name: &str) -> String {
        format!("{}/{name}", self.prefix)
    }

    /// Members whose address is not on this machine; these need TLS.
    pub fn far(&self) -> impl Iterator<Item = &str> {
        let is_near = |member: &&String| {
            let host = member.rsplit_once(':').map_or("", |(host, _)| host);
            let host = host.trim_start_matches('[').trim_end_matches(']');
            // Other names are not resolved, and count as elsewhere: what they lead to may change.
            host == "localhost" || host.parse::<IpAddr>().is_ok_and(|host| host.is_loopback())
        };
        self.members.iter().filter(move |member| !is_near(member)).map(String::as_str)
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let bad = |why: &str| AddressError(format!("{text:?}{why}"));
        let rest = text.strip_prefix("etcd://").ok_or_else(|| bad(""))?;
        let (members, prefix) = rest.split_once('/').ok_or_else(|| bad(": it has no prefix"))?;
        let members: Vec<String> = members.split(',').map(str::to_owned).collect();
        for member in &members {
            if !is_member(member) {
                return Err(bad(&format!(": {member:?} is not HOST:PORT")));
            }
        }
        if members.len() > MEMBERS_MAX {
            return Err(bad(&format!(": there are more than {MEMBERS_MAX} members")));
        }
        // `key` puts a slash between prefix and name.
        let prefix = prefix.trim_end_matches('/');
        let fits = |c: char| c.is_ascii_alphanumeric() || "/-_.".contains(c);
        if prefix.is_empty() || prefix.len() > PREFIX_MAX || !prefix.chars().all(fits) {
            return Err(bad(": the prefix consists of letters, digits, '/', '-', '_' and '.'"));
        }
        Ok(Self { members, prefix: prefix.to_owned() })
    }
}

/// Whether a text is `HOST:PORT`, without any character that has another meaning in a URL.
fn is_member(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
    let name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    let v6 = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_host = match v6 {
        Some(v6) => v6.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.chars().all(name),
    };
    is_port && is_host
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "etcd://{}/{}", self.members.join(","), self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_or_refused_with_the_form() {
        for text in ["etcd://127.0.0.1:2379/weft", "etcd://a:1,[::1]:2,b.c:65535/x/y-1"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        let one: Address = "etcd://127.0.0.1:2379,[::1]:1,localhost:2,e-1:3/weft/".parse().unwrap();
        assert_eq!((one.key("leader"), one.members().len()), ("weft/leader".to_owned(), 4));
        assert_eq!(one.far().collect::<Vec<_>>(), ["e-1:3"]);
        for text in [
            "",
            "etcd://",
            "http://a:1/p",
            "etcd://a:1",
            "etcd://a:1/",
            "etcd://a:1//",
            "etcd:///p",
            "etcd://a/p",
            "etcd://a:0/p",
            "etcd://a:70000/p",
            "etcd://u@a:1/p",
            "etcd://a:1,/p",
            "etcd://a b:1/p",
            "etcd://a:1/p?q",
            "etcd://a:1/p\n",
            "etcd://[::1:1/p",
            "etcd://a#:1/p",
        ] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.starts_with("expected etcd://HOST:PORT"), "{text}: {error}");
        }
    }
}
