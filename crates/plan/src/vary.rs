//! What may vary: parameters with values, and alternatives with tables of their own.

use crate::PlanError;
use entresol::configuration::{Problem, nearest};
use papers::experiment::Origin;
use papers::experiment::document::{Document, overlay, set};
use toml::{Table, Value};

/// The tables of a candidate, as a plan names them.
pub(crate) const TREES: [&str; 5] = ["machine", "hardware", "configuration", "workload", "run"];

/// What may be chosen in one place.
pub(crate) struct Vary {
    /// What it is called.
    pub name: String,
    pub choices: Vec<Choice>,
}

/// One choice.
pub(crate) struct Choice {
    /// What it is called, for people.
    pub label: String,
    change: Change,
}

enum Change {
    Parameter { parameter: String, value: Value, at: String },
    Tables { tables: Table, at: String },
}

impl Choice {
    /// Makes the choice in these tables.
    pub fn apply(&self, tables: &mut Table) {
        match &self.change {
            Change::Parameter { parameter, value, .. } => set(tables, parameter, value.clone()),
            Change::Tables { tables: changes, .. } => overlay(tables, changes),
        }
    }

    /// Where what it changes was written.
    pub fn origin(&self) -> Origin<'_> {
        match &self.change {
            Change::Parameter { parameter, at, .. } => Origin::Parameter { parameter, at: at.clone() },
            Change::Tables { at, .. } => Origin::Table(at.clone()),
        }
    }
}

/// Everything that may vary, in the order of the plan.
pub(crate) fn varies(document: &Document) -> Result<Vec<Vary>, PlanError> {
    (0..document.elements("vary")?).map(|index| vary(document, index)).collect()
}

fn vary(document: &Document, index: usize) -> Result<Vary, PlanError> {
    let path = format!("vary.{index}");
    document.only(&path, "[[vary]]", &["parameter", "values", "name", "option"])?;
    let name = document.text_at(&format!("{path}.name"))?;
    if document.holds(&format!("{path}.option")) {
        return options(document, &path, name.unwrap_or_else(|| format!("choice {}", index + 1)));
    }
    let parameter_path = format!("{path}.parameter");
    let Some(parameter) = document.text_at(&parameter_path)? else {
        let problem = Problem::Conflict("[[vary]] has neither a 'parameter' nor an 'option'".to_owned());
        let allowed = "parameter = \"configuration.buffer.size\" with values, or [[vary.option]]";
        return Err(document.at_key(&path, problem, allowed, None).into());
    };
    let (tree, rest) = parameter.split_once('.').unwrap_or((&parameter, ""));
    if !TREES.contains(&tree) || rest.split('.').any(str::is_empty) {
        let near = nearest(tree, TREES.iter().copied()).map(str::to_owned);
        let problem = Problem::Conflict(format!("there is no parameter '{parameter}'"));
        let allowed = format!("a dotted path that begins with {}", TREES.join(", "));
        return Err(document.at_value(&parameter_path, problem, &allowed, near).into());
    }
    let values_path = format!("{path}.values");
    let values = match document.value(&values_path) {
        Some(Value::Array(values)) if !values.is_empty() => values.clone(),
        _ => {
            let problem = Problem::Conflict("[[vary]] has no values".to_owned());
            return Err(document.at_value(&values_path, problem, "a list that is not empty", None).into());
        }
    };
    let segments: Vec<&str> = rest.split('.').collect();
    let name = name.unwrap_or_else(|| segments[segments.len().saturating_sub(2)..].join(" "));
    let choice = |value: Value| {
        let label = match &value {
            // Names of things say by themselves what they are, quantities do not.
            Value::String(text) if !text.starts_with(|first: char| first.is_ascii_digit()) => text.clone(),
            Value::String(text) => format!("{name} {text}"),
            other => format!("{name} {other}"),
        };
        Choice { label, change: Change::Parameter { parameter: parameter.clone(), value, at: path.clone() } }
    };
    let choices = values.into_iter().map(choice).collect();
    Ok(Vary { name, choices })
}

fn options(document: &Document, path: &str, name: String) -> Result<Vary, PlanError> {
    let mut choices = Vec::new();
    for number in 0..document.elements(&format!("{path}.option"))? {
        let at = format!("{path}.option.{number}");
        let known: Vec<&str> = ["name"].into_iter().chain(TREES).collect();
        document.only(&at, "[[vary.option]]", &known)?;
        let label = document.text_at(&format!("{at}.name"))?.unwrap_or_else(|| format!("option {}", number + 1));
        let tables = match document.value(&at) {
            Some(Value::Table(table)) => table.clone(),
            Some(other) => return Err(document.wrong_type(&at, other, "a table").into()),
            None => Table::new(),
        };
        for tree in TREES {
            if let Some(other) = tables.get(tree).filter(|value| !value.is_table()) {
                return Err(document.wrong_type(&format!("{at}.{tree}"), other, "a table").into());
            }
        }
        let tables = tables.into_iter().filter(|(key, _)| key != "name").collect();
        choices.push(Choice { label, change: Change::Tables { tables, at } });
    }
    if choices.is_empty() {
        let problem = Problem::Conflict("there are no options".to_owned());
        return Err(document.at_value(path, problem, "[[vary.option]] once or more", None).into());
    }
    Ok(Vary { name, choices })
}
