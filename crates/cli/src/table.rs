//! Tables on a terminal.

use comfy_table::{Cell, CellAlignment, ColumnConstraint, ContentArrangement, LineStyle, Table, TableStyle, Width};

/// No line of a report is longer than this many columns.
pub const WIDTH: u16 = 100;

/// Columns between the texts of two neighbours of a table.
const GAP: usize = 3;

/// A table of this header and these rows, at most [`WIDTH`] wide; the first `left` columns hold words, the others numbers. Lines of a
/// cell break between words, of numbers and their units only if need be, and within a word only if the words have no room.
pub fn table(header: &[&str], left: usize, rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let rows: Vec<Vec<String>> = rows.into_iter().collect();
    let widths = widths_min(header, left, &rows);
    let cells = |row: Vec<String>| -> Vec<Cell> {
        let align = |index| if index < left { CellAlignment::Left } else { CellAlignment::Right };
        row.into_iter().enumerate().map(|(index, text)| Cell::new(text).set_alignment(align(index))).collect()
    };
    let mut table = Table::new();
    table
        .load_style(TableStyle::new().header_separator(LineStyle::none().fill('-').junction('-')))
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(WIDTH)
        .set_header(cells(header.iter().map(|title| (*title).to_owned()).collect()));
    for row in rows {
        table.add_row(cells(row));
    }
    if let Some(first) = table.column_mut(0) {
        first.set_padding((0, 1));
    }
    for (column, width) in table.column_iter_mut().zip(widths.into_iter().flatten()) {
        let width = width as u16 + column.padding_width();
        column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(width)));
    }
    table.trim_fmt()
}

/// How wide each column has to be at least so that nothing is broken that need not be; `None` if the words have no room.
fn widths_min(header: &[&str], left: usize, rows: &[Vec<String>]) -> Option<Vec<usize>> {
    let longest = |text: &str| text.split_whitespace().map(|word| word.chars().count()).max().unwrap_or(0);
    let widths = |first_whole: usize| -> Vec<usize> {
        let of = |index: usize, text: &str| match index >= first_whole {
            true => text.chars().count(),
            false => longest(text),
        };
        let widest = |(index, title): (usize, &&str)| {
            rows.iter().filter_map(|row| Some(of(index, row.get(index)?))).fold(longest(title), usize::max).max(1)
        };
        header.iter().enumerate().map(widest).collect()
    };
    let has_room = |widths: &Vec<usize>| widths.iter().sum::<usize>() + GAP * widths.len() <= usize::from(WIDTH);
    // All cells but those of the header, those that hold numbers, none.
    [widths(0), widths(left), widths(usize::MAX)].into_iter().find(has_room)
}

/// What is said of one thing: its name, a value, and more in words.
pub fn fact(name: &str, value: String, more: impl Into<String>) -> Vec<String> {
    vec![name.to_owned(), value, more.into()]
}

/// A table of facts, which needs no header.
pub fn facts(facts: impl IntoIterator<Item = Vec<String>>) -> String {
    table(&["", "", ""], 3, facts).lines().skip(2).collect::<Vec<_>>().join("\n")
}

/// The text with its lines broken between words so that none is wider than [`WIDTH`].
pub fn wrapped(text: &str) -> String {
    wrapped_to(text, usize::from(WIDTH))
}

/// The same, so that none is wider than `width`.
pub fn wrapped_to(text: &str, width: usize) -> String {
    let mut lines = Vec::new();
    for line in text.lines() {
        let mut present = String::new();
        for word in line.split_whitespace() {
            if !present.is_empty() && present.chars().count() + 1 + word.chars().count() > width {
                lines.push(std::mem::take(&mut present));
            }
            if !present.is_empty() {
                present.push(' ');
            }
            present.push_str(word);
        }
        lines.push(present);
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_words_are_broken_to_fit() {
        let rows = [vec!["word ".repeat(40), "x".repeat(90), "1".to_owned()]];
        let text = table(&["words", "letters", "number"], 2, rows);
        assert!(text.lines().count() > 3);
        assert!(text.lines().all(|line| line.chars().count() <= usize::from(WIDTH)), "{text}");
    }

    #[test]
    fn words_stay_whole_where_they_have_room() {
        let header = ["type", "transactions", "mean", "90 % interval", "50 %", "95 %", "99 %", "max", "rolled back"];
        let row = |name: &str| {
            let times = ["12.34 ms", "± 1.23 ms", "11.34 ms", "123.45 ms", "1,234.56 ms", "12,345.67 ms"];
            let mut row = vec![name.to_owned(), "1,234,567".to_owned()];
            row.extend(times.map(str::to_owned));
            row.push("12".to_owned());
            row
        };
        let text = table(&header, 1, ["new-order", "order-status", "stock-level"].map(row));
        let words: Vec<&str> = text.split_whitespace().collect();
        for word in ["order-status", "transactions", "1,234,567", "interval", "12,345.67"] {
            assert!(words.contains(&word), "{word} in\n{text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= usize::from(WIDTH)), "{text}");
    }

    #[test]
    fn lines_break_between_words() {
        let text = wrapped(&format!("{}\nshort", "seven4 ".repeat(30)));
        let lengths: Vec<usize> = text.lines().map(str::len).collect();
        assert_eq!(lengths, [97, 97, 13, 5]);
    }
}
