//! From the text of an experiment to its runs.

use super::document::{Document, overlay, set};
use super::places::{except, exceptions};
use super::setting::{self, Origin, Sources};
use super::{Axis, Experiment, ExperimentError, Extent, Mark, Output, Point, ReadFile};
use base::units::{parse_duration_ns, parse_size};
use entresol::configuration::Problem;
use toml::{Table, Value};

/// The tables that say what is run, which series and parameters change.
pub(super) const TREES: [&str; 4] = ["configuration", "hardware", "workload", "run"];

/// What an experiment names in place of a parameter to show a run's course.
const TIME: &str = "run.time";

/// More runs than an experiment needs.
const POINTS_MAX: usize = 10_000;

/// A parameter and the values that it takes.
struct Vary {
    /// The parameter in each series: different ones may mean the same, such as the sizes of different caches.
    parameters: Vec<String>,
    name: String,
    steps: Vec<Step>,
    /// Whether its axis is to be logarithmic; `None`: if its values grow so.
    logarithmic: Option<bool>,
}

/// One of a parameter's values.
struct Step {
    value: Value,
    number: Option<f64>,
    label: String,
}

pub(super) fn experiment(
    file: &str,
    text: &str,
    extent: Extent,
    outputs: &[&str],
    read_file: ReadFile<'_>,
) -> Result<Experiment, ExperimentError> {
    let document = Document::parse(file, text)?;
    let mut known = vec!["title", "about", "base", "outputs", "series", "vary", "at", "quick", "paper"];
    known.extend(TREES);
    document.only("", "an experiment", &known)?;
    document.only("quick", "[quick]", &setting::RUN_KEYS)?;
    let tree = tree(&document, extent, read_file)?;
    let series = series(&document)?;
    let mut varies = Vec::new();
    for index in 0..document.elements("vary")? {
        varies.push(vary(&document, index, &series, extent)?);
    }
    let mut varies = varies.into_iter();
    let x = varies.next().ok_or_else(|| ExperimentError::Whole(format!("{file}: there is no [[vary]]")))?;
    let over_time = x.parameters.iter().all(|parameter| parameter == TIME);
    let others: Vec<Vary> = varies.collect();
    let combinations = combinations(&others);
    if series.len() * combinations.len() * x.steps.len() > POINTS_MAX {
        return Err(ExperimentError::Whole(format!("{file}: more than {POINTS_MAX} runs; vary less")));
    }
    let places: Vec<(Option<f64>, &str)> = x.steps.iter().map(|step| (step.number, step.label.as_str())).collect();
    // A quick run has neither all places nor the time.
    let exceptions = if extent == Extent::Full { exceptions(&document, &places)? } else { Vec::new() };
    let mut lines = Vec::new();
    let mut points = Vec::new();
    for (number, (name, changes)) in series.iter().enumerate() {
        for combination in &combinations {
            let mut changed = tree.clone();
            overlay(&mut changed, changes);
            let mut label = vec![name.clone()];
            for (vary, step) in others.iter().zip(combination) {
                set(&mut changed, &vary.parameters[number], vary.steps[*step].value.clone());
                label.push(vary.steps[*step].label.clone());
            }
            label.retain(|part| !part.is_empty());
            for (place, step) in x.steps.iter().enumerate() {
                let mut run = changed.clone();
                if !over_time {
                    set(&mut run, &x.parameters[number], step.value.clone());
                }
                let mut origins = self::origins(&x, &others, number);
                origins.splice(..0, except(&mut run, &exceptions, place));
                let sources = Sources { document: &document, origins, read_file };
                let setting = setting::setting(&run, &sources)?;
                if over_time && setting.batches as usize != x.steps.len() {
                    return Err(batches_differ(&document, setting.batches, x.steps.len()));
                }
                points.push(Point { line: lines.len(), x: place, setting });
            }
            lines.push(label.join(", "));
        }
    }
    let stem = file.rsplit(['/', '\\']).next().unwrap_or(file);
    let name = stem.strip_suffix(".toml").unwrap_or(stem).to_owned();
    let title = document.text_at("title")?.unwrap_or_else(|| name.clone());
    let about = document.text_at("about")?.unwrap_or_default();
    let mut outputs = read_outputs(&document, outputs, &lines)?;
    let x = axis(&document, x)?;
    paper(&document, &x, &lines, &mut outputs)?;
    Ok(Experiment { name, title, about, x, over_time, lines, outputs, points })
}

