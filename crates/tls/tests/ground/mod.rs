//! Authorities, nodes with certificates, and real sockets of the loopback.

#![allow(dead_code, reason = "not every test needs all of it")]

use entresol_tls::{Files, Options, Tls};
use executor::{Executor, Order};
use node::channel::{Plain, Transport};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use real_driver::RealDriver;
use std::cell::RefCell;
use std::fs::{self, Permissions};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::rc::Rc;
use tempfile::TempDir;

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

    /// Writes the credentials of a node with these names into a directory. Names that are addresses become such ones.
    pub fn issue(&self, directory: &Path, names: &[&str]) -> Files {
        self.issue_as(directory, parameters(names))
    }

    /// Those of one whose certificate has expired.
    pub fn issue_expired(&self, directory: &Path, names: &[&str]) -> Files {
        let mut parameters = parameters(names);
        (parameters.not_before, parameters.not_after) = (date_time_ymd(2001, 1, 1), date_time_ymd(2002, 1, 1));
        self.issue_as(directory, parameters)
    }

    fn issue_as(&self, directory: &Path, parameters: CertificateParams) -> Files {
        fs::create_dir_all(directory).expect("a directory");
        let key = KeyPair::generate().expect("there is entropy");
        let certificate = parameters.signed_by(&key, &self.0).expect("it is in form");
        let files = files(directory);
        write(&files.certificate, &certificate.pem());
        write(&files.key, &key.serialize_pem());
        fs::set_permissions(&files.key, Permissions::from_mode(0o600)).expect("it is ours");
        write(&files.authority, &self.0.pem());
        files
    }
}

fn parameters(names: &[&str]) -> CertificateParams {
    CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).expect("names")
}

/// Where a directory's credentials are.
pub fn files(directory: &Path) -> Files {
    let [certificate, key, authority] = ["certificate", "key", "authority"].map(|name| directory.join(name));
    Files { certificate, key, authority }
}

/// Writes a file as operators should: whole, by a new name for it.
pub fn write(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).expect("there is room");
    fs::rename(new, path).expect("it is ours");
}

pub fn loopback() -> SocketAddr {
    (IpAddr::from([127, 0, 0, 1]), 0).into()
}

/// A machine of its own with real sockets, and a directory.
pub struct Ground {
    pub executor: Executor,
    pub directory: TempDir,
    pub notices: Rc<RefCell<Vec<String>>>,
}

impl Ground {
    pub fn new() -> Ground {
        let directory = tempfile::tempdir().expect("a directory");
        let driver = RealDriver::open(real_driver::Options::new("disk", directory.path())).expect("it can be used");
        let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
        Ground { executor, directory, notices: Rc::default() }
    }

    pub fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    pub fn tls(&self, files: Files) -> Tls {
        self.tls_over(Rc::new(Plain(self.executor.for_users())), files, None)
    }

    pub fn tls_over(&self, raw: Rc<dyn Transport>, files: Files, server_name: Option<&str>) -> Tls {
        let notices = Rc::clone(&self.notices);
        let notice = Box::new(move |words: &str| notices.borrow_mut().push(words.to_owned()));
        let options = Options { files, server_name: server_name.map(str::to_owned), notice };
        Tls::new(&self.executor.for_users(), raw, options).expect("the credentials are good")
    }

    pub fn run<T>(&self, work: impl AsyncFnOnce() -> T) -> T {
        self.executor.run(work()).expect("the machine goes on")
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        self.executor.stop();
    }
}
