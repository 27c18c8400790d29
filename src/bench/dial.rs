//! Opens connections to pickers, gateways and engines, in the clear or over TLS.

use std::io;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use hyper_util::rt::TokioIo;
use rustls::client::WebPkiServerVerifier;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::trust::{AcceptAny, AcceptTrusted};

/// How connections are opened.
#[derive(Clone, Default)]
pub enum Dial {
    #[default]
    Clear,
    Tls(Arc<ClientConfig>),
}

/// What is spoken inside TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaks {
    Grpc,
    Http1,
}

/// Either kind of connection.
pub trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Socket for T {}

impl Dial {
    /// TLS that takes the certificates in this PEM file and what they have signed, or, without a file, any certificate.
    ///
    /// # Errors
    /// If the file has no certificate that can be used.
    pub fn tls(ca: Option<&Path>, speaks: Speaks) -> anyhow::Result<Self> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
        let builder = builder.dangerous();
        let builder = match ca {
            None => builder.with_custom_certificate_verifier(Arc::new(AcceptAny::new(provider))),
            Some(path) => {
                let certificates = certificates(path).with_context(|| path.display().to_string())?;
                let mut roots = RootCertStore::empty();
                certificates.iter().try_for_each(|certificate| roots.add(certificate.clone()))?;
                let rules = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build()?;
                builder.with_custom_certificate_verifier(Arc::new(AcceptTrusted::new(rules, certificates)))
            }
        };
        let mut config = builder.with_no_client_auth();
        config.alpn_protocols = match speaks {
            Speaks::Grpc => vec![b"h2".to_vec()],
            Speaks::Http1 => vec![b"http/1.1".to_vec()],
        };
        Ok(Self::Tls(Arc::new(config)))
    }

    /// Connects to `host:port`.
    ///
    /// # Errors
    /// If nobody takes the connection, or the certificate is not trusted.
    pub async fn connect(&self, address: &str) -> io::Result<TokioIo<Box<dyn Socket>>> {
        let stream = TcpStream::connect(address).await?;
        // Small messages must not wait for an acknowledgement.
        stream.set_nodelay(true)?;
        let socket: Box<dyn Socket> = match self {
            Self::Clear => Box::new(stream),
            Self::Tls(config) => {
                let connector = TlsConnector::from(config.clone());
                Box::new(connector.connect(server_name(address)?, stream).await?)
            }
        };
        Ok(TokioIo::new(socket))
    }
}

fn certificates(path: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let certificates = CertificateDer::pem_file_iter(path)?.collect::<Result<Vec<_>, _>>()?;
    ensure!(!certificates.is_empty(), "expected a certificate, found none");
    Ok(certificates)
}

/// The name that a certificate must bear: the host of the address.
fn server_name(address: &str) -> io::Result<ServerName<'static>> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    ServerName::try_from(host.to_owned()).map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_must_bear_the_host_of_the_address() {
        for (address, name) in [("picker.local:9002", "picker.local"), ("127.0.0.1:1", "127.0.0.1"), ("[::1]:1", "::1")]
        {
            assert_eq!(server_name(address).unwrap(), ServerName::try_from(name).unwrap(), "{address}");
        }
    }

    #[test]
    fn a_file_without_certificates_is_named() {
        let why = Dial::tls(Some(Path::new("Cargo.toml")), Speaks::Grpc).err().unwrap();
        assert_eq!(format!("{why:#}"), "Cargo.toml: expected a certificate, found none");
    }
}
