//! Text in columns.

use std::io::{self, Write};

/// Writes `rows` under `heads`, each column as wide as its widest cell. Columns of numbers are right-aligned.
pub(super) fn write<const N: usize>(
    out: &mut dyn Write,
    heads: [&str; N],
    rows: &[[String; N]],
) -> io::Result<()> {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([heads[column].len()]).max().unwrap_or_default()
    };
    let widths: [usize; N] = std::array::from_fn(width);
    let is_number: [bool; N] = std::array::from_fn(|column| {
        let mut cells = rows.iter().map(|row| row[column].as_str());
        cells.all(|cell| cell == "-" || cell.bytes().all(|b| b.is_ascii_digit()))
    });
    let heads = heads.map(str::to_owned);
    for row in [&heads].into_iter().chain(rows) {
        let cells = row.iter().enumerate().map(|(column, cell)| {
            let width = widths[column];
            if is_number[column] {
                format!("{cell:>width$}  ")
            } else {
                format!("{cell:<width$}  ")
            }
        });
        let line: String = cells.collect();
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_left_aligned_and_numbers_are_right_aligned() {
        let mut out = Vec::new();
        let rows = [["a", "1"], ["long name", "-"], ["b", "100"]].map(|r| r.map(str::to_owned));
        write(&mut out, ["NAME", "N"], &rows).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "NAME         N\na            1\nlong name    -\nb          100\n"
        );
    }
}
