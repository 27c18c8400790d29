//! Board, scraping: TLS towards engines, set up once from the files that a source names.

use std::io;
use std::path::Path;
use std::sync::Arc;

use epp_plugin_api::SourceSpec;
use rustls::client::WebPkiServerVerifier;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};

use crate::trust::{AcceptAny, AcceptTrusted};

/// Where systems keep the certificates that they trust.
const SYSTEM_ROOTS: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Why TLS could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsSetupError {
    #[error("cannot read {path}: {error}")]
    Unreadable { path: String, error: rustls_pki_types::pem::Error },
    #[error("expected a certificate in {path}, found none")]
    NoCertificate { path: String },
    #[error("expected both clientCertPath and clientKeyPath, found only {found}")]
    HalfPair { found: &'static str },
    #[error("cannot use {path}: {error}")]
    Unusable { path: String, error: rustls::Error },
    #[error("cannot set up TLS: {0}")]
    Setup(rustls::Error),
}

/// Reads the files of a source.
///
/// # Errors
/// If a file cannot be read or does not hold what it should.
pub fn client_config(source: &SourceSpec) -> Result<Arc<ClientConfig>, TlsSetupError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone());
    let builder = builder.with_safe_default_protocol_versions().map_err(TlsSetupError::Setup)?;
    let builder = if source.skip_verify {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(AcceptAny::new(provider)))
    } else if source.ca_cert_path.is_empty() {
        builder.with_root_certificates(roots(&source.ca_cert_path)?)
    } else {
        let (path, roots) = (source.ca_cert_path.as_str(), Arc::new(roots(&source.ca_cert_path)?));
        let rules = WebPkiServerVerifier::builder_with_provider(roots, provider).build();
        let rules = rules.map_err(|e| unusable(path, rustls::Error::General(e.to_string())))?;
        let verifier = AcceptTrusted::new(rules, certificates(path)?);
        builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
    };
    let (cert, key) = (source.client_cert_path.as_str(), source.client_key_path.as_str());
    let config = match (cert.is_empty(), key.is_empty()) {
        (true, true) => builder.with_no_client_auth(),
        (true, false) => return Err(TlsSetupError::HalfPair { found: "clientKeyPath" }),
        (false, true) => return Err(TlsSetupError::HalfPair { found: "clientCertPath" }),
        (false, false) => {
            let key = PrivateKeyDer::from_pem_file(key).map_err(|e| unreadable(key, e))?;
            builder.with_client_auth_cert(certificates(cert)?, key).map_err(|error| unusable(cert, error))?
        }
    };
    Ok(Arc::new(config))
}

fn unusable(path: &str, error: rustls::Error) -> TlsSetupError {
    TlsSetupError::Unusable { path: path.to_owned(), error }
}

fn unreadable(path: &str, error: rustls_pki_types::pem::Error) -> TlsSetupError {
    TlsSetupError::Unreadable { path: path.to_owned(), error }
}

fn certificates(path: &str) -> Result<Vec<CertificateDer<'static>>, TlsSetupError> {
    let certificates = CertificateDer::pem_file_iter(path).map_err(|e| unreadable(path, e))?;
    let certificates: Vec<_> = certificates.collect::<Result<_, _>>().map_err(|e| unreadable(path, e))?;
    if certificates.is_empty() {
        return Err(TlsSetupError::NoCertificate { path: path.to_owned() });
    }
    Ok(certificates)
}

/// The named authority, or the ones that the system trusts.
fn roots(ca_cert_path: &str) -> Result<RootCertStore, TlsSetupError> {
    let mut roots = RootCertStore::empty();
    if !ca_cert_path.is_empty() {
        for certificate in certificates(ca_cert_path)? {
            roots.add(certificate).map_err(|error| unusable(ca_cert_path, error))?;
        }
        return Ok(roots);
    }
    let named = std::env::var("SSL_CERT_FILE").ok();
    let known = SYSTEM_ROOTS.iter().map(ToString::to_string);
    if let Some(path) = named.into_iter().chain(known).find(|p| Path::new(p).is_file()) {
        roots.add_parsable_certificates(certificates(&path)?);
    }
    Ok(roots)
}

/// The name that the certificate must bear.
///
/// # Errors
/// If the host is neither a name nor an address.
pub fn server_name(host: &str) -> io::Result<ServerName<'static>> {
    ServerName::try_from(host.to_owned()).map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))
}
