//! Engines behind TLS.

use std::path::PathBuf;

use epp_plugin_api::{Payload, SourceSpec};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::ServerConfig;
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::TlsAcceptor;

use super::super::client::Client;
use super::super::target::{Place, Target, path};
use super::super::tls::client_config;
use super::*;

/// A file that lives as long as this.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("epp-scrape-{}-{name}", std::process::id()));
        std::fs::write(&path, text).expect("the temporary folder takes files");
        Self(path)
    }

    fn path(&self) -> String {
        self.0.display().to_string()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn source() -> SourceSpec {
    SourceSpec {
        gives: Payload::Metrics,
        tls: true,
        path: "/metrics".into(),
        port: None,
        skip_verify: true,
        ca_cert_path: String::new(),
        client_cert_path: String::new(),
        client_key_path: String::new(),
        interval: None,
    }
}

/// A certificate that signs itself and is marked as one of an authority.
fn authority() -> CertifiedKey<rcgen::KeyPair> {
    let signing_key = rcgen::KeyPair::generate().expect("a key can be made");
    let mut params = rcgen::CertificateParams::new(["127.0.0.1".to_owned()]).expect("an address is a name");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let cert = params.self_signed(&signing_key).expect("a certificate can be made");
    CertifiedKey { cert, signing_key }
}

fn certified() -> CertifiedKey<rcgen::KeyPair> {
    generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate can be made")
}

async fn start(certified: &CertifiedKey<rcgen::KeyPair>) -> Target {
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring knows TLS 1.2 and 1.3")
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key)
        .expect("key and certificate belong together");
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has free ports");
    let port = listener.local_addr().expect("it is bound").port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answers: Arc<Mutex<Answers>> = Arc::new(Mutex::new(Box::new(|_| page(GOOD))));
            let (asked, heads) = mpsc::unbounded_channel();
            if let Ok(stream) = acceptor.accept(stream).await {
                serve(stream, asked, answers).await;
            }
            drop(heads);
        }
    });
    Target::new(Place { tls: true, host: "127.0.0.1".into(), port }, path("/metrics").expect("a path"))
        .expect("a target")
}

async fn fetch(spec: &SourceSpec, target: &Target) -> Result<(), String> {
    let config = client_config(spec).expect("a good set-up");
    Client::new(Some(config)).fetch(target, &mut Vec::new()).await.map_err(|e| e.to_string())
}

#[tokio::test]
async fn any_certificate_is_taken_when_verification_is_skipped() {
    let target = start(&certified()).await;
    assert_eq!(fetch(&source(), &target).await, Ok(()));
}

#[tokio::test]
async fn only_a_known_authority_is_taken_when_certificates_are_verified() {
    let certified = certified();
    let target = start(&certified).await;
    let unknown = SourceSpec { skip_verify: false, ..source() };
    let error = fetch(&unknown, &target).await.expect_err("the authority is unknown");
    assert!(error.starts_with("cannot agree on TLS: "), "{error}");
    let ca = File::new("ca.pem", &certified.cert.pem());
    let known = SourceSpec { skip_verify: false, ca_cert_path: ca.path(), ..source() };
    assert_eq!(fetch(&known, &target).await, Ok(()));
}

#[tokio::test]
async fn a_trusted_authority_may_be_the_engine_itself() {
    let (engine, other) = (authority(), authority());
    let target = start(&engine).await;
    for (trusted, is_fine) in [(&engine, true), (&other, false)] {
        let ca = File::new("authority.pem", &trusted.cert.pem());
        let spec = SourceSpec { skip_verify: false, ca_cert_path: ca.path(), ..source() };
        assert_eq!(fetch(&spec, &target).await.is_ok(), is_fine);
    }
}

#[test]
fn files_are_checked_at_once() {
    let certified = certified();
    let cert = File::new("client.pem", &certified.cert.pem());
    let key = File::new("client.key", &certified.signing_key.serialize_pem());
    let empty = File::new("empty.pem", "");
    let nowhere = "/nonexistent".to_owned();
    let pair =
        |cert: &str, key: &str| SourceSpec { client_cert_path: cert.into(), client_key_path: key.into(), ..source() };
    let ca = |path: String| SourceSpec { skip_verify: false, ca_cert_path: path, ..source() };
    for (spec, fault) in [
        (pair(&cert.path(), &key.path()), None),
        (pair(&nowhere, &nowhere), Some("cannot read /nonexistent: ")),
        (pair(&cert.path(), &nowhere), Some("cannot read /nonexistent: ")),
        (pair(&cert.path(), ""), Some("expected both clientCertPath and clientKeyPath, found only clientCertPath")),
        (pair("", &key.path()), Some("expected both clientCertPath and clientKeyPath, found only clientKeyPath")),
        (pair(&key.path(), &key.path()), Some("expected a certificate in ")),
        (ca(nowhere.clone()), Some("cannot read /nonexistent: ")),
        (ca(empty.path()), Some("expected a certificate in ")),
        (ca(String::new()), None),
        (SourceSpec { ca_cert_path: nowhere.clone(), ..source() }, None),
    ] {
        let error = client_config(&spec).err().map(|e| e.to_string());
        let same = match (&error, fault) {
            (Some(e), Some(fault)) => e.starts_with(fault),
            (None, None) => true,
            _ => false,
        };
        assert!(same, "{spec:?}: {error:?}");
    }
}
