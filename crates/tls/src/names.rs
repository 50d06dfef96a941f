//! Names in certificates.

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme};
use std::sync::Arc;
use thiserror::Error as ThisError;

/// What a node's certificate lacks.
#[derive(Debug, ThisError)]
#[error("it has {0} DNS names, and a node is known by the only one in its certificate")]
pub(crate) struct NoName(usize);

/// The node that a certificate is for.
pub(crate) fn node_name(certificate: &CertificateDer<'_>) -> Result<String, NoName> {
    let parsed = webpki::EndEntityCert::try_from(certificate).map_err(|_| NoName(0))?;
    let mut names = parsed.valid_dns_names();
    match (names.next(), names.count()) {
        (Some(name), 0) => Ok(name.to_ascii_lowercase()),
        (first, more) => Err(NoName(usize::from(first.is_some()) + more)),
    }
}

/// Verifies clients as the one below does, and that they have a name.
#[derive(Debug)]
pub(crate) struct NamedNodes(pub Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for NamedNodes {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        // Strangers are not told which authority it is.
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.0.verify_client_cert(end_entity, intermediates, now)?;
        match node_name(end_entity) {
            Ok(_) => Ok(verified),
            Err(error) => Err(CertificateError::Other(OtherError(Arc::new(error))).into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
