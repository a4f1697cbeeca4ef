//! Tables as aligned text, in the format of Kubernetes' debug dumps: cells are separated by a comma and
//! padded with spaces to at least eight characters, except the last cell of a row.

/// The least width of a cell, padding included.
const LEAST_WIDTH: usize = 8;
/// Spaces after the longest cell of a column.
const PADDING: usize = 1;

/// The maximum length of a cell in characters; the rest is cut off. Every row is padded to the longest
/// cell of a column, so one long path would lengthen every row.
const MOST_CHARACTERS: usize = 1024;

/// Rows of equally many cells.
#[derive(Debug)]
pub struct AlignedTable {
    width: usize,
    cells: Vec<String>,
}

impl AlignedTable {
    /// A table that has only its header.
    pub fn new(header: &[&str]) -> Self {
        Self {
            width: header.len(),
            cells: header.iter().map(|cell| (*cell).to_owned()).collect(),
        }
    }

    /// Adds a row. Control characters are replaced, so that a cell cannot look like several.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.cells.extend(cells.into_iter().map(|mut cell| {
            if let Some((end, _)) = cell.char_indices().nth(MOST_CHARACTERS) {
                cell.truncate(end);
            }
            if cell.contains(char::is_control) {
                cell.replace(char::is_control, "\u{fffd}")
            } else {
                cell
            }
        }));
        debug_assert_eq!(
            self.cells.len() % self.width,
            0,
            "rows are as wide as the header"
        );
    }

    /// The table as text.
    pub fn to_text(&self) -> String {
        let mut widths = vec![LEAST_WIDTH; self.width];
        for row in self.cells.chunks(self.width) {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count() + 1 + PADDING);
            }
        }
        let line: usize = widths.iter().sum();
        let mut text = String::with_capacity(line * self.cells.len() / self.width.max(1));
        for row in self.cells.chunks(self.width) {
            let Some((last, others)) = row.split_last() else {
                break;
            };
            for (cell, width) in others.iter().zip(&widths) {
                text.push_str(cell);
                text.push(',');
                let filled = cell.chars().count() + 1;
                text.extend(std::iter::repeat_n(' ', width - filled));
            }
            text.push_str(last);
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_longest_cell_and_at_least_eight() {
        let mut table = AlignedTable::new(&["A", "LongerName", "Last"]);
        table.row(["x".into(), "y".into(), "z".into()]);
        table.row(["ünï".into(), "two\nlines".into(), String::new()]);
        assert_eq!(
            table.to_text(),
            "A,      LongerName, Last\n\
             x,      y,          z\n\
             ünï,    two\u{fffd}lines,  \n"
        );
    }

    #[test]
    fn a_long_cell_is_cut() {
        let mut table = AlignedTable::new(&["A", "B"]);
        table.row(["é".repeat(5000), "b".to_owned()]);
        let text = table.to_text();
        assert_eq!(text.matches('é').count(), MOST_CHARACTERS);
        assert!(
            text.lines().all(|line| line.chars().count() < 1100),
            "{text}"
        );
    }
}