fn batches_differ(document: &Document, batches: u32, places: usize) -> ExperimentError {
    let problem = Problem::Conflict(format!("a run of {batches} batches is shown at {places} times"));
    document.at_value("vary.0.values", problem, "a value for each of the 'batches' of [run]", None)
}

/// What every run begins with: the base configuration under the experiment's own tables.
fn tree(document: &Document, extent: Extent, read_file: ReadFile<'_>) -> Result<Table, ExperimentError> {
    let mut tree = Table::new();
    if let Some(base) = document.text_at("base")? {
        let text = match crate::base(&base) {
            Some(text) => text.to_owned(),
            None => read_file(&base).map_err(|error| {
                let problem = Problem::Conflict(format!("the base '{base}' cannot be read: {error}"));
                let allowed = format!("{}, or the path of a database's configuration", crate::base_names().join(", "));
                document.at_value("base", problem, &allowed, None)
            })?,
        };
        tree.insert("configuration".to_owned(), Value::Table(Document::parse(&base, &text)?.table));
    }
    for name in TREES {
        match document.table.get(name) {
            Some(Value::Table(table)) => {
                let over = Table::from_iter([(name.to_owned(), Value::Table(table.clone()))]);
                overlay(&mut tree, &over);
            }
            Some(other) => return Err(document.wrong_type(name, other, "a table")),
            None => {}
        }
    }
    if extent == Extent::Quick
        && let Some(Value::Table(quick)) = document.table.get("quick")
    {
        let run = tree.entry("run").or_insert_with(|| Value::Table(Table::new()));
        if let Value::Table(run) = run {
            // A length in the other unit replaces the full run's.
            if quick.contains_key("transactions") || quick.contains_key("seconds") {
                run.retain(|key, _| key != "transactions" && key != "seconds");
            }
            overlay(run, quick);
        }
    }
    Ok(tree)
}

/// Every series by its name, with the tables that it lays over the experiment's.
fn series(document: &Document) -> Result<Vec<(String, Table)>, ExperimentError> {
    let count = document.elements("series")?;
    if count == 0 {
        return Ok(vec![(String::new(), Table::new())]);
    }
    let mut known = vec!["name"];
    known.extend(TREES);
    let mut series = Vec::new();
    for index in 0..count {
        let path = format!("series.{index}");
        document.only(&path, "[[series]]", &known)?;
        let name = document.text_at(&format!("{path}.name"))?.unwrap_or_else(|| format!("series {}", index + 1));
        let Some(Value::Table(table)) = document.value(&path) else { unreachable!("its keys have been looked at") };
        let changes = table.iter().filter(|(key, _)| *key != "name").map(|(key, value)| (key.clone(), value.clone()));
        series.push((name, changes.collect()));
    }
    Ok(series)
}

