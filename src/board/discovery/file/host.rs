//! Tells addresses, host names and mistakes apart.

use std::net::IpAddr;

use super::Host;

/// As long may a host name be.
const MAX_NAME: usize = 253;

/// As long may one label of it be.
const MAX_LABEL: usize = 63;

/// Reads an IPv4 address, an IPv6 address or a host name.
///
/// # Errors
/// If it is none of them; says what it looks like instead.
pub fn parse(text: &str) -> Result<Host, String> {
    let expected = "an IP address or a host name";
    if text.is_empty() {
        return Err(format!("expected {expected}, found nothing"));
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(Host::Address(address));
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
    } else if is_name(text) {
        return Ok(Host::Name(text.to_owned()));
    } else {
        "something else"
    };
    Err(format!("expected {expected}, found {found} in {text:?}"))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
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
            assert_eq!(parse(text), Ok(expected), "{text}");
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
            let error = parse(text).unwrap_err();
            assert!(error.contains(&format!("found {found}")), "{text}: {error}");
        }
    }
}
