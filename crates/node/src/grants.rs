//! What nodes may do with the partitions of a database, by the names that they have proven.
//!
//! ```
//! # use entresol_node::grants::{Access, Grants, Right};
//! let table = r#"{ "node": {
//!     "teller-1": { "write": ["account", "teller", "branch", "history"] },
//!     "auditor": { "read": ["*"] }
//! } }"#;
//! # let grants: Grants = serde_json::from_str(table).expect("a table");
//! let partitions = [(base::PartitionId(0), "account"), (base::PartitionId(1), "salary")];
//! let teller = grants.access("teller-1", partitions);
//! assert!(teller.allows(base::PartitionId(0), Right::Write));
//! assert!(!teller.allows(base::PartitionId(1), Right::Read));
//! assert!(!grants.access("stranger", partitions).allows(base::PartitionId(0), Right::Read));
//! ```

use base::PartitionId;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Stands for all partitions in a list of names.
const ALL: &str = "*";

/// What may be done with a partition: the greater right has the smaller one in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Right {
    /// To have copies of its pages.
    Read,
    /// To change them, too.
    Write,
}

impl Right {
    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            Right::Read => "read",
            Right::Write => "write",
        }
    }
}

/// A table of nodes. One that is not in it may do nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grants {
    #[serde(default)]
    node: BTreeMap<String, Granted>,
}

/// Names of partitions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Granted {
    #[serde(default)]
    read: Vec<String>,
    #[serde(default)]
    write: Vec<String>,
}

impl Grants {
    /// What the node of this name may do with these partitions, which are all that there are; of what is granted for all partitions it is with
    /// others, too. Names of nodes are those of DNS: of any case.
    pub fn access<'a>(&self, name: &str, partitions: impl IntoIterator<Item = (PartitionId, &'a str)>) -> Access {
        let found = self.node.iter().find(|(node, _)| node.eq_ignore_ascii_case(name));
        let Some((_, granted)) = found else { return Access::Granted(BTreeMap::new()) };
        let everywhere = granted.right(ALL);
        let greater =
            |(id, name)| granted.right(name).filter(|right| Some(*right) > everywhere).map(|right| (id, right));
        let rights = partitions.into_iter().filter_map(greater).collect();
        match everywhere {
            Some(right) => Access::Everywhere(right, rights),
            None => Access::Granted(rights),
        }
    }

    /// The first name of a partition in the table that is none of these, and the node that it is granted to.
    pub fn unknown<'a>(&'a self, partitions: &[&str]) -> Option<(&'a str, &'a str)> {
        let is_known = |name: &&String| *name == ALL || partitions.contains(&name.as_str());
        self.node.iter().find_map(|(node, granted)| {
            let name = granted.read.iter().chain(&granted.write).find(|name| !is_known(name))?;
            Some((node.as_str(), name.as_str()))
        })
    }
}

impl Granted {
    fn right(&self, partition: &str) -> Option<Right> {
        let has = |list: &[String]| list.iter().any(|name| name == ALL || name == partition);
        match (has(&self.write), has(&self.read)) {
            (true, _) => Some(Right::Write),
            (false, true) => Some(Right::Read),
            (false, false) => None,
        }
    }
}

/// What a node may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// Everything: nodes are not told apart.
    All,
    /// This with these partitions, and nothing with others.
    Granted(BTreeMap<PartitionId, Right>),
    /// The first with all partitions, those that are made later among them, and more with these.
    Everywhere(Right, BTreeMap<PartitionId, Right>),
}

impl Access {
    /// Whether it may do nothing at all.
    pub fn is_none(&self) -> bool {
        matches!(self, Access::Granted(rights) if rights.is_empty())
    }

    /// Whether there is a partition that it may write.
    pub fn writes(&self) -> bool {
        match self {
            Access::All => true,
            Access::Granted(rights) => rights.values().any(|right| *right == Right::Write),
            Access::Everywhere(right, rights) => {
                *right == Right::Write || rights.values().any(|right| *right == Right::Write)
            }
        }
    }

    /// Whether it may do this.
    pub fn allows(&self, partition: PartitionId, right: Right) -> bool {
        match self {
            Access::All => true,
            Access::Granted(rights) => rights.get(&partition).is_some_and(|granted| *granted >= right),
            Access::Everywhere(everywhere, rights) => *rights.get(&partition).unwrap_or(everywhere) >= right,
        }
    }
}