fn vary(
    document: &Document,
    index: usize,
    series: &[(String, Table)],
    extent: Extent,
) -> Result<Vary, ExperimentError> {
    let path = format!("vary.{index}");
    document.only(&path, "[[vary]]", &["parameter", "values", "quick", "labels", "name", "unit", "axis"])?;
    let at = |key: &str| format!("{path}.{key}");
    let parameters = series.iter().map(|(name, _)| parameter(document, &at("parameter"), name));
    let parameters: Vec<String> = parameters.collect::<Result<_, _>>()?;
    let full = numbers_or_values(document, &at("values"))?;
    let labels = document.holds(&at("labels")).then(|| numbers_or_values(document, &at("labels"))).transpose()?;
    if let Some(labels) = &labels
        && labels.len() != full.len()
    {
        let problem = Problem::Conflict(format!("{} labels for {} values", labels.len(), full.len()));
        return Err(document.at_value(&at("labels"), problem, "one label for each value", None));
    }
    let quick = at("quick");
    let chosen = if extent == Extent::Quick && document.holds(&quick) {
        numbers_or_values(document, &quick)?
    } else {
        full.clone()
    };
    let unit = document.text_at(&at("unit"))?;
    let mut steps = Vec::new();
    for value in chosen {
        let shown = match &labels {
            Some(labels) => full.iter().position(|one| *one == value).map(|index| labels[index].clone()),
            None => Some(value.clone()),
        };
        let Some(shown) = shown else {
            let problem = Problem::Conflict(format!("{value} is none of the values"));
            return Err(document.at_value(&quick, problem, "some of 'values'", None));
        };
        let number = number(&shown);
        let label = match (&shown, number) {
            (Value::String(text), _) => text.clone(),
            (_, Some(number)) => crate::plot::place_text(number),
            (other, None) => other.to_string(),
        };
        let value = match &unit {
            Some(unit) => in_unit(document, &at("unit"), &value, unit)?,
            None => value,
        };
        steps.push(Step { value, number, label });
    }
    let name = document.text_at(&at("name"))?.unwrap_or_else(|| parameters[0].clone());
    let logarithmic = match document.text_at(&at("axis"))?.as_deref() {
        None => None,
        Some("linear") => Some(false),
        Some("logarithmic") => Some(true),
        Some(other) => {
            let problem = Problem::Conflict(format!("there is no axis '{other}'"));
            return Err(document.at_value(&at("axis"), problem, "linear, logarithmic", None));
        }
    };
    Ok(Vary { parameters, name, steps, logarithmic })
}

/// The parameter that stands at `path` for the series of this name.
fn parameter(document: &Document, path: &str, series: &str) -> Result<String, ExperimentError> {
    let by_series = format!("{path}.{series}");
    let place = if matches!(document.value(path), Some(Value::Table(_))) { by_series.as_str() } else { path };
    let Some(parameter) = document.text_at(place)? else {
        let problem = Problem::Conflict(format!("[[vary]] names no parameter for the series '{series}'"));
        let allowed = "parameter = \"workload.rate\" or another dotted path, or one for each series in a table";
        return Err(document.at_key(path, problem, allowed, None));
    };
    let (tree, rest) = parameter.split_once('.').unwrap_or((&parameter, ""));
    if !TREES.contains(&tree) || rest.is_empty() || rest.split('.').any(str::is_empty) {
        let near = entresol::configuration::nearest(tree, TREES.iter().copied()).map(str::to_owned);
        let problem = Problem::Conflict(format!("there is no parameter '{parameter}'"));
        let allowed = "a dotted path that begins with configuration, hardware, workload or run";
        return Err(document.at_value(place, problem, allowed, near));
    }
    Ok(parameter)
}

/// A list of values, or the numbers of `{ from, to, step }`.
fn numbers_or_values(document: &Document, path: &str) -> Result<Vec<Value>, ExperimentError> {
    let allowed = "a list of values that is not empty, or { from = 10, to = 100, step = 10 }";
    let fail = |why: String| document.at_value(path, Problem::Conflict(why), allowed, None);
    match document.value(path) {
        Some(Value::Array(values)) if !values.is_empty() => Ok(values.clone()),
        Some(Value::Table(range)) => {
            document.only(path, "a range", &["from", "to", "step"])?;
            let end =
                |key: &str| range.get(key).and_then(number).ok_or_else(|| fail(format!("the range has no '{key}'")));
            let (from, to, step) = (end("from")?, end("to")?, end("step")?);
            let count = ((to - from) / step + 1.0 + 1e-9).floor();
            if !(1.0..=POINTS_MAX as f64).contains(&count) {
                return Err(fail("the range is empty or has too many values".to_owned()));
            }
            let whole = range.values().all(Value::is_integer);
            let numbers = (0..count as usize).map(|index| from + step * index as f64);
            Ok(numbers.map(|x| if whole { Value::Integer(x as i64) } else { Value::Float(x) }).collect())
        }
        Some(_) => Err(fail("these are no values".to_owned())),
        None => Err(document.at_key(path, Problem::Conflict("[[vary]] has no 'values'".to_owned()), allowed, None)),
    }
}

pub(super) fn number(value: &Value) -> Option<f64> {
    value.as_float().or_else(|| value.as_integer().map(|number| number as f64))
}

