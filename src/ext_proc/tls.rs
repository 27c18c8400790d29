//! TLS of the ext_proc port: a certificate from files or one of its own, changed while running.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, date_time_ymd};
use rustls::crypto::CryptoProvider;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, SupportedProtocolVersion, version};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// What the command line says about TLS.
#[derive(Clone, Debug, Default)]
pub struct TlsSettings {
    /// Directory of `tls.crt` and `tls.key`; empty: a certificate of our own is made.
    pub cert_path: Option<PathBuf>,
    /// Connections of TLS 1.2 are refused.
    pub only_tls13: bool,
    /// The cipher suites for TLS 1.2; empty: all.
    pub tls12_suites: Vec<rustls::CipherSuite>,
}

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {path}: {why}")]
    Read { path: PathBuf, why: String },
    #[error("the certificate and the key in {path} cannot be used: {why}")]
    Unusable { path: PathBuf, why: String },
    #[error("cannot make a certificate: {0}")]
    SelfSigned(String),
    #[error("the cipher suites cannot be used: {0}")]
    Suites(String),
}

/// The certificate that new connections are shown.
pub struct Certificate {
    current: ArcSwap<CertifiedKey>,
    directory: Option<PathBuf>,
    provider: Arc<CryptoProvider>,
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Certificate({:?})", self.directory)
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.load_full())
    }
}

impl Certificate {
    /// Reads the files again; on an error the old certificate stays.
    ///
    /// # Errors
    /// If the files cannot be read or do not belong together.
    pub fn reload(&self) -> Result<(), TlsError> {
        if let Some(directory) = &self.directory {
            self.current.store(Arc::new(from_files(directory, &self.provider)?));
        }
        Ok(())
    }
}

/// Makes the server's TLS and the certificate in it.
///
/// # Errors
/// If the certificate cannot be read or made, or no cipher suite is left.
pub fn server_config(settings: &TlsSettings) -> Result<(Arc<ServerConfig>, Arc<Certificate>), TlsError> {
    let mut provider = rustls::crypto::ring::default_provider();
    if !settings.tls12_suites.is_empty() {
        let wanted = &settings.tls12_suites;
        provider.cipher_suites.retain(|s| s.tls13().is_some() || wanted.contains(&s.suite()));
    }
    let provider = Arc::new(provider);
    let key = match &settings.cert_path {
        Some(directory) => from_files(directory, &provider)?,
        None => self_signed(&provider)?,
    };
    let certificate = Arc::new(Certificate {
        current: ArcSwap::from_pointee(key),
        directory: settings.cert_path.clone(),
        provider: provider.clone(),
    });
    let both: &[&SupportedProtocolVersion] = &[&version::TLS13, &version::TLS12];
    let versions = if settings.only_tls13 { &both[..1] } else { both };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .map_err(|e| TlsError::Suites(e.to_string()))?
        .with_no_client_auth()
        .with_cert_resolver(certificate.clone());
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok((Arc::new(config), certificate))
}

fn from_files(directory: &Path, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
    let read_error = |path: &Path, why: &dyn fmt::Display| TlsError::Read { path: path.into(), why: why.to_string() };
    let (crt, key) = (directory.join("tls.crt"), directory.join("tls.key"));
    let pem = std::fs::read(&crt).map_err(|e| read_error(&crt, &e))?;
    let chain =
        CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>().map_err(|e| read_error(&crt, &e))?;
    if chain.is_empty() {
        return Err(read_error(&crt, &"expected a certificate in PEM, found none"));
    }
    let pem = std::fs::read(&key).map_err(|e| read_error(&key, &e))?;
    let key = PrivateKeyDer::from_pem_slice(&pem).map_err(|e| read_error(&key, &e))?;
    CertifiedKey::from_der(chain, key, provider)
        .map_err(|e| TlsError::Unusable { path: directory.into(), why: e.to_string() })
}

/// A certificate that names nobody, for ten years: the traffic is encrypted, the server is not proven.
fn self_signed(provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
    let failed = |e: rcgen::Error| TlsError::SelfSigned(e.to_string());
    let key = KeyPair::generate().map_err(failed)?;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "endpoint picker");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let this_year = 1970
        + (std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_secs()) / 31_556_952)
            as i32;
    params.not_before = date_time_ymd(this_year - 1, 1, 1);
    params.not_after = date_time_ymd(this_year + 10, 1, 1);
    let certificate = params.self_signed(&key).map_err(failed)?;
    let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(|e| TlsError::SelfSigned(e.to_owned()))?;
    CertifiedKey::from_der(vec![certificate.der().clone()], key, provider)
        .map_err(|e| TlsError::SelfSigned(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_of_its_own_can_be_served() {
        let (config, _) = server_config(&TlsSettings::default()).unwrap();
        assert_eq!(config.alpn_protocols, [b"h2".to_vec()]);
    }

    #[test]
    fn a_missing_file_is_named() {
        let settings = TlsSettings { cert_path: Some("/nonexistent".into()), ..TlsSettings::default() };
        assert!(server_config(&settings).unwrap_err().to_string().contains("/nonexistent/tls.crt"));
    }
}
