//! Rahm 1991: extended storage hierarchies for transaction processing.

use crate::{Answer, Claim, Results, Study};

/// The study.
pub(crate) struct Rahm1991;

impl Study for Rahm1991 {
    fn id(&self) -> &'static str {
        "rahm-1991"
    }

    fn source(&self) -> &'static str {
        "Erhard Rahm: Performance Evaluation of Extended Storage Architectures for Transaction Processing. Technical Report \
         216/91, University of Kaiserslautern, November 1991"
    }

    fn experiments(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("4-2-log.toml", include_str!("../rahm-1991/4-2-log.toml")),
            ("4-3-database.toml", include_str!("../rahm-1991/4-3-database.toml")),
            ("4-4-force.toml", include_str!("../rahm-1991/4-4-force.toml")),
            ("4-4-single-disk.toml", include_str!("../rahm-1991/4-4-single-disk.toml")),
            ("4-5-noforce.toml", include_str!("../rahm-1991/4-5-noforce.toml")),
            ("4-5-force.toml", include_str!("../rahm-1991/4-5-force.toml")),
        ]
    }

    fn choices(&self) -> &'static [&'static str] {
        &[]
    }

    fn claims(&self, _results: &Results) -> Vec<Claim> {
        Vec::new()
    }

    fn answers(&self, _results: &Results) -> Vec<Answer> {
        Vec::new()
    }
}
