//! What was found so far, and what of it two rounds have found alike: the numbers of damage may be others at each moment.

use super::{CheckReport, Examiner, Finding};

/// The findings of a partition that are listed, each with what another round says of the same damage.
pub(super) struct ListedFindings {
    /// Where they begin in the report.
    pub first: usize,
    pub likenesses: Vec<String>,
}

/// A finding with its likeness.
pub(super) struct LikenedFinding {
    finding: Finding,
    likeness: String,
}

impl LikenedFinding {
    /// Whether it is the same damage.
    pub fn is_like(&self, other: &LikenedFinding) -> bool {
        self.finding.page == other.finding.page && self.likeness == other.likeness
    }
}

impl Examiner<'_> {
    /// How much was found so far.
    pub(super) fn findings(&self) -> u64 {
        self.report.findings.len() as u64 + self.report.omitted
    }

    /// Something is wrong with a page, whatever numbers that comes with.
    pub(super) fn report(&mut self, page: u32, what: impl Into<String>) {
        let what = what.into();
        let likeness = without_numbers(&what);
        self.list_as(page, what, likeness);
    }

    /// Two counts differ. At two moments they do without damage, and it is the same only if they are.
    pub(super) fn report_counts(&mut self, page: u32, what: String) {
        self.list_as(page, what.clone(), what);
    }

    fn list_as(&mut self, page: u32, what: String, likeness: String) {
        self.list(LikenedFinding { finding: Finding { partition: self.partition.name.clone(), page, what }, likeness });
    }

    pub(super) fn list(&mut self, LikenedFinding { finding, likeness }: LikenedFinding) {
        if self.report.findings.len() == CheckReport::FINDINGS_MAX {
            self.report.omitted += 1;
            return;
        }
        self.report.findings.push(finding);
        self.found.likenesses.push(likeness);
    }

    /// Removes the findings behind the first `listed`, with the count of those `omitted` as it was then. Returns them.
    pub(super) fn forget(&mut self, (listed, omitted): (usize, u64)) -> Vec<LikenedFinding> {
        self.report.omitted = omitted;
        let likenesses = self.found.likenesses.split_off(listed - self.found.first);
        let findings = self.report.findings.split_off(listed);
        findings.into_iter().zip(likenesses).map(|(finding, likeness)| LikenedFinding { finding, likeness }).collect()
    }
}

/// Words without their numbers. Keys, which stand in brackets, and names, in quotes, are as they are.
fn without_numbers(what: &str) -> String {
    let (mut is_key, mut is_name) = (false, false);
    let stays = |letter: &char| {
        match letter {
            '[' => is_key = true,
            ']' => is_key = false,
            '\'' => is_name = !is_name,
            _ => {}
        }
        is_key || is_name || !letter.is_ascii_digit()
    };
    what.chars().filter(stays).collect()
}

#[cfg(test)]
mod tests {
    use super::without_numbers;

    #[test]
    fn numbers_go_and_keys_and_names_stay() {
        assert_eq!(
            without_numbers("the value of slot 13 has 4 bytes, too few"),
            "the value of slot  has  bytes, too few"
        );
        let missing = "the record with key [00, 1f] is missing from index 'by_2'";
        assert_eq!(without_numbers(missing), missing);
    }
}
