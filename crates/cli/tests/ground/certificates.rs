//! Certificates of nodes, in files.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Who issues certificates.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub fn named(name: &str) -> Authority {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("there is entropy");
        Authority(CertifiedIssuer::self_signed(parameters, key).expect("it is in form"))
    }

    /// Writes a node's credentials into a directory, under its first name. Returns the arguments that name them.
    pub fn issue(&self, directory: &Path, names: &[&str]) -> String {
        let parameters = CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        let key = KeyPair::generate().expect("there is entropy");
        let certificate = parameters.expect("names").signed_by(&key, &self.0).expect("it is in form");
        let name = names[0];
        let place = |what: &str| directory.join(format!("{name}.{what}"));
        write(&place("pem"), &certificate.pem());
        write(&place("key"), &key.serialize_pem());
        write(&place("authority"), &self.0.pem());
        format!("--tls-certificate {name}.pem --tls-key {name}.key --tls-authority {name}.authority")
    }
}

/// Writes a file whole, by a new name for it.
pub fn write(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).expect("there is room");
    fs::set_permissions(&new, Permissions::from_mode(0o600)).expect("it is ours");
    fs::rename(new, path).expect("it is ours");
}
