//! The session token: the name of an endpoint in base64, carried by the client from response to request.

use std::sync::Arc;

use epp_plugin_api::{EndpointMeta, EndpointName, Held, Served};

use crate::base64;

/// The longest token that is looked at.
const LONGEST: usize = 4096;

/// The name in a token; `None` if it is none.
pub fn decode(token: &str) -> Option<Vec<u8>> {
    if token.len() > LONGEST { None } else { base64::decode(token) }
}

/// Whether the decoded name is this one.
pub fn names(decoded: &[u8], name: &EndpointName) -> bool {
    let rest = decoded.strip_prefix(name.namespace.as_bytes()).and_then(|rest| rest.strip_prefix(b"/"));
    rest == Some(name.name.as_bytes())
}

/// Puts the token of the endpoint that served the request on its response.
pub struct WritesToken {
    pub header: String,
    pub target: Arc<EndpointMeta>,
    /// All that the request may have gone to, if those are several.
    pub others: Vec<Arc<EndpointMeta>>,
}

impl Held for WritesToken {
    fn response_headers(&mut self, served: &Served, set: &mut Vec<(String, String)>) {
        let by = match served {
            Served::By(host_port) => self.others.iter().find(|meta| meta.host_port == *host_port),
            Served::NoMetadata | Served::NotSaid => None,
        };
        let name = &by.unwrap_or(&self.target).name;
        set.push((self.header.clone(), base64::encode(name.to_string().as_bytes())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(name: &str, port: u16) -> Arc<EndpointMeta> {
        let name = EndpointName { namespace: "default".into(), name: name.into() };
        Arc::new(EndpointMeta::new(name, "10.0.0.1".into(), port, Default::default(), 0))
    }

    #[test]
    fn a_token_names_one_endpoint() {
        let decoded = decode("ZGVmYXVsdC9wb2Qx").expect("it is base64");
        let name = |namespace: &str, name: &str| EndpointName { namespace: namespace.into(), name: name.into() };
        assert!(names(&decoded, &name("default", "pod1")));
        for (namespace, other) in [("default", "pod"), ("default", "pod11"), ("defaul", "t/pod1"), ("", "pod1")] {
            assert!(!names(&decoded, &name(namespace, other)), "{namespace}/{other}");
        }
        assert_eq!(decode(&"A".repeat(LONGEST + 4)), None);
    }

    #[test]
    fn the_token_is_that_of_who_served() {
        let others = vec![meta("pod1", 1), meta("pod2", 2)];
        let mut writes = WritesToken { header: "x".into(), target: meta("pod1", 1), others };
        for (served, expected) in [
            (Served::NoMetadata, "default/pod1"),
            (Served::NotSaid, "default/pod1"),
            (Served::By("10.0.0.1:2".into()), "default/pod2"),
            (Served::By("10.0.0.9:2".into()), "default/pod1"),
        ] {
            let mut set = Vec::new();
            writes.response_headers(&served, &mut set);
            assert_eq!(set, [("x".to_owned(), base64::encode(expected.as_bytes()))], "{served:?}");
        }
    }
}
