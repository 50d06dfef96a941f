use super::shape::{RecordsByNumber, Shape};
use engine::PartitionSpec;
use std::rc::Rc;

/// A partition as it may be; `None` if it is absent.
pub type PartitionState = Option<Rc<Shape>>;

/// What is known about the partition of one name.
#[derive(Clone, Debug)]
pub struct Known {
    /// The states that it may be in: several if something was done to it and not answered, or failed half way.
    states: Vec<PartitionState>,
    /// Whether its records, if they are typed, have their secondary index; `None` if that is in doubt.
    index: Option<bool>,
    /// Whether a transaction has been at work on it since its creation.
    pub is_used: bool,
    /// Whether a partition of this name was created before.
    was_created: bool,
}

impl Default for Known {
    fn default() -> Known {
        Known { states: vec![None], index: Some(true), is_used: false, was_created: false }
    }
}

impl Known {
    /// The state, if there is no doubt about it.
    pub fn state(&self) -> Option<&PartitionState> {
        match &self.states[..] {
            [state] => Some(state),
            _ => None,
        }
    }

    /// Whether this says of the partition's contents what `other` says.
    pub fn is_same(&self, other: &Known) -> bool {
        let is_same = |(one, other): (&PartitionState, &PartitionState)| match (one, other) {
            (Some(one), Some(other)) => Rc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        let counts = (self.states.len(), self.index) == (other.states.len(), other.index);
        counts && self.states.iter().zip(&other.states).all(is_same)
    }

    /// What is known if either this holds or `other`.
    pub fn or(mut self, other: &Known) -> Known {
        self.states.extend(other.states.iter().cloned());
        self.index = self.index.filter(|_| self.index == other.index);
        self
    }

    /// Records that an operation was requested that would leave this state.
    pub fn may_become(&mut self, state: PartitionState) {
        self.states.push(state);
    }

    /// Records the state as certain.
    pub fn is(&mut self, state: PartitionState) {
        self.states = vec![state];
    }

    /// Records whether its typed records have their secondary index; `None` if a change of that was requested and not answered.
    pub fn note_index(&mut self, index: Option<bool>) {
        self.index = index;
    }

    /// Whether its typed records have their secondary index, if there is no doubt about it.
    pub fn index(&self) -> Option<bool> {
        self.index
    }

    /// Notes that it was created; true if one of this name was before.
    pub fn is_created(&mut self, shape: Rc<Shape>) -> bool {
        self.is(Some(shape));
        std::mem::replace(&mut self.was_created, true)
    }

    /// Whether it may be absent.
    pub fn may_be_absent(&self) -> bool {
        self.states.iter().any(Option::is_none)
    }

    /// The shapes that it may have.
    pub fn shapes(&self) -> impl Iterator<Item = &Rc<Shape>> {
        self.states.iter().flatten()
    }

    /// Compares what is found with what may be there; then that is certain.
    ///
    /// # Errors
    /// What is wrong.
    pub fn reconcile(&mut self, spec: &PartitionSpec, found: &RecordsByNumber) -> Result<(), String> {
        let is_same = |shape: &Rc<Shape>| is_same_spec(&shape.spec, spec) && shape.contents == *found;
        let same = self.shapes().find(|shape| is_same(shape)).cloned();
        if let Some(shape) = same {
            self.is(Some(shape));
            return Ok(());
        }
        let candidates: Vec<String> = self.states.iter().map(|state| described(state.as_ref(), found)).collect();
        Err(format!("it is {:?} of {} records; {}", spec.organization, found.len(), candidates.join("; ")))
    }

    /// Compares whether typed records are found to have their secondary index with what is known of that.
    ///
    /// # Errors
    /// What is wrong.
    pub fn compare_index(&self, found: bool) -> Result<(), String> {
        match self.index {
            Some(known) if known != found => {
                let is = |there| if there { "there" } else { "gone" };
                Err(format!("its index is {}, and should be {}", is(found), is(known)))
            }
            _ => Ok(()),
        }
    }

    /// Notes that it was found absent, at a moment when nothing was under way.
    ///
    /// # Errors
    /// What is wrong.
    pub fn reconcile_absent(&mut self) -> Result<(), String> {
        if !self.may_be_absent() {
            let candidates: Vec<String> =
                self.states.iter().map(|state| described(state.as_ref(), &RecordsByNumber::new())).collect();
            return Err(format!("it is lost: {}", candidates.join("; ")));
        }
        self.is(None);
        Ok(())
    }
}

fn is_same_spec(one: &PartitionSpec, other: &PartitionSpec) -> bool {
    (one.organization, one.locking, &one.device) == (other.organization, other.locking, &other.device)
        && one.record == other.record
}

fn described(state: Option<&Rc<Shape>>, found: &RecordsByNumber) -> String {
    let Some(shape) = state else { return "it may be absent".to_owned() };
    let (kind, count) = (shape.kind, shape.contents.len());
    format!("it may be {kind:?} of {count} records, which {}", difference(&shape.contents, found))
}

/// The first difference between what may be there and what is found, in words.
pub fn difference(expected: &RecordsByNumber, found: &RecordsByNumber) -> String {
    let numbers: std::collections::BTreeSet<&u64> = expected.keys().chain(found.keys()).collect();
    let show = |value: Option<&Rc<[u8]>>| match value {
        Some(value) => format!("{} bytes {:02x?}", value.len(), &value[..value.len().min(12)]),
        None => "none".to_owned(),
    };
    let differs = |number: &&&u64| expected.get(number) != found.get(number);
    let first = numbers
        .iter()
        .find(differs)
        .map(|number| format!("has {} as {number}, found is {}", show(expected.get(number)), show(found.get(number))));
    let count = numbers.iter().filter(differs).count();
    first.map_or("are the same".to_owned(), |first| format!("{first} ({count} differ)"))
}

#[cfg(test)]
mod tests {
    use super::super::shape::ShapeKind;
    use super::*;
    use base::Random;