/// A number with a unit, as a size in bytes, a duration in nanoseconds or a count.
fn in_unit(document: &Document, path: &str, value: &Value, unit: &str) -> Result<Value, ExperimentError> {
    let fail = || {
        let problem = Problem::Conflict(format!("{value} times '{unit}' is no quantity"));
        let allowed = "a size such as \"8 KiB\", a duration such as \"1 ms\", or \"pages\"; beside numbers";
        document.at_value(path, problem, allowed, None)
    };
    let number = number(value).ok_or_else(fail)?;
    match (parse_size(unit), parse_duration_ns(unit)) {
        (Ok(bytes), _) => Ok(Value::String(format!("{:.0} B", number * bytes as f64))),
        (_, Ok(ns)) => Ok(Value::String(format!("{:.0} ns", number * ns as f64))),
        // Such as "pages", which some sizes may be given in.
        _ if unit.chars().all(char::is_alphabetic) => Ok(Value::String(format!("{number} {unit}"))),
        _ => Err(fail()),
    }
}

/// Every combination of one step of each parameter, the last changing fastest.
fn combinations(varies: &[Vary]) -> Vec<Vec<usize>> {
    varies.iter().fold(vec![Vec::new()], |before, vary| {
        let longer = |chosen: &Vec<usize>| {
            let chosen = chosen.clone();
            (0..vary.steps.len()).map(move |step| chosen.iter().copied().chain([step]).collect())
        };
        before.iter().flat_map(longer).collect()
    })
}

/// Where values of a series were written that are not the experiment's own: in its parameters, and in its tables.
fn origins<'a>(x: &'a Vary, others: &'a [Vary], series: usize) -> Vec<Origin<'a>> {
    let varies = std::iter::once(x).chain(others).enumerate();
    let parameters = varies
        .map(|(index, vary)| Origin::Parameter { parameter: &vary.parameters[series], at: format!("vary.{index}") });
    parameters.chain([Origin::Table(format!("series.{series}"))]).collect()
}

/// The abscissa: of numbers, of sizes or durations that are written with their units, or of names.
fn axis(document: &Document, x: Vary) -> Result<Axis, ExperimentError> {
    let quantities: Option<Vec<f64>> =
        x.steps.iter().map(|step| step.number.or_else(|| quantity(&step.label))).collect();
    let named = quantities.is_none();
    let numbers = quantities.unwrap_or_else(|| (0..x.steps.len()).map(|index| index as f64).collect());
    let is_logarithmic = !named && x.logarithmic.unwrap_or_else(|| crate::plot::grows_by_a_factor(&numbers));
    if is_logarithmic && numbers.iter().any(|number| *number <= 0.0) {
        let problem = Problem::Conflict("a logarithmic axis has no place for zero and less".to_owned());
        return Err(document.at_value("vary.0.axis", problem, "linear, or values above zero", None));
    }
    let values = numbers.into_iter().zip(x.steps).map(|(number, step)| (number, step.label)).collect();
    Ok(Axis { name: x.name, named, is_logarithmic, values })
}

/// A size in bytes or a duration in nanoseconds.
fn quantity(label: &str) -> Option<f64> {
    if !label.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    parse_size(label).or_else(|_| parse_duration_ns(label)).ok().map(|number| number as f64)
}

/// Gives the outputs the values of the paper.
fn paper(document: &Document, x: &Axis, lines: &[String], outputs: &mut [Output]) -> Result<(), ExperimentError> {
    for index in 0..document.elements("paper")? {
        let at = |key: &str| format!("paper.{index}.{key}");
        document.only(&format!("paper.{index}"), "[[paper]]", &["output", "line", "source", "points"])?;
        let text = |key: &str| {
            let missing = || {
                let problem = Problem::Conflict(format!("[[paper]] has no '{key}'"));
                document.at_key(&format!("paper.{index}"), problem, "output, line, source, points", None)
            };
            document.text_at(&at(key))?.ok_or_else(missing)
        };
        let (path, line, source) = (text("output")?, text("line")?, text("source")?);
        let near = |name: &str, allowed: &[&str]| {
            entresol::configuration::nearest(name, allowed.iter().copied()).map(str::to_owned)
        };
        if !lines.contains(&line) {
            let allowed: Vec<&str> = lines.iter().map(String::as_str).collect();
            let problem = Problem::Conflict(format!("there is no curve '{line}'"));
            return Err(document.at_value(&at("line"), problem, &allowed.join(", "), near(&line, &allowed)));
        }
        let found: Vec<usize> = (0..outputs.len()).filter(|number| outputs[*number].path == path).collect();
        if found.is_empty() {
            let allowed: Vec<&str> = outputs.iter().map(|output| output.path.as_str()).collect();
            let problem = Problem::Conflict(format!("'{path}' is not plotted"));
            return Err(document.at_value(&at("output"), problem, &allowed.join(", "), near(&path, &allowed)));
        }
        let marks = points(document, &at("points"), x)?;
        for number in found {
            let mark = |(x, y): &(f64, f64)| Mark { line: line.clone(), x: *x, y: *y, source: source.clone() };
            outputs[number].marks.extend(marks.iter().map(mark));
        }
    }
    Ok(())
}

