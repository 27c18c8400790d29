//! Board, scraping: where a page is, and where a redirect leads.

use http::uri::{Authority, PathAndQuery, Uri};
use http::{HeaderValue, uri};

/// Where a page is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub place: Place,
    /// The value of the host header: `host:port`.
    pub host_header: HeaderValue,
    /// As it stands in the request line.
    pub path: Uri,
}

/// What a connection leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub tls: bool,
    /// A name or an address, without brackets.
    pub host: String,
    pub port: u16,
}

/// Why there is no such target.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    #[error("expected a host name or an address, found {0:?}")]
    Host(String),
    #[error("expected a path, found {0:?}")]
    Path(String),
    #[error("expected a redirect to another page by the same scheme, found {0:?}")]
    Redirect(String),
}

impl Target {
    /// Puts a target together.
    ///
    /// # Errors
    /// If the host cannot stand in a header.
    pub fn new(place: Place, path: Uri) -> Result<Self, TargetError> {
        let Place { host, port, .. } = &place;
        let host_port = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        let is_authority = !host.is_empty() && host_port.parse::<Authority>().is_ok();
        let host_header = HeaderValue::try_from(host_port).ok().filter(|_| is_authority);
        let host_header = host_header.ok_or_else(|| TargetError::Host(place.host.clone()))?;
        Ok(Self { place, host_header, path })
    }

    /// Where `location` leads from here.
    ///
    /// # Errors
    /// If that is no page, the same page again, or one by another scheme.
    pub fn follow(&self, location: &str) -> Result<Self, TargetError> {
        let fault = || TargetError::Redirect(location.to_owned());
        let bare = location.split('#').next().unwrap_or_default();
        let scheme = if self.place.tls { "https" } else { "http" };
        let next = if let Some(rest) = bare.strip_prefix("//") {
            self.elsewhere(&format!("{scheme}://{rest}").parse().map_err(|_| fault())?)
        } else if bare.contains("://") {
            self.elsewhere(&bare.parse().map_err(|_| fault())?)
        } else if bare.starts_with('/') {
            Some(Self { path: path(bare).map_err(|_| fault())?, ..self.clone() })
        } else if bare.is_empty() {
            None
        } else {
            let folder = self.path.path().rsplit_once('/').map_or("", |(folder, _)| folder);
            Some(Self { path: path(&format!("{folder}/{bare}")).map_err(|_| fault())?, ..self.clone() })
        };
        next.filter(|next| next != self).ok_or_else(fault)
    }

    fn elsewhere(&self, location: &Uri) -> Option<Self> {
        let tls = location.scheme() == Some(&uri::Scheme::HTTPS);
        let authority = location.authority()?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = authority.port_u16().unwrap_or(if tls { 443 } else { 80 });
        let path = location.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        let next = Self::new(Place { tls, host, port }, Uri::from(path)).ok()?;
        (tls == self.place.tls).then_some(next)
    }
}

/// Reads the path of a source; a missing slash before it is added.
///
/// # Errors
/// If it cannot stand in a request line.
pub fn path(text: &str) -> Result<Uri, TargetError> {
    let slash = if text.starts_with('/') { "" } else { "/" };
    let path: Result<PathAndQuery, _> = format!("{slash}{text}").parse();
    path.map(Uri::from).map_err(|_| TargetError::Path(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(tls: bool, host: &str, at: &str) -> Target {
        let place = Place { tls, host: host.to_owned(), port: 8000 };
        Target::new(place, path(at).expect("a path")).expect("a target")
    }

    fn shown(t: &Target) -> String {
        format!("{} {}:{}{}", t.host_header.to_str().expect("plain text"), t.place.host, t.place.port, t.path)
    }

    #[test]
    fn the_host_header_has_a_port_and_brackets() {
        assert_eq!(shown(&target(false, "10.0.0.1", "/metrics")), "10.0.0.1:8000 10.0.0.1:8000/metrics");
        assert_eq!(shown(&target(false, "fd00::1", "m")), "[fd00::1]:8000 fd00::1:8000/m");
        assert_eq!(shown(&target(true, "engine.local", "/a%3Fb=c")), "engine.local:8000 engine.local:8000/a%3Fb=c");
    }

    #[test]
    fn what_is_no_host_or_path_is_refused() {
        for host in ["a b", "", "a/b", "a\r\nb"] {
            let place = Place { tls: false, host: host.to_owned(), port: 1 };
            assert_eq!(Target::new(place, Uri::from_static("/")), Err(TargetError::Host(host.to_owned())));
        }
        assert!(path("/a b").is_err() && path("/a\r\n").is_err());
    }

    #[test]
    fn a_redirect_leads_where_it_says() {
        for (location, expected) in [
            ("/elsewhere", Some("h:8000 h:8000/elsewhere")),
            ("/elsewhere?a=b#c", Some("h:8000 h:8000/elsewhere?a=b")),
            ("other", Some("h:8000 h:8000/x/other")),
            ("http://o:81/m", Some("o:81 o:81/m")),
            ("http://o", Some("o:80 o:80/")),
            ("//o:81/m", Some("o:81 o:81/m")),
            ("http://[::1]:81/m", Some("[::1]:81 ::1:81/m")),
            ("/x/metrics", None),
            ("metrics", None),
            ("http://h:8000/x/metrics", None),
            ("https://h:8000/m", None),
            ("", None),
            ("#top", None),
            ("ftp://", None),
        ] {
            let next = target(false, "h", "/x/metrics").follow(location);
            assert_eq!(next.as_ref().ok().map(shown).as_deref(), expected, "{location}");
        }
        assert_eq!(shown(&target(true, "h", "/m").follow("https://o/m").expect("a page")), "o:443 o:443/m");
    }
}
