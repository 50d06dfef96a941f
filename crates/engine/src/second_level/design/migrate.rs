use super::Admission;

/// Pages migrate when main memory replaces them, by whether they were changed there (Rahm 1991, section 3.2).
pub struct Migrate {
    pub modified: bool,
    pub unmodified: bool,
}

impl Admission for Migrate {
    fn admits(&self, modified: bool) -> bool {
        if modified { self.modified } else { self.unmodified }
    }
}
