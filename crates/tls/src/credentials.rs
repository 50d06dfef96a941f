//! Keys and certificates by file.

use crate::names::NamedNodes;
use rustls::client::Resumption;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use thiserror::Error;

/// Where a node's credentials are, each in PEM form.
#[derive(Clone, Debug)]
pub struct Files {
    /// Its certificate, and those between it and the authority's.
    pub certificate: PathBuf,
    /// The certificate's private key. Only its owner and group may be able to read it.
    pub key: PathBuf,
    /// The certificates of the authority that all nodes trust.
    pub authority: PathBuf,
}

/// Credentials that cannot be used.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file that cannot be read.
    #[error("'{}' cannot be read: {cause}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// What the system says.
        cause: io::Error,
    },
    /// A file that is not what it should be.
    #[error("'{}' has no {what} in PEM form{detail}", path.display())]
    Malformed {
        /// Which.
        path: PathBuf,
        /// What it should have.
        what: &'static str,
        /// What is wrong, if more is known.
        detail: String,
    },
    /// A key that others can read.
    #[error("the key '{}' can be read or changed by others (mode {mode:o}): run 'chmod 600' on it", path.display())]
    Exposed {
        /// Which.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// A certificate and a key that do not go together, or are of a form that is not known.
    #[error("the certificate '{}' cannot be used with the key '{}': {detail}", certificate.display(), key.display())]
    Unusable {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// Why.
        detail: String,
    },
    /// A name under which no server can be known.
    #[error("'{0}' is neither a DNS name nor an address: give the name that is in the server's certificate")]
    Name(String),
}

/// What a node shows, and whom it trusts.
pub(crate) struct Credentials {
    pub server: Arc<ServerConfig>,
    pub client: Arc<ClientConfig>,
}

/// Tells one state of the files from another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint([Option<(SystemTime, u64, u64)>; 3]);

impl Files {
    /// What the files are at this moment.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        let look = |path: &PathBuf| {
            let found = std::fs::metadata(path).ok()?;
            Some((found.modified().ok()?, found.len(), found.ino()))
        };
        Fingerprint([&self.certificate, &self.key, &self.authority].map(look))
    }

    pub(crate) fn load(&self) -> Result<Credentials, TlsError> {
        let chain = certificates(&self.certificate)?;
        let mut roots = RootCertStore::empty();
        for root in certificates(&self.authority)? {
            roots.add(root).map_err(|error| malformed(&self.authority, "certificate of an authority", &error))?;
        }
        let key = self.key()?;
        let (provider, roots) = (Arc::new(ring::default_provider()), Arc::new(roots));
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider)).build();
        let verifier = verifier.map_err(|error| malformed(&self.authority, "certificate of an authority", &error))?;
        let unusable = |error: rustls::Error| TlsError::Unusable {
            certificate: self.certificate.clone(),
            key: self.key.clone(),
            detail: error.to_string(),
        };
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_protocol_versions(&[&TLS13]);
        let server = server.map_err(unusable)?.with_client_cert_verifier(Arc::new(NamedNodes(verifier)));
        let mut server = server.with_single_cert(chain.clone(), key.clone_key()).map_err(unusable)?;
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        let client = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13]);
        let client = client.map_err(unusable)?.with_root_certificates(roots);
        let mut client = client.with_client_auth_cert(chain, key).map_err(unusable)?;
        client.resumption = Resumption::disabled();
        Ok(Credentials { server: Arc::new(server), client: Arc::new(client) })
    }

    fn key(&self) -> Result<PrivateKeyDer<'static>, TlsError> {
        let path = &self.key;
        let found = std::fs::metadata(path).map_err(|cause| TlsError::Unreadable { path: path.clone(), cause })?;
        let mode = found.mode() & 0o777;
        if mode & 0o037 != 0 {
            return Err(TlsError::Exposed { path: path.clone(), mode });
        }
        PrivateKeyDer::from_pem_slice(&read(path)?).map_err(|error| malformed(path, "private key", &error))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bytes = read(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let found = found.map_err(|error| malformed(path, "certificate", &error))?;
    if found.is_empty() {
        return Err(TlsError::Malformed { path: path.to_owned(), what: "certificate", detail: String::new() });
    }
    Ok(found)
}

fn malformed(path: &Path, what: &'static str, cause: &dyn std::fmt::Display) -> TlsError {
    TlsError::Malformed { path: path.to_owned(), what, detail: format!(": {cause}") }
}

#[expect(
    clippy::disallowed_methods,
    reason = "credentials are not on the engine's devices, and are read at their change alone"
)]
fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|cause| TlsError::Unreadable { path: path.to_owned(), cause })
}
