//! What is run otherwise at some places of the abscissa, such as longer where runs of the usual length decide little.

use super::document::{Document, overlay};
use super::read::{TREES, number};
use super::{ExperimentError, Origin};
use entresol::configuration::Problem;
use toml::{Table, Value};

/// An element of `[[at]]`.
pub(super) struct Exception {
    /// Its path in the document.
    path: String,
    /// The numbers of the places at which it is made.
    places: Vec<usize>,
    /// What is laid over all other tables there.
    changes: Table,
}

/// Every exception, where these are the places of the abscissa: numbers with their labels, or labels alone.
pub(super) fn exceptions(
    document: &Document,
    places: &[(Option<f64>, &str)],
) -> Result<Vec<Exception>, ExperimentError> {
    let mut known = vec!["values"];
    known.extend(TREES);
    let mut found = Vec::new();
    for index in 0..document.elements("at")? {
        let path = format!("at.{index}");
        document.only(&path, "[[at]]", &known)?;
        let Some(Value::Table(table)) = document.value(&path) else { unreachable!("its keys have been looked at") };
        let tables = table.iter().filter(|(key, _)| TREES.contains(&key.as_str()));
        let changes = tables.map(|(key, value)| (key.clone(), value.clone())).collect();
        let places = numbers_of(document, &path, places)?;
        found.push(Exception { path, places, changes });
    }
    Ok(found)
}

/// The numbers of the places that an exception names.
fn numbers_of(document: &Document, path: &str, places: &[(Option<f64>, &str)]) -> Result<Vec<usize>, ExperimentError> {
    let allowed = places.iter().map(|(_, label)| *label).collect::<Vec<_>>().join(", ");
    let at = format!("{path}.values");
    let Some(Value::Array(values)) = document.value(&at) else {
        let problem = Problem::Conflict("[[at]] has no list of 'values'".to_owned());
        return Err(document.at_key(path, problem, &allowed, None));
    };
    let is_at = |value: &Value, (place, label): &(Option<f64>, &str)| match number(value) {
        Some(number) => *place == Some(number),
        None => value.as_str() == Some(*label),
    };
    let number_of = |value: &Value| {
        let problem = || Problem::Conflict(format!("{value} is none of the first parameter's values"));
        let found = places.iter().position(|place| is_at(value, place));
        found.ok_or_else(|| document.at_value(&at, problem(), &allowed, None))
    };
    values.iter().map(number_of).collect()
}

/// Lays over a run's tables what is made otherwise at its place. Returns where that was written, what counts most first.
pub(super) fn except<'a>(run: &mut Table, exceptions: &[Exception], place: usize) -> Vec<Origin<'a>> {
    let made = exceptions.iter().filter(|exception| exception.places.contains(&place));
    let lay = |exception: &Exception| {
        overlay(run, &exception.changes);
        Origin::Table(exception.path.clone())
    };
    let mut origins: Vec<Origin<'a>> = made.map(lay).collect();
    origins.reverse();
    origins
}
