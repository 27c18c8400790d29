//! Tells addresses, host names and mistakes apart.

use std::net::IpAddr;

use super::Host;

/// As long may a host name be.
const MAX_NAME: usize = 253;

/// As long may one label of it be.
const MAX_LABEL: usize = 63;

/// Reads an IPv4 address, an IPv6 address or a host name. With `as_dns` the name is one of DNS as Kubernetes has them, in
/// lower case.
///
/// # Errors
/// If it is none of them; says what it looks like instead.
pub fn parse(text: &str, as_dns: bool) -> Result<Host, String> {
    let expected = "an IP address or a host name";
    if text.is_empty() {
        return Err(format!("expected {expected}, found nothing"));
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(Host::Address(address));
    }
    if as_dns && is_subdomain(text) {
        return Ok(Host::Name(text.to_owned()));
    }
    let found = if text.contains(char::is_whitespace) {
        "spaces"
    } else if text.contains("://") {
        "a scheme"
    } else if text.starts_with('[') {
        "brackets"
    } else if text.rsplit_once(':').is_some_and(|(host, port)| is_number(port) && !host.contains(':')) {
        "a port"
    } else if text.strip_suffix('.').unwrap_or(text).rsplit('.').next().is_some_and(is_number) {
        "numbers that are no address"
    } else if !as_dns && is_name(text) {
        return Ok(Host::Name(text.to_owned()));
    } else {
        "something else"
    };
    Err(format!("expected {expected}, found {found} in {text:?}"))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

fn is_subdomain(text: &str) -> bool {
    let plain = text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'.'));
    plain && !text.ends_with('.') && is_name(text)
}

fn is_name(text: &str) -> bool {
    let text = text.strip_suffix('.').unwrap_or(text);
    let letter = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
    text.len() <= MAX_NAME
        && text.split('.').map(str::as_bytes).all(|label| {
            label.len() <= MAX_LABEL
                && label.iter().all(|b| letter(b) || *b == b'-')
                && label.first().is_some_and(letter)
                && label.last().is_some_and(letter)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_addresses_and_names() {
        let address = |text: &str| Host::Address(text.parse().unwrap());
        let name = |text: &str| Host::Name(text.to_owned());
        for (text, expected) in [
            ("10.0.0.1", address("10.0.0.1")),
            ("::1", address("::1")),
            ("2001:DB8:0::1", address("2001:db8::1")),
            ("::ffff:1.2.3.4", address("::ffff:1.2.3.4")),
            ("localhost", name("localhost")),
            ("gpu-1.cluster.example.com", name("gpu-1.cluster.example.com")),
            ("gw.example.com.", name("gw.example.com.")),
            ("my_service", name("my_service")),
            ("3com.example.com", name("3com.example.com")),
        ] {
            assert_eq!(parse(text, false), Ok(expected), "{text}");
        }
    }

    #[test]
    fn names_of_clusters_are_lower_case_and_may_be_numbers() {
        for (text, is_one) in [
            ("10.0.0.1", true),
            ("::1", true),
            ("gw.cluster-a.example.com", true),
            ("gateway", true),
            ("3com.example.com", true),
            ("12345", true),
            ("", false),
            ("GW.example.com", false),
            ("gw.", false),
            ("gw..", false),
            ("gw_1", false),
            ("gw:443", false),
            ("user@host", false),
            ("-bad", false),
        ] {
            assert_eq!(parse(text, true).is_ok(), is_one, "{text}");
        }
    }

    #[test]
    fn says_what_is_wrong_with_an_address() {
        for (text, found) in [
            ("", "nothing"),
            ("http://10.0.0.1", "a scheme"),
            ("10.0.0.1:8000", "a port"),
            ("gw:443", "a port"),
            (" 10.0.0.1 ", "spaces"),
            ("10.0.0.256", "numbers"),
            ("10.0.0", "numbers"),
            ("[::1]", "brackets"),
            ("not_a_host!", "something else"),
            ("user@host", "something else"),
            ("-bad", "something else"),
            ("gw..", "something else"),
            ("fe80::1%eth0", "something else"),
            (&"x".repeat(254), "something else"),
        ] {
            let error = parse(text, false).unwrap_err();
            assert!(error.contains(&format!("found {found}")), "{text}: {error}");
        }
    }
}
