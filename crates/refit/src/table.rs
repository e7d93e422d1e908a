//! Aligned columns. The last column is for names: it is as wide as it has to be and never padded.

use refit_sys::printable;

/// The alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Rows that are printed together.
#[derive(Debug)]
pub(crate) struct Table {
    align: Vec<Align>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table with these columns.
    pub(crate) fn new(columns: &[(&str, Align)]) -> Self {
        Table {
            align: columns.iter().map(|(_, align)| *align).collect(),
            rows: vec![columns.iter().map(|(title, _)| (*title).to_owned()).collect()],
        }
    }

    /// Adds a row, with a cell per column. Unprintable characters are escaped here, so that columns
    /// stay aligned.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.align.len());
        self.rows.push(cells.iter().map(|cell| printable::line(cell).into_owned()).collect());
    }

    /// Returns the lines, the titles first.
    pub(crate) fn lines(&self) -> Vec<String> {
        let widths: Vec<usize> = (0..self.align.len())
            .map(|c| self.rows.iter().map(|row| row[c].chars().count()).max().unwrap_or(0))
            .collect();
        self.rows.iter().map(|row| self.line(row, &widths)).collect()
    }

    fn line(&self, row: &[String], widths: &[usize]) -> String {
        let mut line = String::new();
        for (c, cell) in row.iter().enumerate() {
            let width = widths[c];
            let text = match self.align[c] {
                Align::Left => format!("{cell:<width$}"),
                Align::Right => format!("{cell:>width$}"),
            };
            if c > 0 {
                line.push_str("  ");
            }
            line.push_str(&text);
        }
        line.truncate(line.trim_end().len());
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_below_each_other() {
        let mut table =
            Table::new(&[("N", Align::Right), ("WHAT", Align::Left), ("NAME", Align::Left)]);
        table.row(vec!["1".into(), "µs".into(), "a".into()]);
        table.row(vec!["12 345".into(), "shared".into(), "b c".into()]);
        assert_eq!(
            table.lines(),
            ["     N  WHAT    NAME", "     1  µs      a", "12 345  shared  b c"]
        );
    }
}
