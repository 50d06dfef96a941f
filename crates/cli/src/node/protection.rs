//! TLS and grants: what protects a database that is served, and the options for it.

use crate::Failure;
use crate::progress::Progress;
use ::node::channel::{Bare, Plain, Transport};
use ::node::grants::Grants;
use ::node::page_server::PageServer;
use clap::Args;
use clap::error::ErrorKind;
use executor::UserExecutor;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::SystemTime;
use tls::{Files, Options, Tls};

/// Who this node is, and whom it trusts.
#[derive(Args, Clone, Debug)]
pub struct Protection {
    /// This node's certificate (PEM), and those up to its authority's; read again when it changes
    #[arg(long, value_name = "FILE", requires_all = ["tls_key", "tls_authority"])]
    tls_certificate: Option<PathBuf>,
    /// The certificate's private key (PEM), which only its owner and group may read
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
    /// The certificates (PEM) of the authority that all nodes trust, and nothing else does
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_authority: Option<PathBuf>,
}

/// The way to other nodes.
pub struct Way {
    pub transport: Rc<dyn Transport>,
    /// What there is to be said of TLS, if it is used.
    pub tls: Option<Tls>,
}

/// A mistake in the arguments.
pub fn usage(words: String) -> Failure {
    clap::Error::raw(ErrorKind::ValueValidation, words + "\n").into()
}

/// An address of an interface.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "no address like 127.0.0.1:7171 or [::1]:7171".to_owned())
}

impl Protection {
    /// Whether there is any.
    pub fn is_given(&self) -> bool {
        self.tls_certificate.is_some()
    }

    /// Nothing that leaves the loopback goes without protection.
    pub fn permits(&self, address: SocketAddr) -> Result<(), Failure> {
        if address.ip().is_loopback() || self.is_given() {
            return Ok(());
        }
        Err(usage(format!(
            "off loopback nothing is served without TLS and mutual authentication: give --tls-certificate, --tls-key and --tls-authority, \
             or use an address such as 127.0.0.1:{}",
            address.port()
        )))
    }

    /// The way to other nodes: sealed if credentials are given.
    pub fn way(&self, executor: &UserExecutor, server_name: Option<&str>, progress: &Progress) -> Result<Way, Failure> {
        let (Some(certificate), Some(key), Some(authority)) =
            (self.tls_certificate.clone(), self.tls_key.clone(), self.tls_authority.clone())
        else {
            return Ok(Way { transport: Rc::new(Plain(executor.clone())), tls: None });
        };
        let options = Options {
            files: Files { certificate, key, authority },
            server_name: server_name.map(str::to_owned),
            notice: Box::new(progress.warner()),
        };
        let tls = Tls::new(executor, Rc::new(Bare(executor.clone())), options)?;
        Ok(Way { transport: Rc::new(tls.clone()), tls: Some(tls) })
    }
}

/// A file of grants, which may change.
pub struct GrantsFile {
    path: PathBuf,
    /// What it was when it was read, and at the last look.
    read: Option<Stamp>,
    seen: Option<Stamp>,
}

type Stamp = (SystemTime, u64);

impl GrantsFile {
    /// Reads it for the first time.
    pub fn open(path: &Path) -> Result<(GrantsFile, Grants), Failure> {
        let read = stamp(path);
        let grants = read_grants(path)?;
        Ok((GrantsFile { path: path.to_owned(), read, seen: read }, grants))
    }

    /// Has the server take what is new. A change counts when the file is the same at two looks.
    pub fn follow(&mut self, server: &PageServer, progress: &Progress) {
        let found = stamp(&self.path);
        let is_new = found != self.read && found == self.seen;
        self.seen = found;
        if !is_new {
            return;
        }
        self.read = found;
        let taken = read_grants(&self.path).and_then(|grants| Ok(server.grant(grants)?));
        let warn = progress.warner();
        match taken {
            Ok(()) => warn(&format!("'{}' has changed; its grants count from now on", self.path.display())),
            Err(error) => {
                warn(&format!("'{}' has changed, and the former grants still count: {error}", self.path.display()));
            }
        }
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let found = std::fs::metadata(path).ok()?;
    Some((found.modified().ok()?, found.len()))
}

fn read_grants(path: &Path) -> Result<Grants, Failure> {
    let text = crate::files::read_text(path)?;
    toml::from_str(&text).map_err(|error| format!("'{}' has no grants in form: {error}", path.display()).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        protection: Protection,
    }

    fn protection(words: &[&str]) -> Result<Protection, clap::Error> {
        Line::try_parse_from(std::iter::once(&"entresol").chain(words)).map(|line| line.protection)
    }

    #[test]
    fn nothing_leaves_the_loopback_without_protection() {
        let (none, all) = (
            protection(&[]).expect("none is needed"),
            protection(&["--tls-certificate", "c", "--tls-key", "k", "--tls-authority", "a"]).expect("it is whole"),
        );
        for text in ["127.0.0.1:7171", "127.8.0.1:0", "[::1]:7171"] {
            assert!(none.permits(address(text).expect(text)).is_ok(), "{text}");
        }
        for text in ["0.0.0.0:7171", "192.168.0.1:7171", "[::]:7171", "[2001:db8::1]:7171"] {
            let at = address(text).expect(text);
            let refused = none.permits(at).expect_err(text).to_string();
            assert!(refused.contains("TLS and mutual authentication"), "{refused}");
            assert!(all.permits(at).is_ok(), "{text}");
        }
        for text in ["127.0.0.1", "localhost:7171", "7171", ""] {
            assert!(address(text).expect_err(text).contains("no address"), "{text}");
        }
    }

    #[test]
    fn credentials_are_given_all_or_none() {
        for part in [&["--tls-certificate", "c"][..], &["--tls-key", "k"], &["--tls-authority", "a", "--tls-key", "k"]]
        {
            assert_eq!(protection(part).map(drop).expect_err("it is a part").exit_code(), 2, "{part:?}");
        }
    }
}