    fn shape() -> Shape {
        let random = &mut Random::stream(0, "shapes");
        std::iter::repeat_with(|| ShapeKind::draw("own-0-0", 1024, random))
            .find(|shape| shape.kind == ShapeKind::Set)
            .expect("one")
    }

    #[test]
    fn an_index_is_as_it_was_told_unless_a_change_was_not_answered() {
        let mut known = Known::default();
        assert!(known.compare_index(true).is_ok() && known.compare_index(false).is_err());
        known.note_index(None);
        assert!(known.compare_index(true).is_ok() && known.compare_index(false).is_ok());
        known.note_index(Some(false));
        assert!(known.compare_index(true).is_err_and(|what| what.contains("should be gone")));
        let before = Known::default();
        assert!(!before.is_same(&known) && before.or(&known).index().is_none());
    }

    #[test]
    fn one_of_the_states_that_it_may_be_in_settles_it() {
        let empty = shape();
        let full = empty.with(RecordsByNumber::from([(1, Rc::from([7; 3]))]));
        let mut known = Known::default();
        assert!(known.state().is_some_and(Option::is_none));
        known.may_become(Some(Rc::new(empty.clone())));
        known.may_become(Some(Rc::new(full.clone())));
        assert!(known.state().is_none());
        assert_eq!(known.clone().reconcile_absent(), Ok(()));
        assert_eq!(known.clone().reconcile(&full.spec, &full.contents), Ok(()));
        assert_eq!(known.reconcile(&empty.spec, &empty.contents), Ok(()));
        assert!(known.clone().reconcile_absent().is_err_and(|what| what.contains("lost")));
        assert!(known.clone().reconcile(&full.spec, &full.contents).is_err_and(|what| what.contains("has none as 1")));
        let other = PartitionSpec::b_tree("own-0-0");
        assert!(known.reconcile(&other, &empty.contents).is_err_and(|what| what.contains("BTree")));
    }
}
