//! Tables on a terminal.

use comfy_table::{Cell, CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};

/// No line of a report is longer than this many columns.
pub const WIDTH: u16 = 100;

/// A table of this header and these rows, at most [`WIDTH`] wide; the first `left` columns hold words, the others numbers.
pub fn table(header: &[&str], left: usize, rows: impl IntoIterator<Item = Vec<String>>) -> String {
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
    table.trim_fmt()
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
    fn lines_break_between_words() {
        let text = wrapped(&format!("{}\nshort", "seven4 ".repeat(30)));
        let lengths: Vec<usize> = text.lines().map(str::len).collect();
        assert_eq!(lengths, [97, 97, 13, 5]);
    }
}