/// Pairs of a place on the abscissa and a value. Places that this run leaves out are left out where they have no number.
fn points(document: &Document, path: &str, x: &Axis) -> Result<Vec<(f64, f64)>, ExperimentError> {
    let allowed = "a list of pairs of a place on the abscissa and a value: [[100, 52.5], [700, 55]]";
    let fail = || document.at_value(path, Problem::Conflict("these are no points".to_owned()), allowed, None);
    let Some(Value::Array(pairs)) = document.value(path) else { return Err(fail()) };
    let mut found = Vec::new();
    for pair in pairs {
        let [place, value] = pair.as_array().map(Vec::as_slice).ok_or_else(fail)? else { return Err(fail()) };
        let value = number(value).ok_or_else(fail)?;
        let place = match place {
            Value::String(label) => {
                let known = x.values.iter().find(|(_, known)| known == label).map(|(number, _)| *number);
                known.or_else(|| quantity(label).filter(|_| !x.named))
            }
            place => Some(number(place).ok_or_else(fail)?),
        };
        found.extend(place.map(|place| (place, value)));
    }
    Ok(found)
}

fn read_outputs(document: &Document, known: &[&str], lines: &[String]) -> Result<Vec<Output>, ExperimentError> {
    let count = document.elements("outputs")?;
    if count == 0 {
        return Ok(vec![Output::of("response_us.mean"), Output::of("throughput_per_s")]);
    }
    let mut outputs = Vec::new();
    for index in 0..count {
        let at = format!("outputs.{index}");
        let (path, place) = match document.value(&at) {
            Some(Value::String(path)) => (path.clone(), at.clone()),
            Some(Value::Table(_)) => {
                document.only(
                    &at,
                    "an output",
                    &["path", "label", "factor", "relative_to", "y_max", "at", "figure"],
                )?;
                let place = format!("{at}.path");
                (document.text_at(&place)?.unwrap_or_default(), place)
            }
            _ => (String::new(), at.clone()),
        };
        let top = path.split('.').next().unwrap_or_default();
        if !known.contains(&top) {
            let near = entresol::configuration::nearest(top, known.iter().copied()).map(str::to_owned);
            let problem = Problem::Conflict(format!("a run's report has no '{top}'"));
            return Err(document.at_value(&place, problem, &known.join(", "), near));
        }
        let mut output = Output::of(&path);
        if let Some(label) = document.text_at(&format!("{at}.label"))? {
            output.label = label;
        }
        let option = |key: &str| document.value(&format!("{at}.{key}")).and_then(number);
        output.factor = option("factor").unwrap_or(output.factor);
        (output.y_max, output.at) = (option("y_max"), option("at"));
        output.relative_to = document.text_at(&format!("{at}.relative_to"))?;
        if let Some(line) = output.relative_to.as_ref().filter(|line| !lines.contains(line)) {
            let near = entresol::configuration::nearest(line, lines.iter().map(String::as_str)).map(str::to_owned);
            let problem = Problem::Conflict(format!("there is no curve '{line}'"));
            return Err(document.at_value(&format!("{at}.relative_to"), problem, &lines.join(", "), near));
        }
        output.figure = document.text_at(&format!("{at}.figure"))?;
        outputs.push(output);
    }
    Ok(outputs)
}
